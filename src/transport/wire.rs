//! Plaintext both ways, in memory that is borrowed for a moment: what a connection is built on.
//!
//! With `AsyncRead` each connection brings its own buffer. Here the stream lends what it has read to the
//! reader, so that one buffer does for all connections of a thread and an idle one holds none.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::trust::Distrust;
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Size of the memory that a thread reads into: about the most that is read before the core is entered.
pub const READ_SCRATCH: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_SCRATCH].into_boxed_slice());
}

/// Lends this thread's read buffer. A borrow within a borrow gets a buffer of its own.
pub fn with_scratch<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => work(&mut scratch),
        Err(_) => work(&mut vec![0; READ_SCRATCH]),
    })
}

/// One end of a byte stream.
pub trait Wire {
    /// Reads once, about `most` bytes, and lends what was read, in order, to `heard`, which says how much of it was
    /// used, at least a byte: the next read begins with the others. Gives the number of bytes that came off the
    /// socket, which may hold no plaintext yet, or were used of earlier ones. 0 is the end of the stream.
    ///
    /// # Errors
    /// When the socket fails or what came cannot be trusted.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        heard: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>>;

    /// Takes all of `plain`, sends what the socket takes at once, and keeps the rest for [`Wire::poll_flush`].
    /// The caller bounds what is kept by not sending more before that is done.
    ///
    /// # Errors
    /// When the socket fails.
    fn send(&mut self, cx: &mut Context<'_>, plain: &[u8]) -> io::Result<()>;

    /// Sends what was kept. Ready when nothing is left of it.
    ///
    /// # Errors
    /// When the socket fails.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Says that nothing more will be sent, as far as the socket takes that at once. Reading goes on.
    fn end(&mut self, cx: &mut Context<'_>);

    /// Reads once and throws away what came, broken or not. The number of bytes; 0 is the end.
    ///
    /// # Errors
    /// When the socket fails.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Puts plaintext back: the next read gives it first. For what came behind the head of an HTTP request.
    fn put_back(&mut self, plain: &[u8]);

    /// Judges the peer again, if who is trusted has changed since the last time. Costs next to nothing if not.
    ///
    /// # Errors
    /// When the peer is trusted no more.
    fn judge_again(&mut self) -> Result<(), Distrust> {
        Ok(())
    }
}

/// Reads once and appends to `to`.
///
/// # Errors
/// When the socket fails, or at the end of the stream.
pub async fn read_more(wire: &mut impl Wire, to: &mut Vec<u8>) -> io::Result<()> {
    let mut heard = |plain: &[u8]| {
        to.extend_from_slice(plain);
        plain.len()
    };
    match poll_fn(|cx| wire.poll_read(cx, READ_SCRATCH, &mut heard)).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Sends and waits until all has left.
///
/// # Errors
/// When the socket fails.
pub async fn send_all(wire: &mut impl Wire, plain: &[u8]) -> io::Result<()> {
    let mut sent = false;
    poll_fn(|cx| {
        if !std::mem::replace(&mut sent, true) {
            wire.send(cx, plain)?;
        }
        wire.poll_flush(cx)
    })
    .await
}

/// What is still to be written to a socket. Holds no memory when that is nothing.
#[derive(Debug, Default)]
pub(super) struct Unsent(Vec<u8>);

impl Unsent {
    /// Writes as much of `bytes` as the socket takes, behind what is here already, and keeps the rest.
    pub(super) fn send<S: AsyncWrite + Unpin>(
        &mut self,
        socket: &mut S,
        cx: &mut Context<'_>,
        mut bytes: &[u8],
    ) -> io::Result<()> {
        while self.0.is_empty() && !bytes.is_empty() {
            match Pin::new(&mut *socket).poll_write(cx, bytes) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => bytes = bytes.get(written..).unwrap_or_default(),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn poll_flush<S: AsyncWrite + Unpin>(
        &mut self,
        socket: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut done = 0;
        let outcome = loop {
            let rest = self.0.get(done..).unwrap_or_default();
            if rest.is_empty() {
                self.0 = Vec::new();
                return Poll::Ready(Ok(()));
            }
            match Pin::new(&mut *socket).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => done += written,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.0.drain(..done);
        outcome
    }

    /// Ends the stream towards the peer, unless something is still to be written: its socket is dropped later then.
    pub(super) fn end<S: AsyncWrite + Unpin>(&self, socket: &mut S, cx: &mut Context<'_>) {
        if self.0.is_empty()
            && let Poll::Ready(Err(error)) = Pin::new(socket).poll_shutdown(cx)
        {
            tracing::trace!(%error, "the peer was gone before the end of the stream");
        }
    }
}

/// Plaintext that was read and not used. Holds no memory when that is none.
#[derive(Debug, Default)]
pub(super) struct Ahead(BytesMut);

impl Ahead {
    /// Puts more behind it.
    pub(super) fn keep(&mut self, plain: &[u8]) {
        self.0.extend_from_slice(plain);
    }

    /// Lends what was read, unless something is before it, and keeps what was not used.
    pub(super) fn lend(&mut self, plain: &[u8], heard: &mut dyn FnMut(&[u8]) -> usize) {
        let used = if self.0.is_empty() { heard(plain) } else { 0 };
        self.keep(plain.get(used..).unwrap_or_default());
    }

    /// Lends what was kept, where there is such. The number of bytes that were used.
    pub(super) fn lend_kept(&mut self, most: usize, heard: &mut dyn FnMut(&[u8]) -> usize) -> Option<usize> {
        let kept = self.0.get(..self.0.len().min(most)).filter(|kept| !kept.is_empty())?;
        let used = heard(kept).min(kept.len());
        self.0.advance(used);
        if self.0.is_empty() {
            self.0 = BytesMut::new();
        }
        Some(used)
    }
}

/// A stream without TLS: for tests, and for what a proxy has decrypted already.
#[derive(Debug)]
pub struct Plain<S> {
    socket: S,
    unsent: Unsent,
    ahead: Ahead,
}

impl<S> Plain<S> {
    /// Over a stream of bytes.
    pub fn new(socket: S) -> Self {
        Self { socket, unsent: Unsent::default(), ahead: Ahead::default() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire for Plain<S> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        heard: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        if let Some(used) = self.ahead.lend_kept(most, heard) {
            return Poll::Ready(Ok(used));
        }
        with_scratch(|scratch| {
            let room = scratch.len().min(most);
            let read = ready!(read_into(&mut self.socket, cx, scratch.get_mut(..room).unwrap_or_default()))?;
            self.ahead.lend(scratch.get(..read).unwrap_or_default(), heard);
            Poll::Ready(Ok(read))
        })
    }

    fn send(&mut self, cx: &mut Context<'_>, plain: &[u8]) -> io::Result<()> {
        self.unsent.send(&mut self.socket, cx, plain)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unsent.poll_flush(&mut self.socket, cx)
    }

    fn end(&mut self, cx: &mut Context<'_>) {
        self.unsent.end(&mut self.socket, cx);
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        with_scratch(|scratch| read_into(&mut self.socket, cx, scratch))
    }

    fn put_back(&mut self, plain: &[u8]) {
        self.ahead.keep(plain);
    }
}

/// Reads once into `buffer`; 0 is the end.
pub(super) fn read_into<S: AsyncRead + Unpin>(
    socket: &mut S,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(buffer);
    ready!(Pin::new(socket).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}
