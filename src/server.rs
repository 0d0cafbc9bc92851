//! A running hub, assembled in reading order, and how it stops.

mod listeners;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_reach_core::{BreakerSettings, Durable, RELOADS_MAX, Settings};
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::access::Access;
use crate::audit::{Audit, AuditError};
use crate::config::{self, Config};
use crate::driver::{Driver, Observer};
use crate::http::Connects;
use crate::keeping::{KeepError, Keeping, unix_ms};
use crate::reload::{LoadError, Order, Reloader, Sources};
use crate::store::StoreHandle;
use crate::supervisor::{SocketError, Sockets};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spans::{self, Flush, SpansError};
use crate::tokens::Tokens;
use crate::transport::listener::{Limits, Listener};
use crate::transport::sockets::Tcp;
use crate::transport::threads::{Pulse, Threads};
use crate::transport::tls;
use crate::transport::trust::Trust;
use crate::watcher::Watcher;
use listeners::{Http, bind, prometheus, url};

/// How long closing connections get after the drain before the process ends anyway.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// What traces get at least to be exported at the end.
const TRACES: Duration = Duration::from_secs(1);

/// The name under which a hub without configuration lets in an operator by its link.
const OWN_TOKEN: &str = "dev";

/// Why a hub did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("{key} = \"{address}\": cannot listen: {source}; free the address, or write another one")]
    Listen {
        /// Key of the configuration.
        key: &'static str,
        /// Its value.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// A socket that was passed cannot be used.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Certificates or the policy cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The system has no threads for connections.
    #[error("agents.threads: cannot start them: {0}")]
    Threads(std::io::Error),
    /// There is no store, or deliveries cannot be made.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// There is no audit.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// Traces cannot be exported.
    #[error(transparent)]
    Spans(#[from] SpansError),
    /// The system has no randomness.
    #[error("no random numbers from the system")]
    Random,
}

/// Where a hub can be reached: the line of JSON that says it serves.
#[derive(Clone, Debug, Serialize)]
pub struct Ready {
    /// Always true.
    pub ready: bool,
    /// URL for agents, without its path.
    pub agents: String,
    /// URL of health, API and console.
    pub http: Option<String>,
    /// URL of `/metrics`.
    pub metrics: Option<String>,
    /// Where `dev` keeps its certificates.
    pub dir: Option<String>,
    /// URL of the console; of `dev`, with a token that is good for one session.
    pub console: Option<String>,
}

/// A hub that serves.
pub struct Server {
    driver: Arc<Driver>,
    /// Tells whether the threads of connections are alive.
    pub(crate) pulse: Pulse,
    store: StoreHandle,
    access: Arc<Access>,
    audit: Option<Arc<Audit>>,
    ready: Ready,
    orders: mpsc::Sender<Order>,
    drain_ms: u64,
    traces: Option<Flush>,
    tasks: JoinSet<()>,
}

impl Server {
    /// Binds, builds and starts everything. `sockets` take the place of the addresses of their listeners.
    ///
    /// # Errors
    /// When an address, a socket, a certificate or the policy cannot be used. Nothing is left running then.
    pub async fn start(
        config: &Config,
        dir: Option<&Path>,
        mut sockets: Sockets,
    ) -> Result<Self, StartError> {
        let audit = config.audit.enabled.then(|| Audit::start(&config.audit).map(Arc::new)).transpose()?;
        let mut sources = Sources::of(config, audit.as_ref().map(Audit::refusals));
        // A hub that was started without a configuration has nobody yet who could come to its console.
        sources.own_token = dir.map(|_| OWN_TOKEN);
        let loaded = sources.load()?;
        let agents = bind(&mut sockets, "agents.listen", config.agents.listen).await?;
        let threads = Threads::start(config.agents.threads as usize).map(Arc::new);
        let threads = threads.map_err(StartError::Threads)?;
        let (pulse, metrics) = (threads.pulse(), Arc::new(Metrics::new()));
        loaded.tell(&metrics);
        let (tls, http_tls, policy, tokens, live) = loaded.split();
        let (keeping, restored) = Keeping::open(config, &metrics)?;
        let (store, keeping) = (keeping.store(), Arc::new(keeping));
        // For every reload that the core has open, and for a signal.
        let (orders, orders_at) = mpsc::channel(RELOADS_MAX + 1);
        let mut tasks = JoinSet::new();
        let (spans, traces) = spans::export(&config.tracing, &metrics, &mut tasks)?.unzip();
        let (kept, reloads) = (Arc::clone(&keeping), orders.clone());
        let watcher = Arc::new(Watcher { metrics, keeping: kept, audit: audit.clone(), reloads, spans });
        audit.iter().for_each(|audit| audit.started(policy.version));
        let hub = keeping.hub(settings(config)?, policy, restored, |facts| watcher.facts(facts));
        let driver = Driver::over(hub, store.clone(), Arc::clone(&watcher) as Arc<dyn Observer>);
        keeping.connect(&driver);
        if let Some(deliveries) = keeping.deliveries(config, &watcher.metrics)? {
            tasks.spawn(deliveries);
        }

        let http_tls = http_tls.map(watch::Sender::new);
        let access = access(config, tokens, &mut tasks)?;
        let connects = Connects::new(&driver, &threads, config.limits.max_message);
        let http = Http { access: Arc::clone(&access), metrics: Arc::clone(&watcher.metrics), connects };
        let http = http.serve(config, http_tls.as_ref(), &mut sockets, &mut tasks).await?;
        let console = console(http.as_deref(), dir, &access)?;
        let metrics = prometheus(config, &mut sockets, &driver, &watcher, &mut tasks).await?;
        sockets.all_taken()?;
        tasks.spawn(watcher.metrics.upkeep());
        tasks.spawn(Arc::clone(&driver).keep_time());
        tasks.spawn(Arc::clone(&driver).tell_memory());
        let ready = Ready {
            ready: true,
            agents: url("wss", &agents, config.agents.listen),
            http,
            metrics,
            dir: dir.map(|dir| dir.display().to_string()),
            console,
        };
        let trust = Trust::new(tls);
        let reloader = Reloader {
            sources,
            driver: Arc::clone(&driver),
            trust: Arc::clone(&trust),
            http: http_tls,
            access: Arc::clone(&access),
            metrics: Arc::clone(&watcher.metrics),
            audit: audit.clone(),
            orders: orders_at,
        };
        tasks.spawn(reloader.run(live));
        let listener = Listener {
            sockets: Tcp::new(agents, threads),
            trust,
            driver: Arc::clone(&driver),
            limits: limits(config),
            gatekeeper: watcher,
        };
        tasks.spawn(listener.run());
        warn_of(config);
        info!(agents = ready.agents, http = ready.http, metrics = ready.metrics, "serving");
        let drain_ms = config.agents.drain_ms;
        Ok(Self { driver, pulse, store, access, audit, ready, orders, drain_ms, traces, tasks })
    }

    /// Where it can be reached.
    pub const fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Resolves when a part of the hub has ended by itself, which none does unless it is broken. A hub without
    /// its clock or its listener must not look alive.
    pub async fn broken(&mut self) {
        let error = match self.tasks.join_next().await {
            Some(Err(error)) => error.to_string(),
            Some(Ok(())) | None => "it ended by itself".to_owned(),
        };
        tracing::error!(error, "a part of the hub has failed");
    }

    /// The audit, if there is one.
    pub fn audit(&self) -> Option<Arc<Audit>> {
        self.audit.clone()
    }

    /// The hub itself.
    pub fn driver(&self) -> Arc<Driver> {
        Arc::clone(&self.driver)
    }

    /// Has certificates, revocation lists and the policy read again, unless that is ordered already.
    pub fn reload(&self) {
        if self.orders.try_send(Order::Signal).is_err() {
            warn!("a reload is under way, and others wait for it");
        }
    }

    /// Drains: no new sessions, open calls may finish, every connection is told and closed. Listeners stay
    /// until the end, so that who comes meanwhile is told as well.
    pub async fn stop(mut self) {
        info!(drain_ms = self.drain_ms, "draining");
        self.driver.drain(self.drain_ms);
        let until = Instant::now() + Duration::from_millis(self.drain_ms) + LAST_WORDS;
        if tokio::time::timeout_at(until, self.driver.emptied()).await.is_err() {
            warn!("connections are still open at the end of the drain");
        }
        if let Some(traces) = self.traces {
            // The last calls may have ended at the last moment.
            traces.within(until.saturating_duration_since(Instant::now()).max(TRACES)).await;
        }
        self.access.settled().await;
        self.tasks.shutdown().await;
        let (store, audit) = (self.store, self.audit);
        let closed = tokio::task::spawn_blocking(move || {
            audit.iter().for_each(|audit| audit.close());
            store.close()
        });
        match closed.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "not all could be stored"),
            Err(error) => warn!(%error, "the store did not close"),
        }
        info!("stopped");
    }
}

