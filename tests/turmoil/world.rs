//! A hub and its agents on hosts of a simulated network.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use agent_reach::certs;
use agent_reach::driver::{Driver, Observer};
use agent_reach::transport::identity::IdentityError;
use agent_reach::transport::listener::{Accepted, Gatekeeper, Limits, Listener};
use agent_reach::transport::sockets::Sockets;
use agent_reach::transport::tls::{self, TlsFiles};
use agent_reach::transport::tls_stream::TlsStream;
use agent_reach::transport::trust::Trust;
use agent_reach_core::{Fact, Gauges, Policy, Settings};
use tempfile::TempDir;
use turmoil::Sim;
use turmoil::net::{TcpListener, TcpStream};

use crate::agent::Agent;

/// The name of the hub's host.
pub(crate) const HUB: &str = "hub";
/// Its port.
pub(crate) const PORT: u16 = 7443;
/// How far the network goes in one step.
const STEP: Duration = Duration::from_millis(5);
/// How long a request id is remembered. Long against everything here but the end.
pub(crate) const KEEP_MS: u64 = 600_000;

/// Times of the hub, a fifth of what it has without configuration.
pub(crate) fn settings() -> Settings {
    Settings {
        keepalive_ms: 1000,
        suspect_ms: 3000,
        gone_ms: 6000,
        resume_ms: 4000,
        accept_timeout_ms: 2000,
        // A link that flaps is no storm of registrations here.
        registrations_per_10s: 100,
        ..Settings::default()
    }
}

/// The network and all on it.
pub(crate) struct World {
    sim: Sim<'static>,
    driver: Rc<RefCell<Option<Arc<Driver>>>>,
    pki: TempDir,
    agents: Vec<Rc<Agent>>,
}

impl World {
    /// A hub, and messages that take this long from host to host.
    pub(crate) fn new(seed: u64, latency_ms: std::ops::Range<u64>) -> Self {
        let pki = tempfile::tempdir().unwrap();
        certs::init(pki.path(), &[format!("DNS:{HUB}")]).unwrap();
        let (cert, key) = certs::paths(pki.path(), certs::HUB);
        let files = TlsFiles { cert, key, client_ca: pki.path().join("ca.pem"), crl: None, tls12: false };
        let trust = Trust::new(tls::server_config(&files).unwrap());
        let mut sim = turmoil::Builder::new()
            .rng_seed(seed)
            .tick_duration(STEP)
            .min_message_latency(Duration::from_millis(latency_ms.start))
            .max_message_latency(Duration::from_millis(latency_ms.end))
            .build();
        let driver = Rc::new(RefCell::new(None));
        let current = Rc::clone(&driver);
        sim.host(HUB, move || serve(Arc::clone(&trust), Rc::clone(&current)));
        Self { sim, driver, pki, agents: Vec::new() }
    }

    /// Adds an agent on a host of its own.
    pub(crate) fn agent(&mut self, name: &'static str, shape: impl FnOnce(Agent) -> Agent) -> Rc<Agent> {
        certs::issue(self.pki.path(), name, &[], 1).unwrap();
        let (cert, key) = certs::paths(self.pki.path(), name);
        let tls = tls::client_config(&self.pki.path().join("ca.pem"), &cert, &key).unwrap();
        let agent = Rc::new(shape(Agent::new(name, tls)));
        let running = Rc::clone(&agent);
        self.sim.host(name, move || Rc::clone(&running).run());
        self.agents.push(Rc::clone(&agent));
        agent
    }

    /// The network itself, to break it.
    pub(crate) const fn network(&mut self) -> &mut Sim<'static> {
        &mut self.sim
    }

    /// Lets so much time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.sim.elapsed() + time;
        while self.sim.elapsed() < end {
            self.sim.step().unwrap();
        }
    }

    /// Lets time pass until something holds, at most so much.
    pub(crate) fn until(&mut self, what: &str, at_most: Duration, mut holds: impl FnMut(&Self) -> bool) {
        let end = self.sim.elapsed() + at_most;
        while !holds(self) {
            let now = self.sim.elapsed();
            assert!(now < end, "not within {at_most:?}: {what}\n{:#?}\n{:?}", self.gauges(), self.agents);
            self.sim.step().unwrap();
        }
    }

    /// Waits until every agent has a session, known to both sides.
    pub(crate) fn all_registered(&mut self) {
        self.until("all are registered", Duration::from_secs(60), |world| {
            world.gauges().agents_ready == world.agents.len()
                && world.agents.iter().all(|agent| agent.has_session())
        });
    }

    /// What the hub holds now.
    pub(crate) fn gauges(&self) -> Gauges {
        self.driver.borrow().as_ref().map(|driver| driver.figures().1).unwrap_or_default()
    }

    /// Everybody leaves without a word, and what the hub held for them is let go.
    pub(crate) fn ends_with_nothing_left(mut self) {
        for agent in self.agents.clone() {
            assert_eq!(agent.faults(), [""; 0], "{}", agent.name());
            self.sim.crash(agent.name());
        }
        self.until("nothing is left", Duration::from_millis(KEEP_MS * 2), |world| {
            let Gauges {
                connections,
                agents_ready,
                agents_degraded,
                agents_draining,
                agents_suspect,
                agents_away,
                calls,
                in_flight,
                watches,
                outbound_bytes,
                open_bytes,
                ..
            } = world.gauges();
            let agents = agents_ready + agents_degraded + agents_draining + agents_suspect + agents_away;
            let bytes = outbound_bytes + open_bytes;
            connections + agents + calls + in_flight + watches + bytes == 0
        });
    }
}

/// One life of the hub's process.
async fn serve(trust: Arc<Trust>, current: Rc<RefCell<Option<Arc<Driver>>>>) -> turmoil::Result {
    let driver = Driver::new(settings(), Policy::open(), Arc::new(Nobody));
    current.replace(Some(Arc::clone(&driver)));
    let listener = Listener {
        sockets: Simulated(TcpListener::bind(("0.0.0.0", PORT)).await?),
        trust,
        driver: Arc::clone(&driver),
        limits: Limits {
            connections: 100,
            handshakes: 16,
            handshake: Duration::from_secs(5),
            max_message: settings().max_message,
            connections_each: None,
            handshakes_each: 16,
        },
        gatekeeper: Arc::new(Nobody),
    };
    tokio::spawn(driver.keep_time());
    listener.run().await;
    Ok(())
}

struct Simulated(TcpListener);

impl Sockets for Simulated {
    type Socket = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, IpAddr)> {
        let (socket, peer) = self.0.accept().await?;
        Ok((socket, peer.ip()))
    }

    fn settle<F>(
        &self,
        stream: TlsStream<TcpStream>,
        connection: impl FnOnce(TlsStream<TcpStream>) -> F,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        drop(tokio::spawn(connection(stream)));
        Ok(())
    }
}

#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn facts(&self, _: &[Fact]) {}
    fn reload(&self, _: u64) {}
    fn hop(&self, _: Duration) {}
}

impl Gatekeeper for Nobody {
    fn accepted(&self, _: Accepted, _: Duration) {}

    fn tls_failed(&self, _: &io::Error) -> Accepted {
        Accepted::NoWebSocket
    }

    fn unidentified(&self, error: &IdentityError) {
        panic!("a certificate names nobody: {error}");
    }
}

/// Fails with both sides when a list is not what it should be.
pub(crate) fn same<T: PartialEq + Debug>(what: &str, got: &[T], expected: &[T]) {
    assert!(got == expected, "{what}: {got:?} instead of {expected:?}");
}
