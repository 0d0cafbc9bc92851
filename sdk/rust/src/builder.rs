//! How an agent begins.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use agent_reach_protocol::limits::{CAPABILITIES_MAX, MAX_CONCURRENCY_DEFAULT, MESSAGE_BYTES_DEFAULT};
use agent_reach_protocol::names;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::client::{Agent, Shared, State};
use crate::control::Control;
use crate::dedupe::{DedupeFile, Opened, Writer};
use crate::driver::{Driver, EVENTS_MAX, Provided, Route};
use crate::errors::{CloseReason, ConnectError, HandlerError};
use crate::payload::{FromPayload, IntoPayload};
use crate::provide::{Capability, Context, Handler, handler};
use crate::runtime;
use crate::session::{Backoff, Memory, Registration, Rng, Session, put};
use crate::tasks::Mailbox;
use crate::tls::Tls;
use crate::transport::{Address, Dial, NetworkDial};

/// Calls that wait for the connection's task to take them.
const COMMANDS_MAX: usize = 256;

/// What an agent is and offers; made by [`Agent::builder`].
#[must_use = "an agent begins with connect()"]
pub struct AgentBuilder {
    hub: String,
    registration: Registration,
    handlers: HashMap<String, Handler>,
    tls: Option<Tls>,
    token: Option<String>,
    dial: Option<Arc<dyn Dial>>,
    connect_timeout: Duration,
    drain: Duration,
    grace: Duration,
    backoff: Backoff,
    connection_runtime: Option<Handle>,
    dedupe: Option<PathBuf>,
    problem: Option<ConnectError>,
}

impl AgentBuilder {
    pub(crate) fn new(hub: String, agent_id: String) -> Self {
        let registration = Registration {
            agent_id,
            max_concurrency: MAX_CONCURRENCY_DEFAULT,
            capabilities: BTreeMap::new(),
            ..Registration::default()
        };
        Self {
            hub,
            registration,
            handlers: HashMap::new(),
            tls: None,
            token: None,
            dial: None,
            connect_timeout: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            grace: Duration::from_secs(5),
            backoff: Backoff::default(),
            connection_runtime: None,
            dedupe: None,
            problem: None,
        }
    }

    /// What proves this agent to the hub. Needed for `wss://`.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// A bearer token, for a hub's HTTP listener.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Offers a capability. The handler takes any type that serde reads and answers any that it writes, or
    /// [`crate::Payload`] for bytes as they are. Pieces of a streamed result go out with
    /// [`Context::emit`]; what the handler returns is the end of the stream.
    pub fn capability<F, Fut, In, Out>(mut self, capability: impl Into<Capability>, function: F) -> Self
    where
        F: Fn(Context, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, HandlerError>> + Send + 'static,
        In: FromPayload + Send + 'static,
        Out: IntoPayload + Send + 'static,
    {
        let capability = capability.into();
        if let Err(problem) = capability.check() {
            self.problem.get_or_insert(problem);
        }
        self.handlers.insert(capability.name.clone(), handler(function));
        self.registration.capabilities.insert(capability.name.clone(), capability);
        self
    }

    /// A label of the agent.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.registration.labels, key.into(), value.into());
        self
    }

    /// Most handlers that run at once. Default 50.
    pub const fn max_concurrency(mut self, handlers: u64) -> Self {
        self.registration.max_concurrency = handlers;
        self
    }

    /// What the agent means to call, as names, `prefix.*` or `*`. Default: all that policy grants.
    pub fn calls<P: Into<String>>(mut self, patterns: impl IntoIterator<Item = P>) -> Self {
        let patterns = patterns.into_iter().map(Into::into);
        self.registration.calls.get_or_insert_default().extend(patterns);
        self
    }

    /// Name and version of the service, for people.
    pub fn service(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.registration.service = Some(name.into());
        self.registration.version = Some(version.into());
        self
    }