/// Who comes over HTTP. Sessions are kept where there is a listener for them.
fn access(config: &Config, tokens: Tokens, tasks: &mut JoinSet<()>) -> Result<Arc<Access>, StartError> {
    let access = match &config.http {
        Some(_) => Access::keeping(tokens, config.store.sessions()),
        None => Access::new(tokens),
    };
    let access = access.map(Arc::new).map_err(|_| StartError::Random)?;
    tasks.spawn(Arc::clone(&access).keep_sessions());
    Ok(access)
}

/// Where the console is, with a link into it where there is nobody yet who has a token.
fn console(http: Option<&str>, dir: Option<&Path>, access: &Access) -> Result<Option<String>, StartError> {
    let Some(http) = http else { return Ok(None) };
    if dir.is_none() {
        return Ok(Some(format!("{http}/")));
    }
    let token = access.make_link().map_err(|_| StartError::Random)?;
    Ok(Some(format!("{http}/?token={token}")))
}

/// Says what in a configuration is allowed and most likely not meant.
fn warn_of(config: &Config) {
    if config.limits.outbound_bytes < config.limits.max_message {
        warn!(
            "limits.outbound_bytes is below max_message: one large message makes its reader a slow consumer"
        );
    }
}

fn limits(config: &Config) -> Limits {
    Limits {
        connections: config.agents.max_connections as usize,
        handshakes: config.agents.max_handshakes as usize,
        handshake: Duration::from_millis(config.agents.handshake_timeout_ms),
        max_message: config.limits.max_message,
        connections_each: (config.agents.max_connections_per_address > 0)
            .then_some(config.agents.max_connections_per_address as usize),
        handshakes_each: config.agents.max_handshakes_per_address as usize,
    }
}

