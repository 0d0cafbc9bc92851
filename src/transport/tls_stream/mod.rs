//! TLS over a socket, on rustls' unbuffered API: records are decrypted and encrypted in memory that all
//! connections of a thread share.
//!
//! rustls' buffered connections keep 4 KiB of read buffer each for as long as they live, and a stream over them
//! a copy of what it reads (ADR 0004). Here an idle connection is rustls' own state and nothing else.

mod handshake;

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::trust::{Distrust, Trust};
use super::wire::{Ahead, Unsent, Wire, read_into, with_scratch};

/// Most plaintext that is encrypted in one go: two records.
const ENCRYPT_MAX: usize = 32 * 1024;
/// What a batch of records is gathered in before it is written: room for two such goes with what TLS adds.
const CIPHER_SCRATCH: usize = 2 * ENCRYPT_MAX + 16 * 1024;
/// Most bytes that may wait for their rest when the handshake is done: one record, and what is there of a message
/// about keys. rustls finds its place in a message that came in part only when it is given that part again.
const PARTIAL_MAX: usize = 32 * 1024;

/// Records on their way out; all connections of a thread use it in turn.
struct Cipher {
    buffer: Box<[u8]>,
    filled: usize,
}

thread_local! {
    static CIPHER: RefCell<Cipher> =
        RefCell::new(Cipher { buffer: vec![0; CIPHER_SCRATCH].into_boxed_slice(), filled: 0 });
}

/// One end of a TLS connection whose handshake is done.
pub struct TlsStream<S> {
    socket: S,
    tls: UnbufferedServerConnection,
    /// The beginning of a record whose rest has not come.
    partial: Vec<u8>,
    /// Records that the socket has not taken.
    unsent: Unsent,
    /// Plaintext that came with the handshake, was put back, or was not used.
    ahead: Ahead,
    /// The peer said that it sends no more.
    ended: bool,
    trust: Arc<Trust>,
    /// The generation of it that the peer was let in by, or judged by since.
    trusted: u32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// The same stream over the socket that `map` makes of this one's.
    ///
    /// # Errors
    /// Those of `map`.
    pub fn map_socket<T>(self, map: impl FnOnce(S) -> io::Result<T>) -> io::Result<TlsStream<T>> {
        let Self { socket, tls, partial, unsent, ahead, ended, trust, trusted } = self;
        Ok(TlsStream { socket: map(socket)?, tls, partial, unsent, ahead, ended, trust, trusted })
    }

