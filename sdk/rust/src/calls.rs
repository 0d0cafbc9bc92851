//! Asking: how a call is described, and the ways of waiting for it.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::limits::{CREDIT_DEFAULT, ID_BYTES_MAX, PRIVATE_BYTES_MAX, PRIVATE_KEYS_MAX};
use agent_reach_protocol::{CallMode, ErrorCode, Policy, Priority, Select};
use futures_util::future::BoxFuture;

use crate::client::Agent;
use crate::errors::CallError;
use crate::fan_out::{FanOut, FanOutChunks, FanOutStream};
use crate::payload::{FromPayload, IntoPayload, Payload, PayloadError};
use crate::pending::{PendingCall, ResultStream};
use crate::session::{CallSpec, Reply, put};
use crate::tasks::TaskHandle;

/// One call before it is made. What is not set has the hub's default, given with each method.
///
/// Await it for the result alone. [`CallBuilder::reply`] tells how it got there, [`CallBuilder::start`]
/// shows phase one apart, [`CallBuilder::stream`] gives pieces as they come, [`CallBuilder::notify`] waits
/// for phase one only, [`CallBuilder::submit`] makes a durable task, and [`CallBuilder::all`] asks every
/// agent that has the capability. Dropping what waits cancels the call.
#[must_use = "a call is made when it is awaited"]
pub struct CallBuilder<T> {
    agent: Agent,
    spec: CallSpec,
    problem: Option<PayloadError>,
    progress: bool,
    result: PhantomData<fn() -> T>,
}

impl<T: FromPayload> CallBuilder<T> {
    pub(crate) fn new(agent: Agent, capability: &str, input: Result<Payload, PayloadError>) -> Self {
        let capability = agent_reach_protocol::names::fold(capability).into_owned();
        let (payload, problem) = match input {
            Ok(payload) => (payload, None),
            Err(problem) => (Payload::default(), Some(problem)),
        };
        let spec = CallSpec { capability, payload, ..CallSpec::default() };
        Self { agent, spec, problem, progress: true, result: PhantomData }
    }