fn settings(config: &Config) -> Result<Settings, StartError> {
    let mut seed = [0; 8];
    tls::provider().secure_random.fill(&mut seed).map_err(|_| StartError::Random)?;
    let Config { agents, liveness, limits, calls, breaker, dedupe, store, audit, .. } = config;
    Ok(Settings {
        seed: u64::from_ne_bytes(seed),
        handshake_timeout_ms: agents.handshake_timeout_ms,
        keepalive_ms: liveness.keepalive_ms,
        suspect_ms: liveness.suspect_ms,
        gone_ms: liveness.gone_ms,
        resume_ms: liveness.resume_ms,
        max_message: limits.max_message,
        max_in_flight: limits.max_in_flight,
        outbound_bytes: limits.outbound_bytes,
        open_bytes: limits.queue_bytes,
        // A share that not even one message fits into would be none.
        open_bytes_each: (limits.queue_bytes / 4).max(limits.max_message.saturating_mul(2)),
        registrations_per_10s: limits.registrations_per_10s as usize,
        accept_timeout_ms: calls.accept_timeout_ms,
        timeout_ms: calls.timeout_ms,
        budget_ms: calls.budget_ms,
        retries: calls.retries.into(),
        retry_base_ms: calls.retry_base_ms,
        retry_jitter_ms: calls.retry_jitter_ms,
        breaker: BreakerSettings {
            window_ms: breaker.window_ms,
            min_success: breaker.min_success,
            min_calls: breaker.min_calls,
            open_ms: breaker.open_ms,
        },
        queue_len: limits.queue_len,
        outbound_total: limits.queue_bytes,
        started_unix_ms: unix_ms(),
        records: store.records || audit.enabled,
        spans: spans::sampling(&config.tracing)?,
        durable: match dedupe.durable {
            config::Durable::Tasks => Durable::Tasks,
            config::Durable::Keyed => Durable::Keyed,
            config::Durable::All => Durable::All,
        },
        dedupe_ttl_ms: dedupe.ttl_ms,
        dedupe_bytes: dedupe.max_bytes,
        ..Settings::default()
    })
}
