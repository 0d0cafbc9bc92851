//! One task for each WebSocket: reads what is there, gives it to the core, writes what the core has for it.
//!
//! Written as one `poll` and not as a `select!` over halves: an idle connection is this struct and nothing
//! else, and under load everything readable is read before one flush. All memory that a poll needs is the
//! thread's and not the connection's.

mod closing;
mod edge;
mod scratch;
mod share;
mod turns;
mod writing;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use agent_reach_core::ConnectionId;
use tokio::time::Sleep;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

pub use edge::{Edge, Encoding};
pub use turns::Turns;

use crate::driver::{Driver, Inbound, Turn};
use crate::transport::line::{Place, Wants, line_up};
use crate::transport::listener::Room;
use crate::transport::wire::Wire;
use crate::websocket::{Fault, Message, Reader};
use scratch::{Heard, Scratch};
use share::Share;
use writing::Rest;

/// How long a peer has to answer our close.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// How long a slow peer has to take what is in the way of its GOODBYE. The session is over by then, and all
/// that is held is what its socket did not take of one batch.
const LAST_TAKE_WAIT: Duration = Duration::from_secs(15);

/// What one connection does with the end of its life before it.
enum Stage {
    /// Messages go both ways.
    Open,
    /// The session is over, and the peer does not take what is in the way of its GOODBYE: it gets a bounded
    /// time, and then the socket is dropped.
    Doomed(Pin<Box<Sleep>>),
    /// A close was sent. What still comes is thrown away; the time for that is bounded.
    Closing(Pin<Box<Sleep>>, usize),
}

/// What of a connection has ended before all of it has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readable {
    /// Messages can be read.
    Yes,
    /// Bytes can be read and are no messages any more.
    Broken,
    /// The same, and the peer was told that nothing follows our close.
    Deaf,
    /// The peer has closed, or its socket is gone.
    Ended,
}

/// One WebSocket of a hub; of something else where `T` and `E` say so, which is what conformance tests do.
pub struct Connection<W, T: Turns = Driver, E = Encoding> {
    wire: W,
    reader: Reader,
    driver: Arc<T>,
    id: ConnectionId,
    encoding: E,
    max_message: usize,
    stage: Stage,
    readable: Readable,
    /// What was given to the wire has not all left.
    unflushed: bool,
    /// What has not been given to it, and goes before everything else. Apart, since most connections have none.
    rest: Option<Box<Rest>>,
    /// The frame that waits until all this has left. A pong: the answer to the latest ping, which stands for those
    /// before (RFC 6455, 5.5.3), so that a peer that pings and does not read costs one pong. Or the close.
    owed: Option<Box<[u8]>>,
    /// Nothing is read, and no rest written, before this has come.
    place: Place,
    /// Its place among all connections, held for as long as it lives.
    room: Option<Room>,
}

impl<W, T: Turns, E> Drop for Connection<W, T, E> {
    fn drop(&mut self) {
        self.driver.close(self.id);
    }
}

impl<W: Wire, T: Turns, E: Edge> Connection<W, T, E> {
    /// A connection that `driver` knows as `id`.
    pub fn new(wire: W, driver: Arc<T>, id: ConnectionId, encoding: E, max_message: usize) -> Self {
        Self {
            wire,
            reader: Reader::new(max_message),
            driver,
            id,
            encoding,
            max_message,
            stage: Stage::Open,
            readable: Readable::Yes,
            unflushed: false,
            rest: None,
            owed: None,
            place: Place::default(),
            room: None,
        }
    }

    /// The same, that holds this place for as long as it lives.
    #[must_use]
    pub fn in_place_of(mut self, room: Room) -> Self {
        self.room = Some(room);
        self
    }

