//! What a supervisor such as systemd and the hub tell each other: sockets that it opened, and how the hub is.
//!
//! Nothing of it is needed: without `LISTEN_FDS` the hub opens its own sockets, without `NOTIFY_SOCKET` it tells nobody.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use listenfd::ListenFd;
use tokio::time::MissedTickBehavior;

/// The listeners that sockets may be passed for, as `LISTEN_FDNAMES` calls them.
const LISTENERS: [&str; 3] = ["agents", "http", "metrics"];

/// Sockets that were passed to this process, each for one listener.
#[derive(Debug, Default)]
pub struct Sockets(Vec<(&'static str, TcpListener)>);

impl Sockets {
    /// Takes over what `LISTEN_FDS` counts and `LISTEN_FDNAMES` names. To be asked once, before there are other threads:
    /// the count is taken out of the environment, so that no child mistakes the sockets for its own.
    ///
    /// # Errors
    /// When a socket has the name of no listener or the same one as another, or is no socket of TCP. Whoever
    /// wrote the unit meant something by it, and a hub that ignores it would leave peers waiting there for ever.
    pub fn inherited() -> Result<Self, SocketError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut passed = ListenFd::from_env();
        let mut names = names.split(':');
        let mut sockets: Vec<(&'static str, TcpListener)> = Vec::new();
        for index in 0..passed.len() {
            let name = names.next().unwrap_or_default();
            let known = LISTENERS.into_iter().find(|listener| *listener == name);
            let Some(listener) = known else { return Err(SocketError::Name(name.to_owned())) };
            if sockets.iter().any(|(other, _)| *other == listener) {
                return Err(SocketError::Twice(listener));
            }
            let usable = |source| SocketError::Socket { listener, source };
            if let Some(socket) = passed.take_tcp_listener(index).map_err(usable)? {
                // What waits for the runtime must not stop its thread.
                socket.set_nonblocking(true).map_err(usable)?;
                sockets.push((listener, socket));
            }
        }
        Ok(Self(sockets))
    }

    /// Listens where a key such as `agents.listen` says: on the socket that was passed for its section, or else at the
    /// address.
    ///
    /// # Errors
    /// What the system says.
    pub async fn listen(&mut self, key: &str, address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
        let section = key.split('.').next().unwrap_or_default();
        match self.0.iter().position(|(name, _)| *name == section) {
            Some(at) => tokio::net::TcpListener::from_std(self.0.swap_remove(at).1),
            None => tokio::net::TcpListener::bind(address).await,
        }
    }

    /// For a listener that speaks without TLS.
    ///
    /// # Errors
    /// When a socket was passed for it that other machines can reach.
    pub fn require_loopback(&self, listener: &str) -> Result<(), SocketError> {
        let socket = self.0.iter().find(|(name, _)| *name == listener).map(|(_, socket)| socket);
        if let Some(Ok(address)) = socket.map(TcpListener::local_addr)
            && !address.ip().is_loopback()
        {
            return Err(SocketError::Plain(address));
        }
        Ok(())
    }

    /// To be asked when every listener that is configured has taken its socket.
    ///
    /// # Errors
    /// When one is left: nobody would answer on it.
    pub fn all_taken(&self) -> Result<(), SocketError> {
        match self.0.first() {
            Some((listener, _)) => Err(SocketError::NotConfigured(listener)),
            None => Ok(()),
        }
    }
}

/// Why sockets that were passed cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// It is not said which listener it is for.
    #[error(
        "a socket was passed as {0:?}: name it agents, http or metrics (FileDescriptorName= of its unit)"
    )]
    Name(String),
    /// Two for one listener.
    #[error("two sockets were passed as {0:?}: a listener has one")]
    Twice(&'static str),
    /// It is no socket of TCP.
    #[error("the socket that was passed as {listener:?} cannot be used: {source}")]
    Socket {
        /// Which listener it was for.
        listener: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// There is no such listener in the configuration.
    #[error("a socket was passed as {0:?}, but the configuration has no section [{0}]")]
    NotConfigured(&'static str),
    /// Plain HTTP would be spoken to other machines.
    #[error(
        "the socket that was passed as \"http\" is at {0}: without cert and key it has to be on loopback"
    )]
    Plain(SocketAddr),
}

/// What is told to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a> {
    /// It serves, or serves again after a reload.
    Ready,
    /// It reads its files again; [`State::Ready`] has to follow.
    Reloading,
    /// It drains.
    Stopping,
    /// It is alive.
    Watchdog,
    /// A sentence for people. Of several lines the first one.
    Status(&'a str),
}

impl State<'_> {
    fn line(self) -> String {
        match self {
            Self::Ready => "READY=1".into(),
            Self::Reloading => "RELOADING=1".into(),
            Self::Stopping => "STOPPING=1".into(),
            Self::Watchdog => "WATCHDOG=1".into(),
            Self::Status(text) => format!("STATUS={}", text.lines().next().unwrap_or_default()),
        }
    }
}

