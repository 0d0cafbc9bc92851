//! One handler that runs, or the remembered end of one that is being told again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::{
    CallResult, Chunk, Dispatch, ErrorCode, Private, ResultStatus, encode, limits::CREDIT_DEFAULT,
};
use bytes::Bytes;

use super::ends::{blank, failed, too_large};
use crate::payload::Payload;
use crate::session::time::{Now, millis};
use crate::session::types::{Failure, Invocation, Outcome};

/// Chunks of one stream kept so that it can be sent again after a reconnect, in bytes. 1 MiB.
const CHUNK_BYTES_MAX: usize = 1024 * 1024;

/// The chunks of one stream.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    pub(super) kept: VecDeque<Payload>,
    /// `seq` of the first that is kept.
    pub(super) first: u64,
    pub(super) bytes: usize,
}

impl Chunks {
    pub(super) fn produced(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    pub(super) fn push(&mut self, payload: Payload) {
        self.bytes += payload.body.len();
        self.kept.push_back(payload);
    }

    pub(super) fn at(&self, seq: u64) -> Option<&Payload> {
        self.kept.get(usize::try_from(seq.checked_sub(self.first)?).ok()?)
    }

    /// Lets go of sent chunks, once they are too many to be sent again. Unsent ones stay: credit bounds
    /// them.
    pub(super) fn shrink(&mut self, sent: u64) {
        while (self.bytes > CHUNK_BYTES_MAX || self.first > 0) && self.first < sent {
            let Some(payload) = self.kept.pop_front() else { return };
            self.bytes -= payload.body.len();
            self.first += 1;
        }
    }

    pub(super) fn can_start_over(&self) -> bool {
        self.first == 0
    }

    /// Forgets what there was, and counts from 0 again.
    pub(super) fn start_over(&mut self) {
        *self = Self::default();
    }
}

/// One handler, or the remembered end of one that is being told again.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) intent: Arc<str>,
    pub(super) request_id: String,
    pub(super) call_id: String,
    /// The hub's id on the present connection.
    pub(super) id: Option<u64>,
    /// Whose room it is in; `None` of a remembered end.
    pub(super) room: Option<Arc<str>>,
    /// Its handler has not started: others of its capability run, or it is not noted yet.
    pub(super) waiting: Option<Box<Invocation>>,
    /// Most of its capability at once.
    pub(super) most: Option<u64>,
    /// How long the handler says it takes.
    pub(super) expected: Option<Duration>,
    /// The processing time that the caller would like.
    pub(super) preferred: Option<Duration>,
    /// Of a task: its chunks say how far it is, and are no part of its result.
    pub(super) task: bool,
    /// Of its body, where there is a dedupe file.
    pub(super) fingerprint: u64,
    /// Its end is being written into the dedupe file, and is told when it is there.
    pub(super) saving: bool,
    /// The dedupe file says that it has begun.
    pub(super) noted: bool,
    /// ACCEPT, or what stands for it, was sent on the present connection.
    pub(super) accepted: bool,
    pub(super) stream: bool,
    /// Chunks allowed since seq 0, by the newest CALL.
    pub(super) credit: u64,
    /// Chunks sent to the newest CALL.
    pub(super) sent: u64,
    /// Chunks that the handler was allowed altogether.
    pub(super) permitted: u64,
    pub(super) chunks: Chunks,
    pub(super) started: Now,
    pub(super) deadline: Now,
    pub(super) execution: Duration,
    pub(super) outcome: Option<Outcome>,
    /// The future is dropped then.
    pub(super) abort_at: Option<Now>,
    /// CALL came again while this run was being cancelled.
    pub(super) again: Option<Box<Invocation>>,
    /// The end is in memory already.
    pub(super) remembered: bool,
}

impl Run {
    pub(super) fn new(now: Now, intent: Arc<str>, header: &Dispatch<'_>) -> Self {
        let credit = header.credit.unwrap_or(CREDIT_DEFAULT);
        Self {
            intent,
            request_id: header.request_id.to_owned(),
            call_id: header.call_id.to_owned(),
            id: Some(header.id),
            room: None,
            waiting: None,
            most: None,
            expected: None,
            preferred: header.preferred_timeout_ms.map(Duration::from_millis),
            task: header.task_id.is_some(),
            fingerprint: 0,
            saving: false,
            noted: false,
            accepted: false,
            stream: header.stream,
            credit,
            sent: 0,
            permitted: credit,
            chunks: Chunks::default(),
            started: now,
            deadline: now.after(Duration::from_millis(header.deadline_ms)),
            execution: Duration::ZERO,
            outcome: None,
            abort_at: None,
            again: None,
            remembered: false,
        }
    }

    /// The next piece that may be sent: one that is there, within the credit.
    pub(super) fn next_chunk(&mut self, id: u64) -> Option<Bytes> {
        if !self.stream || self.sent >= self.credit {
            return None;
        }
        let payload = self.chunks.at(self.sent)?;
        let content_type = payload.content_type.as_deref();
        let header = Chunk { id, seq: self.sent, target: None, content_type, private: Private::default() };
        let message = encode(&header, Some(&payload.body));
        self.sent += 1;
        self.accepted = true;
        Some(message)
    }

    pub(super) fn result(&self, id: u64, max_message: usize) -> Bytes {
        let execution_ms = Some(millis(self.execution));
        match &self.outcome {
            Some(Outcome::Completed(payload)) => {
                let content_type = payload.content_type.as_deref();
                let header = CallResult {
                    status: ResultStatus::Completed,
                    execution_ms,
                    content_type,
                    ..self.blank(id)
                };
                let message = encode(&header, Some(&payload.body));
                if message.len() <= max_message {
                    return message;
                }
                self.failed(id, &too_large("result", message.len(), max_message))
            }
            Some(Outcome::Failed(failure)) => {
                let message = self.failed(id, failure);
                if message.len() <= max_message {
                    return message;
                }
                let short = Failure { details: None, ..failure.clone() };
                self.failed(id, &short)
            }
            None => self.failed(id, &Failure::new(ErrorCode::HandlerError, "no outcome")),
        }
    }

    pub(super) fn failed(&self, id: u64, failure: &Failure) -> Bytes {
        failed(id, Some((&self.request_id, &self.call_id)), failure, Some(millis(self.execution)))
    }

    fn blank(&self, id: u64) -> CallResult<'_> {
        blank(id, Some((&self.request_id, &self.call_id)))
    }
}
