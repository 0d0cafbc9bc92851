//! The agent listener: accepts sockets, makes each a TLS stream, a WebSocket and a connection of the hub.
//!
//! What a peer can hold before it is known is bounded three times: connections in all, handshakes under way,
//! and the time of each. A peer that connects and says nothing holds no place among the handshakes.

use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_reach_core::Peer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::connection::{Connection, Encoding};
use crate::driver::Driver;
use crate::transport::addresses::{AddressLimits, Addresses, Places};
use crate::transport::identity::{IdentityError, Principal, principal};
use crate::transport::sockets::Sockets;
use crate::transport::tls_stream::TlsStream;
use crate::transport::trust::Trust;
use crate::transport::upgrade::upgrade;

/// How long accepting pauses when the system has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How many sockets may be on their way to a WebSocket, for each place among the handshakes.
const LOBBY_FACTOR: usize = 64;

/// Bounds of the listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most open connections.
    pub connections: usize,
    /// Most handshakes under way.
    pub handshakes: usize,
    /// From the accepted socket to the WebSocket.
    pub handshake: Duration,
    /// Largest WebSocket message, in bytes.
    pub max_message: usize,
    /// Most connections of one address; `None`: no other bound than that of all.
    pub connections_each: Option<usize>,
    /// Most handshakes of one address.
    pub handshakes_each: usize,
}

/// How an accepted socket ended, or did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It became a WebSocket.
    Open,
    /// There was no room for it.
    Full,
    /// The certificate was missing or no good.
    Certificate,
    /// It was no TLS, or no upgrade of ours.
    NoWebSocket,
    /// It took too long.
    TooSlow,
}

/// Hears of every accepted socket.
pub trait Gatekeeper: Send + Sync + 'static {
    /// A socket became a connection, or did not; with the time of its handshake.
    fn accepted(&self, outcome: Accepted, took: Duration);
    /// A TLS handshake failed: by the certificate, or otherwise.
    fn tls_failed(&self, error: &std::io::Error) -> Accepted;
    /// A certificate named nobody.
    fn unidentified(&self, error: &IdentityError);
}

/// The listener of agents.
pub struct Listener<T> {
    /// Where sockets come from, and where connections live.
    pub sockets: T,
    /// How they become TLS streams, and who may.
    pub trust: Arc<Trust>,
    /// The hub.
    pub driver: Arc<Driver>,
    /// Bounds.
    pub limits: Limits,
    /// Who hears of it.
    pub gatekeeper: Arc<dyn Gatekeeper>,
}

