//! The handle: cheap to clone, all of it usable at once from everywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use agent_reach_protocol::AgentStatus;
use tokio::sync::{mpsc, watch};

use crate::builder::AgentBuilder;
use crate::calls::CallBuilder;
use crate::control::{Control, Item};
use crate::errors::{CallError, CloseReason, Code, ConnectError, HandlerError};
use crate::inbox;
use crate::payload::{FromPayload, IntoPayload};
use crate::provide::{Capability, Context, Handler, handler};
use crate::session::{CallKey, CallSpec, Load, Pairs};
use crate::tasks::{Inbox, Mailbox};

/// What a handle asks of the task that owns the connection.
pub(crate) enum Command {
    Open(CallKey, Arc<CallSpec>, inbox::Sender),
    Withdraw(CallKey),
    Claim(CallKey, String, inbox::Sender),
    Add(Capability, Handler),
    Remove(String),
    SetLoad(Load),
    SetStatus(AgentStatus),
    Close(Duration),
}

/// Where the agent stands, for those that wait for it.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// No session now; with the last failure.
    Connecting(Option<ConnectError>),
    Ready,
    Closed(CloseReason),
}

/// What all handles and the connection's task share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) agent_id: String,
    pub(crate) labels: Pairs,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) control: Arc<Control>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) state: watch::Receiver<State>,
    pub(crate) max_message: Arc<AtomicUsize>,
    pub(crate) drain: Duration,
    pub(crate) keys: AtomicU64,
    pub(crate) handles: AtomicUsize,
}

/// One agent: provides capabilities, calls those of others, over one connection that mends itself.
///
/// Dropping the last handle closes the agent as [`Agent::close`] does.
pub struct Agent {
    shared: Arc<Shared>,
}

