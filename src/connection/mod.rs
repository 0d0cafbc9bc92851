//! One task for each WebSocket: reads what is there, gives it to the core, writes what the core has for it.
//!
//! Written as one `poll` and not as a `select!` over halves: an idle connection is this struct and nothing
//! else, and under load everything readable is read before one flush.

mod counted;
mod edge;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use agent_reach_core::{ConnectionId, Outgoing};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

pub use counted::Counted;
pub use edge::Encoding;

use crate::driver::{BATCH_BYTES, Driver, Inbound};

/// Most messages that are read before the core is entered.
const READ_FRAMES: usize = 32;
/// About the most bytes that are read before the core is entered: they are decoded under its lock.
const READ_BYTES: usize = 256 * 1024;
/// How long a peer has to answer our close.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// How long a slow peer has to take what is in the way of its GOODBYE. The session is over by then, and all
/// that is held is one write buffer.
const LAST_TAKE_WAIT: Duration = Duration::from_secs(15);
/// Most bytes that are read and thrown away while a close is under way.
const DISCARD_BYTES: usize = 8 << 20;

/// Limits of one WebSocket, every one of them explicit: the library's defaults are 128 KiB of read buffer
/// for each connection and no bound on what waits to be written.
#[must_use]
pub fn websocket_config(max_message: usize) -> WebSocketConfig {
    const WRITE_BUFFER: usize = 16 * 1024;
    WebSocketConfig::default()
        .read_buffer_size(1024)
        .write_buffer_size(WRITE_BUFFER)
        // A batch is taken only when the one before has left, so this bound is never met by honest means.
        // As JSON a batch may be six times as long.
        .max_write_buffer_size(WRITE_BUFFER + BATCH_BYTES + 8 * max_message.max(BATCH_BYTES))
        .max_message_size(Some(max_message))
        .max_frame_size(Some(max_message))
        .accept_unmasked_frames(false)
}

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

/// One WebSocket of a hub.
pub struct Connection<S> {
    socket: WebSocketStream<Counted<S>>,
    driver: Arc<Driver>,
    id: ConnectionId,
    encoding: Encoding,
    max_message: usize,
    stage: Stage,
    /// What was given to the socket has not all left.
    unflushed: bool,
    /// The WebSocket below is broken: nothing more can be read from it as messages.
    broken: bool,
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.driver.close(self.id);
    }
}

/// Memory of one poll; all connections of a thread use it in turn.
#[derive(Default)]
struct Scratch {
    inbox: Vec<Inbound>,
    batch: Vec<Outgoing>,
}