impl<T: Sockets> Listener<T> {
    /// Accepts until the task is dropped.
    pub async fn run(self) {
        let room = Arc::new(Semaphore::new(self.limits.connections));
        let lobby = Arc::new(Semaphore::new(self.limits.handshakes.saturating_mul(LOBBY_FACTOR)));
        let mut addresses = Addresses::new(AddressLimits {
            connections: self.limits.connections_each,
            handshakes: self.limits.handshakes_each,
            lobby: self.limits.handshakes_each.saturating_mul(LOBBY_FACTOR),
        });
        let shared = Arc::new(Shared {
            sockets: self.sockets,
            trust: self.trust,
            driver: self.driver,
            limits: self.limits,
            gatekeeper: self.gatekeeper,
            handshakes: Semaphore::new(self.limits.handshakes),
        });
        loop {
            let (socket, address) = match shared.sockets.accept().await {
                Ok(accepted) => accepted,
                // The peer was gone before it was accepted: nothing is wrong here.
                Err(error) if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) => {
                    continue;
                }
                Err(error) => {
                    // Out of descriptors, most likely: trying again at once would only burn the processor.
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let places = addresses.of(address);
            let permits = [Some(&lobby), Some(&places.lobby), Some(&room), places.connections.as_ref()];
            let permits = permits.map(|semaphore| semaphore.map(|own| Arc::clone(own).try_acquire_owned()));
            let [Some(Ok(lobby)), Some(Ok(own_lobby)), Some(Ok(room)), own] = permits else {
                shared.gatekeeper.accepted(Accepted::Full, Duration::ZERO);
                continue;
            };
            let Ok(own) = own.transpose() else {
                shared.gatekeeper.accepted(Accepted::Full, Duration::ZERO);
                continue;
            };
            let own = own.map(|own| (own, Arc::clone(&places)));
            let waiting = Waiting { _lobby: [lobby, own_lobby], places };
            tokio::spawn(admit(Arc::clone(&shared), socket, waiting, Room { _all: room, _own: own }));
        }
    }
}

struct Shared<T> {
    sockets: T,
    trust: Arc<Trust>,
    driver: Arc<Driver>,
    limits: Limits,
    gatekeeper: Arc<dyn Gatekeeper>,
    handshakes: Semaphore,
}

/// What a socket holds on its way to a WebSocket.
struct Waiting {
    _lobby: [OwnedSemaphorePermit; 2],
    places: Arc<Places>,
}

/// What a connection holds for as long as it lives: its place among all, and among those of its address.
#[derive(Debug)]
pub struct Room {
    _all: OwnedSemaphorePermit,
    /// Where there is a bound for each address. The places live for as long as somebody holds them.
    _own: Option<(OwnedSemaphorePermit, Arc<Places>)>,
}

impl Room {
    /// A place among all alone.
    pub(crate) const fn of(place: OwnedSemaphorePermit) -> Self {
        Self { _all: place, _own: None }
    }
}

/// From an accepted socket to a connection that lives by itself.
async fn admit<T: Sockets>(shared: Arc<Shared<T>>, socket: T::Socket, waiting: Waiting, room: Room) {
    let started = Instant::now();
    let handshake = shake_hands(&shared, socket, &waiting.places.handshakes);
    let shaken = tokio::time::timeout(shared.limits.handshake, handshake).await;
    let (outcome, opened) = match shaken {
        Ok(Ok(opened)) => (Accepted::Open, Some(opened)),
        Ok(Err(outcome)) => (outcome, None),
        Err(_) => (Accepted::TooSlow, None),
    };
    shared.gatekeeper.accepted(outcome, started.elapsed());
    let Some((stream, encoding)) = opened else { return };
    let settled = shared.sockets.settle(stream, |stream| register(&shared, stream, encoding, room));
    if let Err(error) = settled {
        debug!(%error, "a socket was gone as soon as it was a WebSocket");
    }
}

async fn shake_hands<T: Sockets>(
    shared: &Shared<T>,
    socket: T::Socket,
    own: &Semaphore,
) -> Result<(TlsStream<T::Socket>, Encoding), Accepted> {
    // That of the address first: who waits for it keeps nobody else out.
    let places = [own, &shared.handshakes];
    let mut stream = match TlsStream::accept(socket, &shared.trust, &places).await {
        Ok(stream) => stream,
        Err(error) if error.kind() == TimedOut => return Err(Accepted::TooSlow),
        Err(error) => {
            debug!(%error, "TLS handshake failed");
            return Err(shared.gatekeeper.tls_failed(&error));
        }
    };
    match upgrade(&mut stream).await {
        Ok(encoding) => Ok((stream, encoding)),
        Err(error) => {
            debug!(%error, "upgrade refused");
            Err(Accepted::NoWebSocket)
        }
    }
}

/// Makes the hub know a WebSocket, by what its certificate says.
fn register<T: Sockets>(
    shared: &Shared<T>,
    stream: TlsStream<T::Socket>,
    encoding: Encoding,
    room: Room,
) -> Connection<TlsStream<T::Socket>> {
    let leaf = stream.peer_certificates().and_then(<[_]>::first);
    let proven = match leaf {
        Some(leaf) => principal(leaf),
        None => principal(&[]),
    };
    let (peer, valid_for) = match &proven {
        Ok(principal) => {
            let peer =
                Peer { identity: principal.identity.as_str().into(), name: principal.name.as_str().into() };
            (peer, valid_for(principal))
        }
        Err(_) => (Peer { identity: "".into(), name: "".into() }, None),
    };
    let id = shared.driver.connect(peer, valid_for);
    if let Err(error) = proven {
        shared.gatekeeper.unidentified(&error);
        shared.driver.unidentified(id, error.to_string());
    }
    let driver = Arc::clone(&shared.driver);
    Connection::new(stream, driver, id, encoding, shared.limits.max_message).in_place_of(room)
}

/// How long the certificate is still good. From here on the monotonic clock counts: a step of the wall clock
/// ends no session early.
fn valid_for(principal: &Principal) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let not_after = Duration::from_secs(u64::try_from(principal.not_after).unwrap_or_default());
    Some(not_after.saturating_sub(now))
}