    /// Processing time, from acceptance; each chunk starts it anew. Default: the capability's own, else
    /// 30 s.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.spec.timeout = Some(timeout);
        self
    }

    /// Time for phase one. Default 3 s.
    pub const fn accept_timeout(mut self, timeout: Duration) -> Self {
        self.spec.accept_timeout = Some(timeout);
        self
    }

    /// Time for everything: waiting for a connection, queueing, every try. Default 60 s, for a task 24 h.
    pub const fn budget(mut self, budget: Duration) -> Self {
        self.spec.budget = Some(budget);
        self
    }

    /// The processing time that would be liked; a provider that expects to miss it says so when it accepts: see
    /// [`PendingCall::would_timeout`].
    pub const fn preferred_timeout(mut self, timeout: Duration) -> Self {
        self.spec.preferred_timeout = Some(timeout);
        self
    }

    /// Urgency. Default normal.
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.spec.priority = Some(priority);
        self
    }

    /// Further tries on the same agent for retryable faults. Default 2.
    pub const fn retries(mut self, retries: u64) -> Self {
        self.spec.retries = Some(retries);
        self
    }

    /// Whether one other agent may be tried after that. Default false.
    pub const fn allow_fallback(mut self, allow: bool) -> Self {
        self.spec.allow_fallback = allow;
        self
    }

    /// Takes the last good result of the same capability and body after that, if it is not older. Default:
    /// none.
    pub const fn allow_cached(mut self, age: Duration) -> Self {
        self.spec.allow_cached = Some(age);
        self
    }

    /// Whether to wait in the hub while all candidates are busy. Default true.
    pub const fn queue(mut self, queue: bool) -> Self {
        self.spec.queue = Some(queue);
        self
    }

    /// How long to wait for an agent with the capability to come. Default: not at all.
    pub const fn wait_for_agent(mut self, wait: Duration) -> Self {
        self.spec.wait = Some(wait);
        self
    }

    /// Calls with one key go to one agent while it has room. At most 128 bytes.
    pub fn affinity_key(mut self, key: impl Into<String>) -> Self {
        self.spec.affinity_key = Some(key.into());
        self
    }

    /// Prefers agents with this label.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.spec.labels, key.into(), value.into());
        self
    }

    /// Prefers agents that have the labels of this one, as in its zone or of its team. A label that the call
    /// names itself goes before.
    pub fn inherit_labels(mut self) -> Self {
        for (key, value) in self.agent.labels() {
            if self.spec.labels.iter().all(|(own, _)| own != key) {
                self.spec.labels.push((key.clone(), value.clone()));
            }
        }
        self
    }

    /// Takes only agents with this label.
    pub fn require(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.spec.require, key.into(), value.into());
        self
    }

    /// Exactly these agents. More than one makes a fan-out: see [`CallBuilder::all`].
    pub fn agents<I: Into<String>>(mut self, agents: impl IntoIterator<Item = I>) -> Self {
        self.spec.agents.extend(agents.into_iter().map(Into::into));
        self
    }

    /// Final choice among candidates. Default: the least loaded.
    pub const fn policy(mut self, policy: Policy) -> Self {
        self.spec.policy = Some(policy);
        self
    }

    /// Semver requirement on the capability.
    pub fn version(mut self, requirement: impl Into<String>) -> Self {
        self.spec.version = Some(requirement.into());
        self
    }

    /// The business intent: calls with one id are one call, over retries, reconnects and restarts. 1 to 128
    /// bytes. Default: made by the SDK, good for reconnects of this program.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.spec.request_id = Some(id.into());
        self
    }

    /// How long the hub remembers the outcome of this `request_id`. Default 24 h, for ids made by the SDK
    /// 10 min.
    pub const fn keep(mut self, keep: Duration) -> Self {
        self.spec.keep = Some(keep);
        self
    }

    /// W3C Trace Context, carried through.
    pub fn trace(mut self, traceparent: impl Into<String>, tracestate: Option<String>) -> Self {
        self.spec.traceparent = Some(traceparent.into());
        self.spec.tracestate = tracestate;
        self
    }

    /// A private key, which begins with `x-` and which the hub carries through to the handler. At most 32 of them
    /// and 16 KiB together.
    pub fn private(mut self, key: impl Into<String>, value: impl IntoPayload) -> Self {
        match value.into_payload() {
            Ok(value) => put(&mut self.spec.private, key.into(), value.body),
            Err(problem) => self.problem = Some(problem),
        }
        self
    }

    /// JSON Schema of what the caller means to read: agents whose own `output_schema` lacks a property that it
    /// requires are passed over.
    pub fn expected_output(mut self, schema: impl IntoPayload) -> Self {
        match schema.into_payload() {
            Ok(schema) => self.spec.expected_output = Some(schema.body),
            Err(problem) => self.problem = Some(problem),
        }
        self
    }

    /// Of a task: an HTTPS address that its result is posted to as well.
    pub fn callback_url(mut self, url: impl Into<String>) -> Self {
        self.spec.callback_url = Some(url.into());
        self
    }

    /// Of a task: whose inbox its result goes to as well, as `agent:AGENT_ID`.
    pub fn reply_to(mut self, inbox: impl Into<String>) -> Self {
        self.spec.reply_to = Some(inbox.into());
        self
    }

    /// Of a task: whether its handler is asked to say how far it is, for those who watch the task. What it says is a
    /// sign of life too. Default true.
    pub const fn progress(mut self, progress: bool) -> Self {
        self.progress = progress;
        self
    }

    /// Waits for the result and how it got there.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn reply(self) -> Result<Reply<T>, CallError> {
        self.start().await?.reply().await
    }

    /// Makes the call and returns at once; the handle shows phase one and phase two apart.
    ///
    /// # Errors
    /// When the call cannot be made at all.
    pub async fn start(self) -> Result<PendingCall<T>, CallError> {
        let (agent, spec) = self.single()?;
        PendingCall::make(agent, spec).await
    }

    /// Waits for phase one only: a provider has it, and nobody will say how it ends.
    ///
    /// # Errors
    /// When no provider took it.
    pub async fn notify(mut self) -> Result<Reply<()>, CallError> {
        self.spec.mode = Some(CallMode::Notify);
        let (agent, spec) = self.single()?;
        let pending: PendingCall<Payload> = PendingCall::make(agent, spec).await?;
        let (_, reply) = pending.reply().await?.with_body(());
        Ok(reply)
    }

    /// Takes the result in pieces of type `C` as they come, and an end of type `T`. The provider is never
    /// more than a window (16 pieces) ahead of what was taken.
    ///
    /// # Errors
    /// When the call cannot be made at all.
    pub async fn stream<C: FromPayload>(mut self) -> Result<ResultStream<C, T>, CallError> {
        let window = *self.spec.window.get_or_insert(CREDIT_DEFAULT);
        let (agent, spec) = self.single()?;
        agent.open(spec).await.map(|inbox| ResultStream::new(inbox, window))
    }

    /// Window of [`CallBuilder::stream`], in chunks. Default 16, at least 1.
    pub fn window(mut self, chunks: u64) -> Self {
        self.spec.window = Some(chunks.clamp(1, 1 << 20));
        self
    }

    /// Makes a task: it is stored by the hub, survives restarts of the hub, of its provider and of this program, and
    /// its result is kept for 24 h after its end. Returns when it is stored, before any provider has it: it waits for
    /// one for as long as its budget lasts. Until then it is carried over lost connections like any call, under one
    /// `request_id`, so that it is stored once; dropping this future cancels it.
    ///
    /// # Errors
    /// When the hub did not store it: `overloaded` when its store cannot be written now, `schema_mismatch` and
    /// `unauthorized` as for any call.
    pub async fn submit(mut self) -> Result<TaskHandle<T>, CallError> {
        self.spec.mode = Some(CallMode::Task);
        self.spec.window = self.progress.then(|| self.spec.window.unwrap_or(CREDIT_DEFAULT));
        let (agent, spec) = self.single()?;
        let inbox = agent.open(spec).await?;
        TaskHandle::stored(agent, inbox).await
    }

    /// Asks every agent that has the capability (or each of [`CallBuilder::agents`]).
    pub const fn all(mut self) -> FanOutBuilder<T> {
        self.spec.select = Some(Select::All);
        FanOutBuilder(self)
    }

    /// Asks at most so many different agents.
    pub fn several(mut self, targets: u64) -> FanOutBuilder<T> {
        self.spec.select = Some(Select::Count(targets.max(1)));
        FanOutBuilder(self)
    }

    fn single(self) -> Result<(Agent, Arc<CallSpec>), CallError> {
        if self.spec.is_fan_out() {
            let text = "several agents answer one by one: use all()";
            return Err(CallError::local(ErrorCode::InvalidRequest, text));
        }
        self.checked()
    }

    fn checked(self) -> Result<(Agent, Arc<CallSpec>), CallError> {
        if let Some(problem) = self.problem {
            let text = format!("the input cannot be written: {problem}");
            return Err(CallError::local(ErrorCode::InvalidRequest, text));
        }
        if self.spec.request_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > ID_BYTES_MAX) {
            let text = format!("request_id must have 1 to {ID_BYTES_MAX} bytes");
            return Err(CallError::local(ErrorCode::InvalidRequest, text));
        }
        let private = &self.spec.private;
        let bytes: usize = private.iter().map(|(key, value)| key.len() + value.len()).sum();
        let named = private.iter().all(|(key, _)| key.starts_with("x-"));
        if !named || private.len() > PRIVATE_KEYS_MAX || bytes > PRIVATE_BYTES_MAX {
            let text = format!(
                "private keys begin with x-; at most {PRIVATE_KEYS_MAX} and {PRIVATE_BYTES_MAX} bytes together"
            );
            return Err(CallError::local(ErrorCode::InvalidRequest, text));
        }
        Ok((self.agent, Arc::new(self.spec)))
    }
}

