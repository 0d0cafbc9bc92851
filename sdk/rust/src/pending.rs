//! Waiting: the handles of calls that were made.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use agent_reach_protocol::ErrorCode;
use futures_util::Stream;
use tokio::time::Instant;

use crate::client::Agent;
use crate::errors::{CallError, Code};
use crate::inbox::Receiver;
use crate::payload::{FromPayload, Payload};
use crate::session::{Acceptance, CallEvent, CallSpec, Reply};

/// What an ended inbox without an end means: cannot come, since the connection's end always tells one.
pub(crate) fn ended() -> CallError {
    CallError::new(Code::Closed, "the call had ended")
}

pub(crate) fn typed<T: FromPayload>(reply: Reply<Payload>) -> Result<Reply<T>, CallError> {
    let (payload, rest) = reply.with_body(());
    match T::from_payload(payload) {
        Ok(body) => Ok(rest.with_body(body).1),
        Err(problem) => {
            let text = format!("the result is not of the type wanted: {problem}");
            let mut error = CallError::new(Code::Decode, text).accepted(crate::Accepted::Yes);
            error.request_id = rest.request_id;
            error.call_id = rest.call_id;
            error.target = rest.target;
            error.attempts = rest.attempts;
            Err(error)
        }
    }
}

/// A call that was made. Dropping it cancels the call.
///
/// Between its two phases the caller can still decide. Above all when a provider says that it will miss
/// [`crate::CallBuilder::preferred_timeout`]:
///
/// ```no_run
/// # use agent_reach_sdk::{Agent, CallError};
/// # use std::time::Duration;
/// # async fn ask(agent: Agent) -> Result<String, CallError> {
/// let liked = Duration::from_secs(2);
/// let mut pending = agent.call::<String>("report.build", "May").preferred_timeout(liked).start().await?;
/// if let Some(late) = pending.would_timeout().await
///     && late.wait.is_none_or(|wait| wait > 2 * liked)
/// {
///     pending.elsewhere().await?; // or pending.cancel(), or nothing to wait on
/// }
/// pending.result().await
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct PendingCall<T> {
    agent: Agent,
    spec: Arc<CallSpec>,
    made: Instant,
    inbox: Receiver,
    acceptance: Option<Acceptance>,
    end: Option<Result<Reply<Payload>, CallError>>,
    result: PhantomData<fn() -> T>,
}

impl<T: FromPayload> PendingCall<T> {
    pub(crate) async fn make(agent: Agent, spec: Arc<CallSpec>) -> Result<Self, CallError> {
        let inbox = agent.open(Arc::clone(&spec)).await?;
        let made = Instant::now();
        Ok(Self { agent, spec, made, inbox, acceptance: None, end: None, result: PhantomData })
    }

    /// Waits for phase one: a provider has the call. `None` when the result came first, which quick providers let
    /// stand for it.
    ///
    /// # Errors
    /// The call's failure, when it failed before.
    pub async fn accepted(&mut self) -> Result<Option<Acceptance>, CallError> {
        while self.acceptance.is_none() && self.end.is_none() {
            self.advance().await;
        }
        match &self.end {
            Some(Err(error)) if self.acceptance.is_none() => Err(error.clone()),
            Some(_) | None => Ok(self.acceptance.clone()),
        }
    }

    /// Waits until a provider says that it will miss [`crate::CallBuilder::preferred_timeout`], which it can with
    /// phase one or later. `None` when the call ended before any did; its end is for [`PendingCall::reply`] to
    /// tell.
    pub async fn would_timeout(&mut self) -> Option<Acceptance> {
        loop {
            if self.end.is_some() {
                return None;
            }
            if let Some(acceptance) = self.acceptance.as_ref().filter(|acceptance| acceptance.would_timeout) {
                return Some(acceptance.clone());
            }
            self.advance().await;
        }
    }

