//! An answer in pieces: each goes to a caller that streams, and all together to one that does not.

use agent_reach_sdk::{EmitError, ErrorCode, HandlerError, Payload};
use bytes::Bytes;

use super::body;
use super::job::Job;

/// The pieces of one answer.
pub(super) struct Pieces<'a> {
    job: &'a Job,
    /// MessagePack of what nobody streams.
    gathered: Vec<u8>,
    count: u32,
}

impl<'a> Pieces<'a> {
    pub(super) const fn new(job: &'a Job) -> Self {
        Self { job, gathered: Vec::new(), count: 0 }
    }

    /// The next piece. Waits until a caller that streams has room for it.
    ///
    /// # Errors
    /// What the call ends with, when nobody waits any more or it is too large.
    pub(super) async fn push(&mut self, bytes: &Bytes) -> Result<(), HandlerError> {
        let piece = body::from_piece(bytes);
        if !self.job.context.wants_stream() {
            self.gather(&piece)?;
        }
        // To a task this is its progress, and to a plain call nothing.
        self.job.context.emit(piece).await.map_err(|error| match error {
            EmitError::Cancelled => HandlerError::wire(ErrorCode::Cancelled, "the call was cancelled"),
            EmitError::TooLarge { .. } | EmitError::Encode(_) | _ => {
                HandlerError::new("piece", error.to_string())
            }
        })
    }

    fn gather(&mut self, piece: &Payload) -> Result<(), HandlerError> {
        let before = self.gathered.len();
        if piece.content_type.is_none() {
            self.gathered.extend_from_slice(&piece.body);
        } else {
            // JSON that MessagePack cannot say, and bytes.
            let written = match std::str::from_utf8(&piece.body) {
                Ok(text) => rmp_serde::encode::write(&mut self.gathered, text),
                Err(_) => {
                    rmp_serde::encode::write(&mut self.gathered, &rmpv::Value::Binary(piece.body.to_vec()))
                }
            };
            written.map_err(|error| HandlerError::new("piece", error.to_string()))?;
        }
        self.count = self.count.saturating_add(1);
        if self.gathered.len() > self.job.answer_max {
            self.gathered.truncate(before);
            return Err(self.job.too_large());
        }
        Ok(())
    }

    /// The result: nil where the pieces were streamed, else their list.
    pub(super) fn end(self) -> Payload {
        if self.job.context.wants_stream() {
            return Payload::default();
        }
        let mut list = Vec::with_capacity(self.gathered.len() + 5);
        // An array whose count has 32 bits, as MessagePack has it.
        list.push(0xdd);
        list.extend_from_slice(&self.count.to_be_bytes());
        list.extend_from_slice(&self.gathered);
        Payload::new(list)
    }
}
