//! What an agent does with what it hears: a call's body goes back as it came, a stream is sent as fast as its
//! reader gives credit.

use std::collections::HashMap;

use anyhow::{Context, Result};
use bytes::{Buf, Bytes};

use crate::client::Link;
use crate::dialect::{CallKey, Dialect, Heard};

/// A stream that an agent sends.
#[derive(Debug)]
struct Stream {
    chunks: u64,
    credit: u64,
    seq: u64,
    body: Bytes,
}

/// The side of an agent that answers.
#[derive(Debug)]
pub(super) struct Provider {
    dialect: Dialect,
    number: u32,
    streams: HashMap<CallKey, Stream>,
}

impl Provider {
    /// That of the agent of this number.
    pub(super) fn new(dialect: Dialect, number: u32) -> Self {
        Self { dialect, number, streams: HashMap::new() }
    }

    /// What it speaks.
    pub(super) const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Answers all that has come with one write. Says how much of it was work.
    ///
    /// # Errors
    /// When the connection is gone, or the server wants it gone.
    pub(super) async fn hear(&mut self, link: &mut Link) -> Result<u64> {
        let mut work = 0;
        while let Some(message) = link.pop()? {
            work += u64::from(self.take(&message, link)?);
        }
        link.flush().await?;
        Ok(work)
    }

    fn take(&mut self, message: &Bytes, link: &mut Link) -> Result<bool> {
        match self.dialect.heard(message)? {
            Heard::Call(call, body) => link.push(&self.dialect.result(self.number, call, &body)),
            Heard::Notice => {}
            Heard::Stream(call, body, credit) => {
                let chunks = body.clone().try_get_u64().context("a stream that says no length")?;
                self.streams.insert(call, Stream { chunks, credit, seq: 0, body });
                self.send(call, link);
            }
            Heard::Credit(call, n) => {
                // One for a stream that has ended crossed its end.
                if let Some(stream) = self.streams.get_mut(&call) {
                    stream.credit += n;
                    self.send(call, link);
                }
                return Ok(false);
            }
            Heard::Cancel(call) => {
                self.streams.remove(&call);
                return Ok(false);
            }
            Heard::Nothing => return Ok(false),
        }
        Ok(true)
    }

    /// Sends what the credit allows, and the end.
    fn send(&mut self, call: CallKey, link: &mut Link) {
        let Some(stream) = self.streams.get_mut(&call) else { return };
        while stream.credit > 0 && stream.seq < stream.chunks {
            link.push(&self.dialect.chunk(self.number, call, stream.seq, &stream.body));
            stream.seq += 1;
            stream.credit -= 1;
        }
        if stream.seq == stream.chunks {
            let number = stream.body.clone();
            self.streams.remove(&call);
            link.push(&self.dialect.result(self.number, call, &number));
        }
    }
}