    /// Reads once. The number of bytes; `None` when nothing was there.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        heard: &mut Heard,
        share: &mut Share,
    ) -> Result<Option<usize>, ()> {
        let Self { wire, reader, encoding, .. } = self;
        let mut fault = None;
        let mut closed = None;
        let read = wire.poll_read(cx, share.most, &mut |bytes| {
            // Nothing counts behind a close, or behind what is broken.
            let mut message = |message: Message| match message {
                _ if closed.is_some() => {}
                Message::Close(frame) => closed = Some(frame),
                Message::Ping(payload) => heard.ping(&payload),
                Message::Pong => heard.alive(),
                Message::Text(text) => heard.inbox.push_back(encoding.text(&text)),
                Message::Binary(bytes) => heard.inbox.push_back(encoding.binary(bytes)),
            };
            if fault.is_none() {
                match reader.read_some(bytes, &mut share.frames, &mut message) {
                    Ok(later) => return bytes.len() - later.len(),
                    Err(broken) => fault = Some(broken),
                }
            }
            bytes.len()
        });
        let bytes = match read {
            Poll::Pending => return Ok(None),
            Poll::Ready(read) => read.unwrap_or(0),
        };
        share.take(bytes);
        if bytes == 0 {
            self.readable = Readable::Ended;
        } else if heard.inbox.is_empty() {
            // Bytes of a message whose rest is still on its way: the peer is alive.
            heard.alive();
        }
        self.answer_pings(cx, heard)?;
        if let Some(frame) = closed {
            self.readable = Readable::Ended;
            heard.inbox.push_back(Inbound::Broken);
            let code = frame.map(|frame| frame.code);
            self.start_close(code, "");
        } else if let Some(fault) = fault {
            self.on_broken(fault, heard);
        }
        Ok(Some(bytes))
    }

    /// The core hears of a broken WebSocket at once, so that nothing is given to this agent while the close is
    /// under way. There is no envelope that a GOODBYE could answer.
    fn on_broken(&mut self, fault: Fault, heard: &mut Heard) {
        self.readable = Readable::Broken;
        match fault {
            Fault::TooLarge => heard.inbox.push_back(Inbound::TooLarge),
            Fault::Utf8 => {
                heard.inbox.push_back(Inbound::Broken);
                self.start_close(Some(CloseCode::Invalid.into()), "text that is not UTF-8");
            }
            Fault::Protocol(reason) => {
                heard.inbox.push_back(Inbound::Broken);
                self.start_close(Some(CloseCode::Protocol.into()), reason);
            }
        }
    }

    /// What may be read and written in this poll: less by one who had to wait for it.
    fn share(&mut self) -> Share {
        if self.place == Place::default() {
            return Share::first();
        }
        if self.place.has_come() {
            self.place = Place::default();
        }
        Share::next()
    }

    /// Lines up, unless it waits already.
    fn wait_in_line(&mut self, cx: &Context<'_>, wants: Wants) {
        if self.place.has_come() {
            self.place = line_up(cx.waker(), wants);
        }
    }

    /// Works until there is nothing to read and nothing to write.
    fn poll_open(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<Result<(), ()>> {
        if let Err(distrust) = self.wire.judge_again() {
            self.driver.distrust(self.id, distrust);
        }
        // Woken: something may wait to be written.
        let mut due = true;
        let mut share = self.share();
        let mut may_read = self.place.has_come();
        loop {
            let mut drained = true;
            if may_read && scratch.heard.inbox.is_empty() && self.readable == Readable::Yes {
                drained = self.read(cx, &mut scratch.heard, &mut share)?.is_none();
                if share.is_read() {
                    let wants = if self.rest.is_some() { Wants::Writing } else { Wants::Reading };
                    self.wait_in_line(cx, wants);
                    may_read = false;
                }
            }
            if drained && !due && scratch.heard.inbox.is_empty() {
                return match self.readable {
                    Readable::Ended => Poll::Ready(Err(())),
                    Readable::Yes | Readable::Broken | Readable::Deaf => Poll::Pending,
                };
            }
            // What came before the socket ended, or before a broken frame, is heard all the same.
            let closing = matches!(self.stage, Stage::Closing(..));
            let sent = if closing { Ok(false) } else { self.flush(cx, scratch, &mut share) };
            let Scratch { heard, batch, .. } = scratch;
            let Turn { over, more } =
                self.driver.turn(self.id, &mut heard.inbox, cx.waker(), batch, sent == Ok(true));
            if closing && heard.inbox.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if over && !closing && !sent? {
                return self.poll_doomed(cx);
            }
            if !closing {
                sent?;
                self.write(cx, scratch, &mut share)?;
                self.flush(cx, scratch, &mut share)?;
                if matches!(self.stage, Stage::Closing(..)) {
                    return Poll::Ready(Ok(()));
                }
            }
            due = more;
        }
    }

    /// Hands in what was read before a write failed: the last words of a peer that leaves.
    fn hand_in(&self, cx: &Context<'_>, scratch: &mut Scratch) {
        let Scratch { heard, batch, .. } = scratch;
        while !heard.inbox.is_empty() {
            self.driver.turn(self.id, &mut heard.inbox, cx.waker(), batch, false);
        }
    }

    fn poll_doomed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        if matches!(self.stage, Stage::Open) {
            self.stage = Stage::Doomed(Box::pin(tokio::time::sleep(LAST_TAKE_WAIT)));
        }
        match &mut self.stage {
            Stage::Doomed(timer) => timer.as_mut().poll(cx).map(|()| Err(())),
            Stage::Open | Stage::Closing(..) => Poll::Pending,
        }
    }
}

impl<W: Wire + Unpin, T: Turns, E: Edge> Future for Connection<W, T, E> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if !matches!(this.stage, Stage::Closing(..)) {
            let done = scratch::lend(|scratch| {
                let done = this.poll_open(cx, scratch);
                if done == Poll::Ready(Err(())) {
                    this.hand_in(cx, scratch);
                }
                done
            });
            match ready!(done) {
                Ok(()) => {}
                Err(()) => return Poll::Ready(()),
            }
        }
        this.poll_closing(cx)
    }
}

#[cfg(test)]
mod tests;
