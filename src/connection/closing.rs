//! The end of a connection: our close has been sent, and the peer's is awaited.

use std::future::Future;
use std::task::{Context, Poll, ready};

use super::share::Share;
use super::{Connection, Edge, Readable, Stage, Turns, scratch};
use crate::transport::line::Wants;
use crate::transport::wire::Wire;
use crate::websocket::Message;

/// Most bytes that are read and thrown away while a close is under way.
const DISCARD_BYTES: usize = 8 << 20;

impl<W: Wire, T: Turns, E: Edge> Connection<W, T, E> {
    /// Takes part in the closing handshake: our close leaves, and the peer's is awaited for a bounded time.
    /// The peer's bytes are read and thrown away, so that the kernel does not answer them with a reset that
    /// would take our GOODBYE with it.
    pub(super) fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Stage::Closing(timer, _) = &mut self.stage else { return Poll::Ready(()) };
        if timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut share = self.share();
        match scratch::lend(|scratch| self.flush(cx, scratch, &mut share)) {
            Err(()) => return Poll::Ready(()),
            Ok(true) if self.readable == Readable::Ended => {
                self.wire.end(cx);
                return Poll::Ready(());
            }
            // An answer to our close could not be read, so it is not waited for (RFC 6455, 7.1.7): the peer sees
            // the end of the stream and closes, and until then its bytes are thrown away.
            Ok(true) if self.readable == Readable::Broken => {
                self.wire.end(cx);
                self.readable = Readable::Deaf;
            }
            Ok(_) => {}
        }
        if !self.place.has_come() {
            return Poll::Pending;
        }
        loop {
            if share.is_read() {
                self.wait_in_line(cx, Wants::Reading);
                return Poll::Pending;
            }
            let Ok(read @ 1..) = ready!(self.discard(cx, &mut share)) else { return Poll::Ready(()) };
            if self.readable == Readable::Ended {
                self.wire.end(cx);
                return Poll::Ready(());
            }
            let Stage::Closing(_, discarded) = &mut self.stage else { return Poll::Ready(()) };
            *discarded += read;
            if *discarded > DISCARD_BYTES {
                return Poll::Ready(());
            }
        }
    }

    /// Reads once, for nothing but the peer's close.
    fn discard(&mut self, cx: &mut Context<'_>, share: &mut Share) -> Poll<std::io::Result<usize>> {
        let Self { wire, reader, readable, .. } = self;
        if matches!(readable, Readable::Broken | Readable::Deaf) {
            return wire.poll_discard(cx).map_ok(|read| share.take(read));
        }
        let read = ready!(wire.poll_read(cx, share.most, &mut |bytes| {
            if *readable != Readable::Yes {
                return bytes.len();
            }
            let mut closed = false;
            let mut message = |message| closed |= matches!(message, Message::Close(_));
            match reader.read_some(bytes, &mut share.frames, &mut message) {
                _ if closed => *readable = Readable::Ended,
                Err(_) => *readable = Readable::Broken,
                Ok(later) => return bytes.len() - later.len(),
            }
            bytes.len()
        }));
        Poll::Ready(read.map(|read| share.take(read)))
    }
}
