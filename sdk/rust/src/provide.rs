//! The provider's side: what is offered, and what a handler sees.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_reach_protocol::names::CapabilityName;
use agent_reach_protocol::{CallMode, ErrorCode, Priority};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, TryAcquireError, mpsc, watch};
use tokio::time::Instant;

use crate::client::Agent;
use crate::errors::{ConnectError, HandlerError};
use crate::payload::{FromPayload, IntoPayload, Payload};
use crate::session::{Failure, Invocation, Work, put};

/// What the header of a CHUNK may take of a message, at most.
const CHUNK_HEADER_BYTES: usize = 512;

/// One thing that an agent offers. The name is folded as the hub does: `_` to `-`, upper to lower case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capability {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) input_schema: Option<Bytes>,
    pub(crate) output_schema: Option<Bytes>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) qps_limit: Option<f64>,
    pub(crate) max_concurrency: Option<u64>,
    pub(crate) idempotent: bool,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) aliases: Vec<String>,
}

impl Capability {
    /// A capability of this name: lower-case words of `[a-z0-9-]` joined by dots, like `text.upper`. A name
    /// outside the grammar is refused when the agent connects.
    pub fn new(name: impl AsRef<str>) -> Self {
        let folded = agent_reach_protocol::names::fold(name.as_ref()).into_owned();
        Self { name: folded, ..Self::default() }
    }

    /// Semantic version, which callers can ask for.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// For people.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// JSON Schema of the body of a call: anything that serde writes as one. Left out when it cannot be
    /// written.
    #[must_use]
    pub fn input_schema(mut self, schema: impl IntoPayload) -> Self {
        self.input_schema = schema.into_payload().ok().map(|p| p.body);
        self
    }

    /// JSON Schema of the body of a result; see [`Capability::input_schema`].
    #[must_use]
    pub fn output_schema(mut self, schema: impl IntoPayload) -> Self {
        self.output_schema = schema.into_payload().ok().map(|p| p.body);
        self
    }

    /// Processing time of calls that name none; with 20 % grace the most that any call gets.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Most calls a second.
    #[must_use]
    pub const fn qps_limit(mut self, calls: f64) -> Self {
        self.qps_limit = Some(calls);
        self
    }

    /// Most handlers of this capability that run at once, at least 1. Others that come wait in the agent, and their
    /// callers are told how many are before them. Default: only the agent's own bound. What waits here has been
    /// given to this agent and its processing time runs: to have the hub keep it for whoever is free first, bound
    /// the agent instead.
    #[must_use]
    pub const fn max_concurrency(mut self, handlers: u64) -> Self {
        self.max_concurrency = Some(handlers);
        self
    }

    /// Whether running one intent twice is harmless: then a call whose provider was lost is tried again.
    /// Default false.
    #[must_use]
    pub const fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = idempotent;
        self
    }

    /// A label of this capability.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.labels, key.into(), value.into());
        self
    }

    /// A further name that it answers to.
    #[must_use]
    pub fn alias(mut self, name: impl AsRef<str>) -> Self {
        self.aliases.push(agent_reach_protocol::names::fold(name.as_ref()).into_owned());
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConnectError> {
        for name in std::iter::once(&self.name).chain(&self.aliases) {
            let parsed: CapabilityName =
                name.parse().map_err(|e| ConnectError::Config(format!("capability name {name:?} {e}")))?;
            if parsed.is_reserved() {
                return Err(ConnectError::Config(format!("capability name {name:?}: hub. is reserved")));
            }
        }
        Ok(())
    }
}