impl Agent {
    /// Begins an agent of this id at a hub's address, like `wss://localhost:7443`. The path `/v1/connect`
    /// is added when there is none.
    pub fn builder(hub: impl Into<String>, agent_id: impl Into<String>) -> AgentBuilder {
        AgentBuilder::new(hub.into(), agent_id.into())
    }

    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        shared.handles.fetch_add(1, Ordering::Relaxed);
        Self { shared }
    }

    /// The agent's id.
    pub fn agent_id(&self) -> &str {
        &self.shared.agent_id
    }

    /// A call of one agent that has the capability. Await it for the result, or see what else
    /// [`CallBuilder`] can do.
    pub fn call<T: FromPayload>(
        &self,
        capability: impl AsRef<str>,
        input: impl IntoPayload,
    ) -> CallBuilder<T> {
        CallBuilder::new(self.clone(), capability.as_ref(), input.into_payload())
    }

    /// Results of tasks that no handle of this program waits for: see [`Inbox`].
    pub fn inbox(&self) -> Inbox {
        Inbox::new(self.clone(), Arc::clone(&self.shared.mailbox), Arc::clone(&self.shared.control))
    }

    /// Adds a capability, or replaces it, while connected; each later session has it as well.
    ///
    /// # Errors
    /// When the name is outside the grammar, or the agent is closed.
    pub async fn add_capability<F, Fut, In, Out>(
        &self,
        capability: impl Into<Capability>,
        function: F,
    ) -> Result<(), ConnectError>
    where
        F: Fn(Context, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, HandlerError>> + Send + 'static,
        In: FromPayload + Send + 'static,
        Out: IntoPayload + Send + 'static,
    {
        let capability = capability.into();
        capability.check()?;
        self.command(Command::Add(capability, handler(function))).await.map_err(|_| ConnectError::Closed)
    }

    /// Withdraws a capability; its open calls go on.
    ///
    /// # Errors
    /// When the agent is closed.
    pub async fn remove_capability(&self, name: impl AsRef<str>) -> Result<(), ConnectError> {
        let name = agent_reach_protocol::names::fold(name.as_ref()).into_owned();
        self.command(Command::Remove(name)).await.map_err(|_| ConnectError::Closed)
    }

    /// Reports load figures now and with each heartbeat from now on. Calls that run are counted by the SDK.
    ///
    /// # Errors
    /// When the agent is closed.
    pub async fn update_load(&self, load: Load) -> Result<(), ConnectError> {
        self.command(Command::SetLoad(load)).await.map_err(|_| ConnectError::Closed)
    }

    /// Changes readiness, for this session and later ones.
    ///
    /// # Errors
    /// When the agent is closed.
    pub async fn update_status(&self, status: AgentStatus) -> Result<(), ConnectError> {
        self.command(Command::SetStatus(status)).await.map_err(|_| ConnectError::Closed)
    }

    /// Whether a session is open for new calls at this moment. If not, they wait for the next one.
    pub fn is_connected(&self) -> bool {
        matches!(*self.shared.state.borrow(), State::Ready)
    }

    /// Drains and ends: takes no new calls, lets handlers end, says GOODBYE. Handlers get the drain time of
    /// the builder (10 s by default), after which they are dropped.
    pub async fn close(&self) -> CloseReason {
        self.close_within(self.shared.drain).await
    }

    /// As [`Agent::close`], with this drain time.
    pub async fn close_within(&self, bound: Duration) -> CloseReason {
        // When the task is gone already, the state says why.
        drop(self.command(Command::Close(bound)).await);
        self.closed().await
    }

    /// Resolves when the agent's life ends, with the reason: closed by this program, or thrown out by the
    /// hub for good.
    pub async fn closed(&self) -> CloseReason {
        let mut state = self.shared.state.clone();
        match state.wait_for(|state| matches!(state, State::Closed(_))).await.as_deref() {
            Ok(State::Closed(reason)) => reason.clone(),
            Ok(State::Connecting(_) | State::Ready) | Err(_) => CloseReason::RuntimeStopped,
        }
    }

    /// Serves until the agent is closed, or until SIGTERM or SIGINT, which drain it; a second signal ends it
    /// at once. What a program that only provides puts at its end.
    pub async fn serve(&self) -> CloseReason {
        tokio::select! {
            reason = self.closed() => return reason,
            () = signal() => {}
        }
        tokio::select! {
            reason = self.close() => reason,
            () = signal() => self.close_within(Duration::ZERO).await,
        }
    }

    /// Hands a call to the connection.
    pub(crate) async fn open(&self, spec: Arc<CallSpec>) -> Result<inbox::Receiver, CallError> {
        let key = self.shared.keys.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = inbox::inbox(key, Arc::clone(&self.shared.control));
        match self.command(Command::Open(key, spec, sender)).await {
            Ok(()) => Ok(receiver),
            Err(_) => Err(self.is_closed().accepted(crate::Accepted::No)),
        }
    }

    /// Has the result of a task come to the receiver.
    pub(crate) async fn claim(&self, task_id: &str) -> Result<inbox::Receiver, CallError> {
        let key = self.shared.keys.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = inbox::inbox(key, Arc::clone(&self.shared.control));
        receiver.keep_running();
        match self.command(Command::Claim(key, task_id.to_owned(), sender)).await {
            Ok(()) => Ok(receiver),
            Err(_) => Err(self.is_closed()),
        }
    }

    /// A task's result is in the program's hands.
    pub(crate) fn received(&self, task_id: &str) {
        self.shared.control.push(Item::Received(task_id.to_owned()));
    }

    fn is_closed(&self) -> CallError {
        let reason = match &*self.shared.state.borrow() {
            State::Closed(reason) => reason.to_string(),
            State::Connecting(_) | State::Ready => "the agent is closed".to_owned(),
        };
        CallError::new(Code::Closed, reason)
    }

    /// Has a call cancelled whose end is waited for.
    pub(crate) async fn withdraw(&self, key: CallKey) {
        // When the connection's task is gone, every call has its end.
        drop(self.command(Command::Withdraw(key)).await);
    }

    /// The agent's own labels.
    pub(crate) fn labels(&self) -> &Pairs {
        &self.shared.labels
    }

    async fn command(&self, command: Command) -> Result<(), mpsc::error::SendError<Command>> {
        self.shared.commands.send(command).await
    }
}

impl Clone for Agent {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.shared.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.control.push(Item::Unheld);
        }
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("agent_id", &self.shared.agent_id).finish_non_exhaustive()
    }
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