    /// Waits for the result and how it got there.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn reply(mut self) -> Result<Reply<T>, CallError> {
        self.ended().await.and_then(typed)
    }

    /// Waits for the result alone.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn result(self) -> Result<T, CallError> {
        self.reply().await.map(|reply| reply.body)
    }

    /// Cancels the call and waits for what becomes of it, which dropping it does not: its handler may just have
    /// completed it.
    ///
    /// # Errors
    /// `cancelled` when it was, else the call's failure.
    pub async fn cancel(mut self) -> Result<Reply<T>, CallError> {
        self.withdraw().await.and_then(typed)
    }

    /// Takes the call from the agent that accepted it and asks the least loaded other one that is ready, has the
    /// capability and the labels that are required. `true` when that was done: from here on this handle is about the
    /// new call. `false` when there was nothing to do, and what there is of the first call goes on: its end is here,
    /// nobody else has the capability, or the call names the agent that it is for.
    ///
    /// The first handler is cancelled and its end waited for (a provider's `cancel_grace`, 5 s by default, at the
    /// most), and only when that end is `cancelled` the other agent is asked: the two never run at once, and one that
    /// completed is not run again. What a cancelled handler did before it stopped stays done, as with every
    /// cancelling. The new call has a `request_id` of its own, since the first one's is `cancelled` for good; it has
    /// what is left of a budget that was named, and its own tries.
    ///
    /// # Errors
    /// Of `hub.agents.list`, which this agent must be allowed to call: the first call goes on. When the agent is
    /// closed meanwhile, that.
    pub async fn elsewhere(&mut self) -> Result<bool, CallError> {
        let Some(target) = self.accepted().await?.and_then(|acceptance| acceptance.target) else {
            return Ok(false);
        };
        if self.end.is_some() || !self.spec.agents.is_empty() {
            return Ok(false);
        }
        let Some(other) = self.agent.another(&self.spec, &target).await? else { return Ok(false) };
        let end = self.withdraw().await;
        if !matches!(&end, Err(error) if error.code == ErrorCode::Cancelled) {
            self.end = Some(end);
            return Ok(false);
        }
        let mut spec = CallSpec { agents: vec![other], request_id: None, ..CallSpec::clone(&self.spec) };
        spec.budget = spec.budget.map(|budget| budget.saturating_sub(self.made.elapsed()));
        *self = Self::make(self.agent.clone(), Arc::new(spec)).await?;
        Ok(true)
    }

    async fn withdraw(&mut self) -> Result<Reply<Payload>, CallError> {
        if self.end.is_none() {
            self.agent.withdraw(self.inbox.key()).await;
        }
        self.ended().await
    }

    async fn ended(&mut self) -> Result<Reply<Payload>, CallError> {
        loop {
            if let Some(end) = self.end.take() {
                return end;
            }
            self.advance().await;
        }
    }

    async fn advance(&mut self) {
        match self.inbox.next().await {
            Some(CallEvent::Accepted(acceptance)) => self.acceptance = Some(acceptance),
            Some(CallEvent::Ended(end)) => self.end = Some(end.map(|(reply, _)| reply)),
            Some(CallEvent::Chunk { .. } | CallEvent::Part { .. }) => {}
            None => self.end = Some(Err(ended())),
        }
    }
}

/// One piece of a streamed result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk<C> {
    /// Its number, from 0 without gaps.
    pub seq: u64,
    /// Whose piece.
    pub target: Option<String>,
    /// The piece.
    pub body: C,
}

/// A result in pieces. Ends after the last piece, or with one error; then [`ResultStream::end`] has the
/// final result. A stream is whole only when its end came: one that broke off says `interrupted` or the
/// call's failure, never just nothing. Dropping it before cancels the call.
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct ResultStream<C, T> {
    inbox: Receiver,
    window: u64,
    taken: Taken,
    acceptance: Option<Acceptance>,
    end: Option<Result<Reply<Payload>, CallError>>,
    types: PhantomData<fn() -> (C, T)>,
}

impl<C: FromPayload, T: FromPayload> ResultStream<C, T> {
    pub(crate) const fn new(inbox: Receiver, window: u64) -> Self {
        Self { inbox, window, taken: Taken(0), acceptance: None, end: None, types: PhantomData }
    }

    /// The next piece; `None` after the last one, or after an error.
    pub async fn next(&mut self) -> Option<Result<Chunk<C>, CallError>> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// Phase one, once it was seen.
    pub const fn acceptance(&self) -> Option<&Acceptance> {
        self.acceptance.as_ref()
    }

    /// The final result; passes over pieces that were not taken.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn end(mut self) -> Result<Reply<T>, CallError> {
        loop {
            if let Some(end) = self.end.take() {
                return end.and_then(typed);
            }
            self.next().await;
        }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Chunk<C>, CallError>>> {
        while self.end.is_none() {
            match std::task::ready!(self.inbox.poll_next(cx)) {
                Some(CallEvent::Accepted(acceptance)) => self.acceptance = Some(acceptance),
                Some(CallEvent::Chunk { seq, target, payload }) => {
                    self.taken.take(&self.inbox, self.window, None);
                    return Poll::Ready(Some(piece(seq, target, payload)));
                }
                Some(CallEvent::Part { .. }) => {}
                Some(CallEvent::Ended(end)) => {
                    self.end = Some(end.map(|(reply, _)| reply));
                    if let Some(Err(error)) = &self.end {
                        return Poll::Ready(Some(Err(error.clone())));
                    }
                }
                None => self.end = Some(Err(ended())),
            }
        }
        Poll::Ready(None)
    }
}

/// A chunk with its body read as the type wanted.
pub(crate) fn piece<C: FromPayload>(
    seq: u64,
    target: Option<String>,
    payload: Payload,
) -> Result<Chunk<C>, CallError> {
    C::from_payload(payload).map(|body| Chunk { seq, target, body }).map_err(|problem| {
        CallError::new(Code::Decode, format!("chunk {seq} is not of the type wanted: {problem}"))
            .accepted(crate::Accepted::Yes)
    })
}

/// Chunks taken for which the provider has not got new credit yet.
#[derive(Debug, Default)]
pub(crate) struct Taken(u64);

impl Taken {
    /// One more. Lets the provider go on half a window at a time: one envelope for many chunks.
    pub(crate) fn take(&mut self, inbox: &Receiver, window: u64, target: Option<&str>) {
        self.0 += 1;
        if self.0 >= window.div_ceil(2) {
            inbox.grant(self.0, target.map(str::to_owned));
            self.0 = 0;
        }
    }
}

impl<C: FromPayload, T: FromPayload> Stream for ResultStream<C, T> {
    type Item = Result<Chunk<C>, CallError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(cx)
    }
}
