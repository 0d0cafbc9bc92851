//! What leaves a connection: what the core has for it, in shares; between messages a pong, and at the end the close.

use std::task::{Context, Poll};
use std::vec;

use agent_reach_core::Outgoing;
use bytes::{Buf, Bytes};

use super::scratch::{Heard, Plain, Scratch};
use super::share::Share;
use super::{CLOSE_WAIT, Connection, Edge, Stage, Turns};
use crate::transport::line::Wants;
use crate::transport::wire::Wire;
use crate::websocket::{Carries, Header};

/// What of a batch has not been given to the wire, since the share was used. It is what the core gave, with nothing
/// copied. The bounds of a batch bound it, and nothing more is taken from the core before all of it has left.
pub(super) struct Rest {
    /// Of the message whose frame has begun.
    payload: Bytes,
    /// What follows it.
    later: vec::IntoIter<Outgoing>,
}

impl<W: Wire, T: Turns, E: Edge> Connection<W, T, E> {
    /// Answers pings: at once between messages, with the latest when something is under way.
    pub(super) fn answer_pings(&mut self, cx: &mut Context<'_>, heard: &mut Heard) -> Result<(), ()> {
        if heard.pongs.is_empty() {
            return Ok(());
        }
        let sent = if self.unflushed || self.rest.is_some() {
            self.owed = heard.pongs.get(heard.latest..).map(Box::from);
            Ok(())
        } else {
            self.unflushed = true;
            self.wire.send(cx, &heard.pongs).map_err(drop)
        };
        heard.pongs.clear();
        sent
    }

    /// Has a close follow what is under way, once.
    pub(super) fn start_close(&mut self, code: Option<u16>, reason: &str) {
        if matches!(self.stage, Stage::Closing(..)) {
            return;
        }
        self.stage = Stage::Closing(Box::pin(tokio::time::sleep(CLOSE_WAIT)), 0);
        let mut payload = Vec::new();
        if let Some(code) = code {
            payload.extend_from_slice(&code.to_be_bytes());
            payload.extend_from_slice(reason.as_bytes());
        }
        // Nothing follows a close, a pong neither.
        self.owed = Some([Header::new(Carries::Close, payload.len()).as_ref(), &payload].concat().into());
    }

    /// Gives a batch to the wire, as far as the share goes. What cannot be turned into the peer's encoding comes back as
    /// input.
    pub(super) fn write(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        share: &mut Share,
    ) -> Result<(), ()> {
        let Scratch { heard, batch, plain } = scratch;
        let mut later = batch.drain(..);
        let payload = self.gather(Bytes::new(), &mut later, heard, plain, share);
        if !payload.is_empty() || later.len() > 0 {
            let later = later.collect::<Vec<_>>().into_iter();
            self.rest = Some(Box::new(Rest { payload, later }));
        }
        self.unflushed |= plain.send(&mut self.wire, cx)?;
        Ok(())
    }

    /// Sends what was given to the wire, and gives it more of what is under way. `false`: not all of it has left, or the
    /// share is used.
    pub(super) fn flush(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        share: &mut Share,
    ) -> Result<bool, ()> {
        let Scratch { heard, plain, .. } = scratch;
        loop {
            if self.unflushed {
                match self.wire.poll_flush(cx) {
                    Poll::Ready(Ok(())) => self.unflushed = false,
                    Poll::Ready(Err(_)) => return Err(()),
                    Poll::Pending => return Ok(false),
                }
            }
            if self.rest.is_none()
                && let Some(frame) = self.owed.take()
            {
                self.unflushed = true;
                self.wire.send(cx, &frame).map_err(drop)?;
                continue;
            }
            if share.is_written() || (self.rest.is_some() && !self.place.has_come()) {
                self.wait_in_line(cx, Wants::Writing);
                return Ok(false);
            }
            let Some(mut rest) = self.rest.take() else { return Ok(true) };
            let payload = std::mem::take(&mut rest.payload);
            rest.payload = self.gather(payload, &mut rest.later, heard, plain, share);
            if !rest.payload.is_empty() || rest.later.len() > 0 {
                self.rest = Some(rest);
            }
            self.unflushed |= plain.send(&mut self.wire, cx)?;
        }
    }

    /// Gathers what is left of one message, and what follows it, up to the share. What is left of the last message.
    fn gather(
        &mut self,
        mut payload: Bytes,
        later: &mut impl Iterator<Item = Outgoing>,
        heard: &mut Heard,
        plain: &mut Plain,
        share: &mut Share,
    ) -> Bytes {
        loop {
            let now = payload.get(..share.to_write).unwrap_or(&payload);
            plain.payload(now);
            share.to_write -= now.len();
            payload.advance(now.len());
            if share.is_written() {
                return payload;
            }
            let Some(outgoing) = later.next() else { return payload };
            let message = match outgoing {
                Outgoing::Message(message) => message,
                Outgoing::Shared(shared) if self.encoding.is_verbatim() => {
                    let length = shared.len();
                    let (head, rest) = shared.into_pieces();
                    plain.header(Carries::Binary, length);
                    plain.payload(head.as_ref());
                    payload = rest;
                    continue;
                }
                Outgoing::Shared(shared) => shared.to_bytes(),
                Outgoing::Ping => {
                    plain.header(Carries::Ping, 0);
                    continue;
                }
                Outgoing::Close { code, reason } => {
                    self.start_close(Some(code), reason);
                    later.for_each(drop);
                    return payload;
                }
            };
            match self.encoding.outbound(message, self.max_message) {
                Ok((carries, whole)) => {
                    plain.header(carries, whole.len());
                    payload = whole;
                }
                Err(undeliverable) => heard.inbox.push_back(undeliverable),
            }
        }
    }
}

#[cfg(test)]
#[path = "writing_tests.rs"]
mod tests;