impl From<&str> for Capability {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// A handler with its types erased.
pub(crate) type Handler = Arc<dyn Fn(Context, Payload) -> BoxFuture<'static, Handled> + Send + Sync>;
type Handled = Result<Payload, HandlerError>;

pub(crate) fn handler<F, Fut, In, Out>(function: F) -> Handler
where
    F: Fn(Context, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, HandlerError>> + Send + 'static,
    In: FromPayload + Send + 'static,
    Out: IntoPayload + Send + 'static,
{
    let function = Arc::new(function);
    Arc::new(move |context, payload| {
        let function = Arc::clone(&function);
        Box::pin(async move {
            let body = In::from_payload(payload).map_err(|e| {
                HandlerError::invalid_request(format!("the body is not what this takes: {e}"))
            })?;
            let out = function(context, body).await?;
            out.into_payload().map_err(|e| HandlerError::new("encode", e.to_string()))
        })
    })
}

impl From<HandlerError> for Failure {
    fn from(error: HandlerError) -> Self {
        let details = error.details.or_else(|| {
            let pair = Details { code: &error.code, message: &error.message };
            (error.wire == ErrorCode::HandlerError).then(|| pair.into_payload().ok().map(|p| p.body))?
        });
        Self { code: error.wire, message: error.message, retryable: error.retryable, details }
    }
}

#[derive(serde::Serialize)]
struct Details<'a> {
    code: &'a str,
    message: &'a str,
}

/// A chunk that did not leave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// Nobody waits for it: the call was cancelled, or the agent closes.
    #[error("the call is cancelled")]
    Cancelled,
    /// Larger than the hub takes.
    #[error("the chunk has {bytes} bytes, the hub takes messages of {limit}")]
    TooLarge {
        /// The chunk's bytes.
        bytes: usize,
        /// The hub's limit of a whole message.
        limit: usize,
    },
    /// Not writable as MessagePack.
    #[error("the chunk cannot be written: {0}")]
    Encode(String),
}

/// What a handler knows of the call it serves. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) inner: Arc<Inner>,
}

/// What the connection and the context of one run share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) call: Invocation,
    pub(crate) deadline: Instant,
    pub(crate) credit: Arc<Semaphore>,
    pub(crate) cancelled: watch::Receiver<bool>,
    pub(crate) events: mpsc::Sender<Work>,
    pub(crate) max_message: Arc<AtomicUsize>,
    pub(crate) agent: Agent,
}

impl Context {
    /// Who asks: the caller's `agent_id`.
    pub fn caller(&self) -> &str {
        &self.inner.call.caller
    }

    /// The capability as this agent registered it.
    pub fn capability(&self) -> &str {
        &self.inner.call.capability
    }

    /// One business intent: the same for every try of one call.
    pub fn request_id(&self) -> &str {
        &self.inner.call.request_id
    }

    /// Hub-wide id of the call, for logs and traces.
    pub fn call_id(&self) -> &str {
        &self.inner.call.call_id
    }

    /// Which try this is, from 1.
    pub fn attempt(&self) -> u64 {
        self.inner.call.attempt
    }

    /// When the caller gives up, as far as was known when the call came.
    pub fn deadline(&self) -> Instant {
        self.inner.deadline
    }

    /// The processing time that the caller would like, if it said one; see [`Context::would_take`].
    pub fn preferred_timeout(&self) -> Option<Duration> {
        self.inner.call.preferred_timeout
    }

    /// What the caller waits for.
    pub fn mode(&self) -> CallMode {
        self.inner.call.mode
    }

    /// The caller's urgency.
    pub fn priority(&self) -> Priority {
        self.inner.call.priority
    }

    /// The caller's preferred labels.
    pub fn labels(&self) -> &[(String, String)] {
        &self.inner.call.labels
    }

    /// W3C Trace Context of the caller.
    pub fn traceparent(&self) -> Option<&str> {
        self.inner.call.traceparent.as_deref()
    }

    /// W3C Trace Context of the caller.
    pub fn tracestate(&self) -> Option<&str> {
        self.inner.call.tracestate.as_deref()
    }

    /// A private key of the caller, which begins with `x-`: `None` when the call has none of this name or it is
    /// not of this type.
    pub fn private<T: serde::de::DeserializeOwned>(&self, key: &str) -> Option<T> {
        let (_, value) = self.inner.call.private.iter().find(|(own, _)| own == key)?;
        Payload::new(value.clone()).decode().ok()
    }