thread_local! {
    static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A connection that the core knows as `id`.
    pub fn new(
        socket: WebSocketStream<Counted<S>>,
        driver: Arc<Driver>,
        id: ConnectionId,
        encoding: Encoding,
        max_message: usize,
    ) -> Self {
        Self {
            socket,
            driver,
            id,
            encoding,
            max_message,
            stage: Stage::Open,
            unflushed: false,
            broken: false,
        }
    }

    /// Reads up to a batch. `Err`: the socket is gone.
    fn read(&mut self, cx: &mut Context<'_>, inbox: &mut Vec<Inbound>) -> Result<(), ()> {
        let before = self.socket.get_ref().bytes_read();
        let heard = inbox.len();
        let ended = self.read_messages(cx, inbox);
        if inbox.len() == heard && self.socket.get_ref().bytes_read() != before {
            inbox.push(Inbound::Alive);
        }
        ended
    }

    fn read_messages(&mut self, cx: &mut Context<'_>, inbox: &mut Vec<Inbound>) -> Result<(), ()> {
        let mut bytes = 0;
        while inbox.len() < READ_FRAMES && bytes < READ_BYTES && !self.broken {
            match Pin::new(&mut self.socket).poll_next(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(message))) => {
                    // The library queues the pong, and only a flush sends it.
                    bytes += message.len();
                    self.unflushed |= matches!(message, Message::Ping(_) | Message::Close(_));
                    inbox.extend(self.encoding.inbound(message));
                }
                Poll::Ready(Some(Err(error))) => self.on_broken(&error, inbox)?,
                Poll::Ready(None) => return Err(()),
            }
        }
        Ok(())
    }

    fn on_broken(&mut self, error: &Error, inbox: &mut Vec<Inbound>) -> Result<(), ()> {
        self.broken = true;
        if let Error::Capacity(CapacityError::MessageTooLong { .. }) = error {
            inbox.push(Inbound::TooLarge);
            return Ok(());
        }
        // Broken WebSocket frames: there is no envelope that a GOODBYE could answer. The core hears of it now, so
        // that nothing is given to this agent while the close is under way.
        if let Error::Utf8(_) = error {
            inbox.push(Inbound::Broken);
            return self.start_close(CloseCode::Invalid, "text that is not UTF-8");
        }
        let Error::Protocol(cause) = error else { return Err(()) };
        // A socket that ended without a close is counted among them by the library.
        if matches!(cause, ProtocolError::ResetWithoutClosingHandshake) {
            return Err(());
        }
        inbox.push(Inbound::Broken);
        self.start_close(CloseCode::Protocol, "broken WebSocket frames")
    }

    fn start_close(&mut self, code: CloseCode, reason: &'static str) -> Result<(), ()> {
        if matches!(self.stage, Stage::Closing(..)) {
            return Ok(());
        }
        self.stage = Stage::Closing(Box::pin(tokio::time::sleep(CLOSE_WAIT)), 0);
        self.unflushed = true;
        let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
        Pin::new(&mut self.socket).start_send(close).map_err(drop)
    }

    /// Gives a batch to the socket. What cannot be turned into the peer's encoding comes back as input.
    fn write(&mut self, batch: &mut Vec<Outgoing>, inbox: &mut Vec<Inbound>) -> Result<(), ()> {
        for outgoing in batch.drain(..) {
            let message = match outgoing {
                Outgoing::Message(message) => match self.encoding.outbound(message, self.max_message) {
                    Ok(message) => message,
                    Err(undeliverable) => {
                        inbox.push(undeliverable);
                        continue;
                    }
                },
                Outgoing::Ping => Message::Ping(bytes::Bytes::new()),
                // Nothing follows it.
                Outgoing::Close { code, reason } => return self.start_close(CloseCode::from(code), reason),
            };
            Pin::new(&mut self.socket).start_send(message).map_err(drop)?;
            self.unflushed = true;
        }
        Ok(())
    }

    /// Sends what was given to the socket. `false`: not all of it has left.
    fn flush(&mut self, cx: &mut Context<'_>) -> Result<bool, ()> {
        if !self.unflushed {
            return Ok(true);
        }
        match Pin::new(&mut self.socket).poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                self.unflushed = false;
                Ok(true)
            }
            Poll::Ready(Err(_)) => Err(()),
            Poll::Pending => Ok(false),
        }
    }

    /// Works until there is nothing to read and nothing to write.
    fn poll_open(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<Result<(), ()>> {
        let Scratch { inbox, batch } = scratch;
        loop {
            let read = self.read(cx, inbox);
            let heard = inbox.len();
            // What came before the socket ended, or before a broken frame, is heard all the same.
            let closing = matches!(self.stage, Stage::Closing(..));
            let sent = if closing { Ok(false) } else { self.flush(cx) };
            let over = self.driver.turn(self.id, inbox, cx.waker(), batch, sent == Ok(true));
            if closing {
                return Poll::Ready(Ok(()));
            }
            if over && !sent? {
                return self.poll_doomed(cx);
            }
            sent?;
            let wrote = batch.len();
            self.write(batch, inbox)?;
            self.flush(cx)?;
            if read.is_err() {
                return Poll::Ready(Err(()));
            }
            if matches!(self.stage, Stage::Closing(..)) {
                return Poll::Ready(Ok(()));
            }
            // What could not be delivered is input of the next round.
            if heard == 0 && wrote == 0 && inbox.is_empty() {
                return Poll::Pending;
            }
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

    /// Takes part in the closing handshake: our close leaves, and the peer's is awaited for a bounded time.
    /// The peer's bytes are read and thrown away, so that the kernel does not answer them with a reset that
    /// would take our GOODBYE with it.
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.flush(cx).is_err() {
            return Poll::Ready(());
        }
        let Stage::Closing(timer, discarded) = &mut self.stage else { return Poll::Ready(()) };
        if timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        while !self.broken {
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(_)) => {}
                Some(Err(Error::Capacity(_) | Error::Protocol(_) | Error::Utf8(_))) => self.broken = true,
                Some(Err(_)) | None => return Poll::Ready(()),
            }
        }
        let mut space = [0_u8; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut space);
            match ready!(Pin::new(self.socket.get_mut()).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => *discarded += buffer.filled().len(),
                _ => return Poll::Ready(()),
            }
            if *discarded > DISCARD_BYTES {
                return Poll::Ready(());
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Connection<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if !matches!(this.stage, Stage::Closing(..)) {
            let done = SCRATCH.with_borrow_mut(|scratch| {
                let done = this.poll_open(cx, scratch);
                scratch.inbox.clear();
                scratch.batch.clear();
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