    /// The certificates that the peer proved, its own first.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.tls.peer_certificates()
    }

    /// Decrypts the records in `buffer` and lends their plaintext. Gives the number of bytes that were used.
    fn decrypt(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        heard: &mut dyn FnMut(&[u8]) -> usize,
    ) -> io::Result<usize> {
        let mut used = 0;
        let mut answer = Vec::new();
        loop {
            let rest = buffer.get_mut(used..).unwrap_or_default();
            let UnbufferedStatus { discard, state } = self.tls.process_tls_records(rest);
            let more = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        self.ahead.lend(record.map_err(io::Error::other)?.payload, heard);
                    }
                    true
                }
                // A key update of the peer's is answered by one of ours.
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut data, &mut answer);
                    true
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    true
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.ended = true;
                    false
                }
                Ok(_) => false,
                Err(error) => {
                    self.answer_fault(cx, buffer.get_mut(used + discard..).unwrap_or_default());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            };
            used += discard;
            if !more {
                break;
            }
        }
        if !answer.is_empty() {
            self.unsent.send(&mut self.socket, cx, &answer)?;
        }
        Ok(used)
    }

    /// Sends the alert that rustls has for a broken record, as far as the socket takes it at once.
    fn answer_fault(&mut self, cx: &mut Context<'_>, rest: &mut [u8]) {
        let mut alert = Vec::new();
        while self.tls.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(mut data)) = self.tls.process_tls_records(rest).state
        {
            encode(&mut data, &mut alert);
        }
        if self.unsent.send(&mut self.socket, cx, &alert).is_err() {
            tracing::trace!("the peer of a broken TLS record was gone already");
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire for TlsStream<S> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        heard: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        if let Some(used) = self.ahead.lend_kept(most, heard) {
            return Poll::Ready(Ok(used));
        }
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        with_scratch(|scratch| {
            let kept = self.partial.len();
            if kept > PARTIAL_MAX {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "endless TLS records")));
            }
            if let Some(start) = scratch.get_mut(..kept) {
                start.copy_from_slice(&self.partial);
            }
            let end = scratch.len().min(kept.saturating_add(most));
            let room = scratch.get_mut(kept..end).unwrap_or_default();
            let read = ready!(read_into(&mut self.socket, cx, room))?;
            if read == 0 {
                return Poll::Ready(Ok(0));
            }
            let filled = scratch.get_mut(..kept + read).unwrap_or_default();
            let used = self.decrypt(cx, filled, heard)?;
            let rest = filled.get(used..).unwrap_or_default();
            if self.partial.is_empty() || rest.is_empty() {
                self.partial = rest.to_vec();
            } else {
                self.partial.clear();
                self.partial.extend_from_slice(rest);
            }
            Poll::Ready(Ok(read))
        })
    }

    fn send(&mut self, cx: &mut Context<'_>, plain: &[u8]) -> io::Result<()> {
        CIPHER.with_borrow_mut(|cipher| {
            cipher.filled = 0;
            for piece in plain.chunks(ENCRYPT_MAX) {
                if cipher.filled > ENCRYPT_MAX + 8 * 1024 {
                    self.unsent.send(&mut self.socket, cx, cipher.take())?;
                }
                encrypt(&mut self.tls, &mut self.partial, piece, cipher)?;
            }
            self.unsent.send(&mut self.socket, cx, cipher.take())
        })
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unsent.poll_flush(&mut self.socket, cx)
    }

    fn end(&mut self, cx: &mut Context<'_>) {
        let mut alert = Vec::new();
        if let UnbufferedStatus { state: Ok(ConnectionState::WriteTraffic(mut writer)), .. } =
            self.tls.process_tls_records(&mut self.partial)
        {
            append(&mut alert, |room| match writer.queue_close_notify(room) {
                Ok(written) => Ok(written),
                Err(EncryptError::InsufficientSize(size)) => Err(Some(size)),
                Err(EncryptError::EncryptExhausted) => Err(None),
            });
        }
        match self.unsent.send(&mut self.socket, cx, &alert) {
            Ok(()) => self.unsent.end(&mut self.socket, cx),
            Err(_) => tracing::trace!("the peer was gone before the end of the TLS stream"),
        }
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        with_scratch(|scratch| read_into(&mut self.socket, cx, scratch))
    }

    fn put_back(&mut self, plain: &[u8]) {
        self.ahead.keep(plain);
    }

    fn judge_again(&mut self) -> Result<(), Distrust> {
        let generation = self.trust.generation();
        if generation == self.trusted {
            return Ok(());
        }
        self.trusted = generation;
        self.trust.judge(self.tls.peer_certificates())
    }
}

impl Cipher {
    /// What was gathered; the next begins anew.
    fn take(&mut self) -> &[u8] {
        let filled = std::mem::take(&mut self.filled);
        self.buffer.get(..filled).unwrap_or_default()
    }
}

/// Appends records with `plain` in them to `cipher`.
fn encrypt(
    tls: &mut UnbufferedServerConnection,
    partial: &mut [u8],
    plain: &[u8],
    cipher: &mut Cipher,
) -> io::Result<()> {
    match tls.process_tls_records(partial).state {
        Ok(ConnectionState::WriteTraffic(mut writer)) => {
            let room = cipher.buffer.get_mut(cipher.filled..).unwrap_or_default();
            cipher.filled += writer.encrypt(plain, room).map_err(io::Error::other)?;
            Ok(())
        }
        Ok(_) => Err(io::ErrorKind::BrokenPipe.into()),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

fn encode<Data>(data: &mut EncodeTlsData<'_, Data>, to: &mut Vec<u8>) {
    append(to, |room| match data.encode(room) {
        Ok(written) => Ok(written),
        Err(EncodeError::InsufficientSize(size)) => Err(Some(size)),
        Err(EncodeError::AlreadyEncoded) => Err(None),
    });
}

/// Appends what `write` writes, with as much room as it says that it needs.
fn append(
    to: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<InsufficientSizeError>>,
) {
    let start = to.len();
    loop {
        match write(to.get_mut(start..).unwrap_or_default()) {
            Ok(written) => return to.truncate(start + written),
            Err(Some(size)) => to.resize(start + size.required_size, 0),
            Err(None) => return to.truncate(start),
        }
    }
}

#[cfg(test)]
mod tests;