/// The way to the supervisor; without one, everything that is told is dropped.
#[derive(Debug, Default)]
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// The one of `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`, if there is one. One that cannot be reached is
    /// none: a hub does its work without it, and systemd itself ends a unit that never says that it is ready.
    #[must_use]
    pub fn from_env() -> Self {
        let Some(path) = std::env::var("NOTIFY_SOCKET").ok().filter(|path| !path.is_empty()) else {
            return Self::default();
        };
        let socket = match connect(&path) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, "the supervisor cannot be told how the hub is");
                None
            }
        };
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog =
            number("WATCHDOG_USEC").filter(|micros| ours && *micros > 0).map(Duration::from_micros);
        Self { socket, watchdog }
    }

    /// How often it wants to hear [`State::Watchdog`]: half of the time after which it takes the hub for dead.
    #[must_use]
    pub fn watchdog(&self) -> Option<Duration> {
        self.socket.as_ref().and(self.watchdog).map(|within| within / 2)
    }

    /// Tells it that the hub is alive as often as it wants to hear that, and only after `alive` has said so each time.
    /// Where that says no, or nothing any more, the supervisor hears nothing either, and ends the hub.
    pub async fn feed(&self, alive: impl AsyncFn() -> bool) -> Infallible {
        if let Some(every) = self.watchdog() {
            let mut due = tokio::time::interval(every);
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                due.tick().await;
                if !alive().await {
                    tracing::error!("a thread of connections has failed");
                    break;
                }
                self.tell(&[State::Watchdog]);
            }
        }
        std::future::pending().await
    }

    /// Tells these at once. Never waits: who does not read has to do without.
    pub fn tell(&self, states: &[State<'_>]) {
        let Some(socket) = &self.socket else { return };
        let mut message = String::new();
        for state in states {
            message.push_str(&state.line());
            message.push('\n');
        }
        if let Err(error) = socket.send(message.as_bytes()) {
            tracing::debug!(%error, "the supervisor was not told");
        }
    }
}

/// Beside a path, systemd may name an address of Linux' abstract namespace: `@`, and a name.
fn connect(path: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match path.strip_prefix('@') {
        Some(name) => connect_abstract(&socket, name)?,
        None => socket.connect(path)?,
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn connect_abstract(socket: &UnixDatagram, name: &str) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt as _;
    socket.connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)
}

#[cfg(not(target_os = "linux"))]
fn connect_abstract(_: &UnixDatagram, _: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_a_line_each() {
        let told = [State::Ready, State::Reloading, State::Stopping, State::Watchdog].map(State::line);
        assert_eq!(told, ["READY=1", "RELOADING=1", "STOPPING=1", "WATCHDOG=1"]);
        // A second line would be a state of its own.
        assert_eq!(State::Status("serving\nSTOPPING=1").line(), "STATUS=serving");
        assert_eq!(State::Status("").line(), "STATUS=");
    }

    #[test]
    fn a_supervisor_hears_all_states_of_one_time_in_one_message() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let listening = UnixDatagram::bind(&path).unwrap();
        let socket = Some(connect(path.to_str().unwrap()).unwrap());
        Supervisor { socket, watchdog: None }.tell(&[State::Ready, State::Status("serving")]);
        let mut message = [0; 64];
        let length = listening.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"READY=1\nSTATUS=serving\n");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_address_without_a_file_is_reached_too() {
        use std::os::linux::net::SocketAddrExt as _;
        let name = format!("agent-reach-test-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let listening = UnixDatagram::bind_addr(&address).unwrap();
        let socket = Some(connect(&format!("@{name}")).unwrap());
        Supervisor { socket, watchdog: None }.tell(&[State::Stopping]);
        let mut message = [0; 64];
        let length = listening.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"STOPPING=1\n");
    }

    #[test]
    fn the_watchdog_is_fed_twice_in_its_time_and_only_where_somebody_listens() {
        let (socket, _other) = UnixDatagram::pair().unwrap();
        let watchdog = Some(Duration::from_secs(30));
        let supervisor = Supervisor { socket: Some(socket), watchdog };
        assert_eq!(supervisor.watchdog(), Some(Duration::from_secs(15)));
        assert_eq!(Supervisor { socket: None, watchdog }.watchdog(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_does_not_answer_feeds_the_watchdog_no_more() {
        use std::cell::Cell;
        let (socket, heard) = UnixDatagram::pair().unwrap();
        heard.set_nonblocking(true).unwrap();
        let supervisor = Supervisor { socket: Some(socket), watchdog: Some(Duration::from_secs(2)) };
        let asked = Cell::new(0);
        let alive = async || {
            asked.set(asked.get() + 1);
            if asked.get() > 3 {
                std::future::pending::<()>().await;
            }
            true
        };
        let minute = Duration::from_secs(60);
        assert!(tokio::time::timeout(minute, supervisor.feed(alive)).await.is_err());
        let fed = std::iter::repeat_with(|| heard.recv(&mut [0; 32])).take_while(Result::is_ok);
        assert_eq!((asked.get(), fed.count()), (4, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_has_lost_a_part_of_itself_feeds_the_watchdog_no_more() {
        let (socket, heard) = UnixDatagram::pair().unwrap();
        heard.set_nonblocking(true).unwrap();
        let supervisor = Supervisor { socket: Some(socket), watchdog: Some(Duration::from_secs(2)) };
        let minute = Duration::from_secs(60);
        assert!(tokio::time::timeout(minute, supervisor.feed(async || false)).await.is_err());
        assert!(heard.recv(&mut [0; 32]).is_err());
    }

    #[test]
    fn a_supervisor_that_does_not_read_holds_nobody_up() {
        let (socket, _unread) = UnixDatagram::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let supervisor = Supervisor { socket: Some(socket), watchdog: None };
        for _ in 0..10_000 {
            supervisor.tell(&[State::Watchdog]);
        }
    }
}