    /// How long [`AgentBuilder::connect`] tries. Default 30 s. Later connections are tried for ever.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long handlers may take to end when the agent closes. Default 10 s.
    pub const fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain = timeout;
        self
    }

    /// How long a cancelled handler may take to end by itself before it is dropped. Default 5 s.
    pub const fn cancel_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long to wait before dialling again: anything up to `first`, then up to twice that, and so on until
    /// `most`. Default 1 s and 60 s. The window that a hub gives with GOODBYE goes before.
    pub const fn reconnect_waits(mut self, first: Duration, most: Duration) -> Self {
        self.backoff = Backoff::new(first, most);
        self
    }

    /// The runtime that carries the connection. Default: a thread that all agents of the process share and
    /// nothing else runs on, so that a handler which blocks its own runtime costs no heartbeat. Give a
    /// runtime here only if that thread is too little for very many agents, and never one that runs code
    /// which may block.
    pub fn connection_runtime(mut self, runtime: Handle) -> Self {
        self.connection_runtime = Some(runtime);
        self
    }

    /// Remembers in this file which calls were served, so that the next life of the process knows it: a task that was
    /// done and not yet told is answered from the file and not done again, and one that was begun and not ended is
    /// answered as `interrupted`, its outcome unknown, unless its capability is `idempotent`, which runs again. To the
    /// hub the next process is the same agent come back, if it comes within the hub's `resume_ms` (10 s): without the
    /// file it is another one, which has lost them.
    ///
    /// Ends of tasks are kept with their results, for 24 h and within 64 MiB, and are on the disk before the hub is
    /// told; the begin of each call of a capability that is not idempotent is noted before its handler runs. One
    /// process at a time can use a file, and one agent. Default: none; then only this life of the process remembers.
    pub fn dedupe_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.dedupe = Some(path.into());
        self
    }

    #[cfg(test)]
    pub(crate) fn dial(mut self, dial: Arc<dyn Dial>) -> Self {
        self.dial = Some(dial);
        self
    }

    fn check(&mut self) -> Result<Address, ConnectError> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        let id = &self.registration.agent_id;
        if !names::is_agent_id(id) && names::split_window(id).is_none() {
            let text = format!("agent_id {id:?}: 1 to 128 of ASCII letters, digits and . _ - : @ + ~");
            return Err(ConnectError::Config(text));
        }
        for pattern in self.registration.calls.iter().flatten() {
            let parsed: Result<names::Pattern, _> = pattern.parse();
            parsed.map_err(|e| ConnectError::Config(format!("pattern {pattern:?} {e}")))?;
        }
        if self.registration.capabilities.len() > CAPABILITIES_MAX {
            return Err(ConnectError::Config(format!("more than {CAPABILITIES_MAX} capabilities")));
        }
        let address = Address::parse(&self.hub)?;
        if address.secure && self.tls.is_none() && self.dial.is_none() {
            return Err(ConnectError::Config("wss:// needs tls(…)".to_owned()));
        }
        Ok(address)
    }

    /// Connects and registers; resolves when the hub has welcomed the agent. From then on the connection
    /// mends itself. Handlers run on the tokio runtime that this is awaited on.
    ///
    /// # Errors
    /// At once for a mistake in the configuration, a dedupe file that cannot be used, outside of a tokio runtime, and
    /// for what trying again cannot mend (GOODBYE of a final kind, HTTP 4xx but 408, 425 and 429); otherwise after the connect timeout.
    pub async fn connect(mut self) -> Result<Agent, ConnectError> {
        let address = self.check()?;
        let timeout = self.connect_timeout;
        let random = RandomState::new();
        let mut rng = Rng::new(random.hash_one(&self.registration.agent_id));
        self.registration.instance = format!("{:016x}{:016x}", rng.next(), random.hash_one(rng.next()));
        let remembered = self.remembered().await?;
        let agent = self.spawn(address, rng.next(), remembered)?;
        let welcomed = tokio::time::timeout(timeout, agent.1.wait_for_session()).await;
        match welcomed {
            Ok(Ok(())) => Ok(agent.0),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(agent.1.timed_out()),
        }
    }

    /// Opens the dedupe file, if there is one, and takes over the instance in it.
    async fn remembered(&mut self) -> Result<Option<Opened>, ConnectError> {
        let Some(path) = self.dedupe.take() else { return Ok(None) };
        let (agent_id, instance) = (self.registration.agent_id.clone(), self.registration.instance.clone());
        let opening =
            tokio::task::spawn_blocking(move || DedupeFile::open(&path, &agent_id, &instance)).await;
        let opened = opening.map_err(|e| ConnectError::Config(e.to_string()))?;
        let opened = opened.map_err(ConnectError::Config)?;
        self.registration.instance.clone_from(&opened.instance);
        Ok(Some(opened))
    }

    fn spawn(
        mut self,
        address: Address,
        seed: u64,
        remembered: Option<Opened>,
    ) -> Result<(Agent, Watch), ConnectError> {
        let program = Handle::try_current().map_err(|e| {
            ConnectError::Config(format!("connect() must be awaited on a tokio runtime: {e}"))
        })?;
        let runtime = match self.connection_runtime.take() {
            Some(runtime) => runtime,
            None => runtime::shared().map_err(|e| ConnectError::Io(e.to_string()))?,
        };
        let events = mpsc::channel(EVENTS_MAX);
        let (on_disk, writer) = match remembered {
            None => (None, None),
            Some(Opened { file, past, .. }) => {
                let writer = Writer::start(file, events.0.clone());
                let writer = writer.map_err(|e| ConnectError::Io(e.to_string()))?;
                (Some(Memory::on_disk(past)), Some(writer))
            }
        };
        let tls = self.tls.filter(|_| address.secure);
        let dial = self
            .dial
            .unwrap_or_else(|| Arc::new(NetworkDial { host: address.host.clone(), port: address.port, tls }));
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let (state, watched) = watch::channel(State::Connecting(None));
        let shared = Arc::new(Shared {
            agent_id: self.registration.agent_id.clone(),
            labels: self.registration.labels.clone(),
            commands,
            control: Arc::new(Control::default()),
            mailbox: Arc::new(Mailbox::default()),
            state: watched.clone(),
            max_message: Arc::new(AtomicUsize::new(MESSAGE_BYTES_DEFAULT)),
            drain: self.drain,
            keys: AtomicU64::new(0),
            handles: AtomicUsize::new(0),
        });
        let session = Session::new(self.registration, self.grace, self.backoff, seed, on_disk);
        let route = Route { dial, address, token: self.token };
        let agent = Agent::new(Arc::clone(&shared));
        let provided = Provided { handlers: self.handlers, program, events, writer };
        // Not detached: it ends when the last handle is dropped or the program's runtime stops, and tells
        // every waiter that it did. Made there and not here: its timer belongs to that runtime.
        drop(runtime.spawn(async move {
            Driver::new(session, shared, route, received, provided, state).run().await;
        }));
        Ok((agent, Watch(watched)))
    }
}

/// Waits for the first session.
struct Watch(watch::Receiver<State>);

impl Watch {
    async fn wait_for_session(&self) -> Result<(), ConnectError> {
        let mut state = self.0.clone();
        match state.wait_for(|state| !matches!(state, State::Connecting(_))).await.as_deref() {
            Ok(State::Closed(CloseReason::Goodbye { code, reason })) => {
                Err(ConnectError::Refused { code: code.clone(), reason: reason.clone() })
            }
            Ok(State::Closed(CloseReason::Connect(error))) => Err(error.clone()),
            Ok(State::Closed(CloseReason::Closed | CloseReason::RuntimeStopped)) | Err(_) => {
                Err(ConnectError::Closed)
            }
            Ok(State::Connecting(_) | State::Ready) => Ok(()),
        }
    }

    fn timed_out(&self) -> ConnectError {
        let last = match &*self.0.borrow() {
            State::Connecting(Some(error)) => error.to_string(),
            State::Connecting(None) | State::Ready | State::Closed(_) => "none yet".to_owned(),
        };
        ConnectError::Timeout { last }
    }
}

impl std::fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentBuilder").field("hub", &self.hub).finish_non_exhaustive()
    }
}