impl<T: FromPayload + Send + 'static> IntoFuture for CallBuilder<T> {
    type Output = Result<T, CallError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.reply().await.map(|reply| reply.body) })
    }
}

/// A call of several agents before it is made. Await it for all answers together.
#[must_use = "a call is made when it is awaited"]
pub struct FanOutBuilder<T>(CallBuilder<T>);

impl<T: FromPayload> FanOutBuilder<T> {
    /// Takes the answers as they come.
    ///
    /// # Errors
    /// When the call cannot be made at all.
    pub async fn stream(self) -> Result<FanOutStream<T>, CallError> {
        let (agent, spec) = self.0.checked()?;
        agent.open(spec).await.map(FanOutStream::new)
    }

    /// Takes each answer in pieces of type `C` as they come, and its end of type `T`. Each target is never more
    /// than a window (16 pieces) ahead of what was taken of its own.
    ///
    /// # Errors
    /// When the call cannot be made at all.
    pub async fn chunks<C: FromPayload>(mut self) -> Result<FanOutChunks<C, T>, CallError> {
        let window = *self.0.spec.window.get_or_insert(CREDIT_DEFAULT);
        let (agent, spec) = self.0.checked()?;
        agent.open(spec).await.map(|inbox| FanOutChunks::new(inbox, window))
    }
}

impl<T: FromPayload + Send + 'static> IntoFuture for FanOutBuilder<T> {
    type Output = Result<FanOut<T>, CallError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.stream().await?.collect().await })
    }
}

impl<T> std::fmt::Debug for CallBuilder<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallBuilder").field("capability", &self.spec.capability).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for FanOutBuilder<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