    /// Of a task.
    pub fn task_id(&self) -> Option<&str> {
        self.inner.call.task_id.as_deref()
    }

    /// Whether the caller takes the result in chunks. Not so of a task: nobody may be there to put them together, so
    /// its whole result is what the handler returns.
    pub fn wants_stream(&self) -> bool {
        self.inner.call.stream && self.task_id().is_none()
    }

    /// The agent that this handler belongs to, for calls of its own.
    pub fn agent(&self) -> Agent {
        self.inner.agent.clone()
    }

    /// Sends one piece of a streamed result; waits until the caller takes more. Does nothing when the
    /// caller takes no chunks; in a task it is [`Context::progress`].
    ///
    /// # Errors
    /// [`EmitError::Cancelled`] when nobody waits any more; the handler should end then.
    pub async fn emit(&self, chunk: impl IntoPayload) -> Result<(), EmitError> {
        if !self.wants_stream() {
            return self.progress(chunk).await;
        }
        let payload = self.chunk(chunk)?;
        let permit = self.inner.credit.acquire().await.map_err(|_| EmitError::Cancelled)?;
        permit.forget();
        self.send(payload).await
    }

    /// Says how far a task is, in whatever form those who watch it understand; up to 64 KiB of it are shown. To the
    /// hub it is a sign of life: a task that goes without one for twice its processing time counts as orphaned. It
    /// never holds up the work: while the hub is away, or slow, what is said is left out. Does nothing where the
    /// call is no task, or where who submitted it did not ask for it.
    ///
    /// # Errors
    /// [`EmitError::Cancelled`] when the task was cancelled; the handler should end then.
    pub async fn progress(&self, value: impl IntoPayload) -> Result<(), EmitError> {
        if !self.inner.call.stream || self.task_id().is_none() {
            return Ok(());
        }
        let payload = self.chunk(value)?;
        match self.inner.credit.try_acquire() {
            Ok(permit) => permit.forget(),
            Err(TryAcquireError::NoPermits) => return Ok(()),
            Err(TryAcquireError::Closed) => return Err(EmitError::Cancelled),
        }
        self.send(payload).await
    }

    fn chunk(&self, chunk: impl IntoPayload) -> Result<Payload, EmitError> {
        let payload = chunk.into_payload().map_err(|e| EmitError::Encode(e.to_string()))?;
        let limit = self.inner.max_message.load(Ordering::Relaxed);
        let bytes = payload.body.len();
        if bytes.saturating_add(CHUNK_HEADER_BYTES) > limit {
            return Err(EmitError::TooLarge { bytes, limit });
        }
        Ok(payload)
    }

    async fn send(&self, payload: Payload) -> Result<(), EmitError> {
        let emit = Work::Emit(self.inner.call.run, payload);
        self.inner.events.send(emit).await.map_err(|_| EmitError::Cancelled)
    }

    /// Says how long this will take, from now. A caller that would like it sooner is told so, and decides whether
    /// to wait; the hub passes 16 such words of one run on. A handler that says nothing is expected to take as long
    /// as those of its capability usually do.
    pub async fn would_take(&self, time: Duration) {
        let word = Work::WouldTake(self.inner.call.run, time);
        if self.inner.events.send(word).await.is_err() {
            tracing::debug!("the agent is closed");
        }
    }

    /// Whether nobody waits any more.
    pub fn is_cancelled(&self) -> bool {
        *self.inner.cancelled.borrow()
    }

    /// Resolves when the call is cancelled. The handler's future is dropped a grace time later (5 s by
    /// default), unless it ends before.
    pub async fn cancelled(&self) {
        let mut cancelled = self.inner.cancelled.clone();
        // An error means that the run is over on the other side: nobody waits either.
        drop(cancelled.wait_for(|cancelled| *cancelled).await);
    }
}
