//! The handshake of a server.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use rustls::Error;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::super::trust::Trust;
use super::super::wire::{Ahead, Unsent, read_into, with_scratch};
use super::{TlsStream, encode};

/// Head of a TLS record.
const RECORD_HEAD: usize = 5;
/// Most bytes of a handshake that may wait for their rest: a flight with a long chain of certificates.
const HANDSHAKE_MAX: usize = 96 * 1024;
/// How long one peer may hold a place among the handshakes.
pub(super) const PLACE_HELD: Duration = Duration::from_secs(2);

/// A place among each of the sets of places.
type Permits<'a> = Vec<SemaphorePermit<'a>>;

/// What one look at what came demands.
enum Step {
    /// More bytes are needed.
    Read,
    /// Something of the handshake is to be sent.
    Encode,
    /// It is to be sent now.
    Transmit,
    /// Plaintext came.
    Heard,
    /// The handshake is done.
    Done,
    /// The peer has left.
    Ended,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Shakes hands as a server.
    ///
    /// A place among each of the `places`, one after the other, is taken when the peer has said what it wants and not before: silence must not
    /// keep others out. What the handshake costs in memory and time is bounded by their number.
    ///
    /// # Errors
    /// When the peer leaves, or what it sends is refused; it is told then.
    pub async fn accept(socket: S, trust: &Arc<Trust>, places: &[&Semaphore]) -> io::Result<Self> {
        let trusted = trust.generation();
        let config = trust.config();
        let tls = UnbufferedServerConnection::new(config).map_err(io::Error::other)?;
        let mut stream = Self {
            socket,
            tls,
            partial: Vec::new(),
            unsent: Unsent::default(),
            ahead: Ahead::default(),
            ended: false,
            trust: Arc::clone(trust),
            trusted,
        };
        stream.shake_hands(places).await?;
        stream.partial.shrink_to_fit();
        Ok(stream)
    }

    async fn shake_hands(&mut self, places: &[&Semaphore]) -> io::Result<()> {
        let mut place: Option<(Permits<'_>, Instant)> = None;
        let mut answered = false;
        let mut flight = Vec::new();
        self.read_handshake().await?;
        loop {
            if place.is_none() && has_record(&self.partial) {
                let mut permits = Permits::new();
                for semaphore in places {
                    permits.push(semaphore.acquire().await.map_err(io::Error::other)?);
                }
                place = Some((permits, Instant::now() + PLACE_HELD));
            }
            match self.step(&mut flight) {
                Ok(Step::Encode | Step::Heard) => {}
                Ok(Step::Transmit) => {
                    answered = true;
                    let bytes = std::mem::take(&mut flight);
                    self.send_handshake(&bytes).await?;
                }
                Ok(Step::Read) => {
                    // A greeting that is not whole holds no place.
                    if !answered {
                        place = None;
                    }
                    match &place {
                        Some((_, until)) => timeout_at(*until, self.read_handshake()).await??,
                        None => self.read_handshake().await?,
                    }
                }
                Ok(Step::Done) => return Ok(()),
                Ok(Step::Ended) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => {
                    self.send_alert(&mut flight).await;
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
        }
    }

    /// Looks once at what came of the handshake.
    fn step(&mut self, flight: &mut Vec<u8>) -> Result<Step, Error> {
        let UnbufferedStatus { discard, state } = self.tls.process_tls_records(&mut self.partial);
        let step = match state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(&mut data, flight);
                Ok(Step::Encode)
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Ok(Step::Transmit)
            }
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    self.ahead.keep(record?.payload);
                }
                Ok(Step::Heard)
            }
            Ok(ConnectionState::BlockedHandshake) => Ok(Step::Read),
            Ok(ConnectionState::WriteTraffic(_)) => Ok(Step::Done),
            // It may have said all that it wanted to with its last words of the handshake.
            Ok(ConnectionState::PeerClosed) => {
                self.ended = true;
                Ok(Step::Heard)
            }
            // Early data is never offered.
            Ok(_) => Ok(Step::Ended),
            Err(error) => Err(error),
        };
        self.partial.drain(..discard.min(self.partial.len()));
        step
    }

    async fn read_handshake(&mut self) -> io::Result<()> {
        if self.partial.len() > HANDSHAKE_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a TLS handshake without an end"));
        }
        let read = poll_fn(|cx| {
            with_scratch(|scratch| {
                let read = ready!(read_into(&mut self.socket, cx, scratch))?;
                self.partial.extend_from_slice(scratch.get(..read).unwrap_or_default());
                Poll::Ready(Ok::<usize, io::Error>(read))
            })
        });
        match read.await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn send_handshake(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut given = false;
        poll_fn(|cx| {
            if !std::mem::replace(&mut given, true) {
                self.unsent.send(&mut self.socket, cx, bytes)?;
            }
            self.unsent.poll_flush(&mut self.socket, cx)
        })
        .await
    }

    /// Tells the peer why, as far as that is possible: the reason for the failure is the one that counts.
    async fn send_alert(&mut self, flight: &mut Vec<u8>) {
        while self.tls.wants_write() && matches!(self.step(flight), Ok(Step::Encode)) {}
        if self.send_handshake(flight).await.is_err() {
            tracing::trace!("the peer of a failed handshake was gone already");
        }
    }
}

/// Whether a whole record has come, or something that is none.
fn has_record(bytes: &[u8]) -> bool {
    match bytes.first_chunk::<RECORD_HEAD>() {
        Some([_, _, _, high, low]) => {
            bytes.len() >= RECORD_HEAD + usize::from(u16::from_be_bytes([*high, *low]))
        }
        None => false,
    }
}
