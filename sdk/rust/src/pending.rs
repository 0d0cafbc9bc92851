//! Waiting: the handles of calls that were made.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use agent_reach_protocol::Summary;
use futures_util::Stream;

use crate::client::Agent;
use crate::errors::{CallError, Code};
use crate::inbox::Receiver;
use crate::payload::{FromPayload, Payload};
use crate::session::{Acceptance, CallEvent, Reply};

/// What an ended inbox without an end means: cannot come, since the connection's end always tells one.
fn ended() -> CallError {
    CallError::new(Code::Closed, "the call had ended")
}

fn typed<T: FromPayload>(reply: Reply<Payload>) -> Result<Reply<T>, CallError> {
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
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct PendingCall<T> {
    inbox: Receiver,
    acceptance: Option<Acceptance>,
    end: Option<Result<Reply<Payload>, CallError>>,
    result: PhantomData<fn() -> T>,
}

impl<T: FromPayload> PendingCall<T> {
    pub(crate) const fn new(inbox: Receiver) -> Self {
        Self { inbox, acceptance: None, end: None, result: PhantomData }
    }

    /// Waits for phase one: a provider has the call. `None` when the result came first, which quick
    /// providers let stand for it.
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

    /// Waits for the result and how it got there.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn reply(mut self) -> Result<Reply<T>, CallError> {
        loop {
            if let Some(end) = self.end.take() {
                return end.and_then(typed);
            }
            self.advance().await;
        }
    }

    /// Waits for the result alone.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn result(self) -> Result<T, CallError> {
        self.reply().await.map(|reply| reply.body)
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
    taken: u64,
    acceptance: Option<Acceptance>,
    end: Option<Result<Reply<Payload>, CallError>>,
    types: PhantomData<fn() -> (C, T)>,
}

impl<C: FromPayload, T: FromPayload> ResultStream<C, T> {
    pub(crate) const fn new(inbox: Receiver, window: u64) -> Self {
        Self { inbox, window, taken: 0, acceptance: None, end: None, types: PhantomData }
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
                    self.grant();
                    return Poll::Ready(Some(self.piece(seq, target, payload)));
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

    fn piece(&self, seq: u64, target: Option<String>, payload: Payload) -> Result<Chunk<C>, CallError> {
        C::from_payload(payload).map(|body| Chunk { seq, target, body }).map_err(|problem| {
            CallError::new(Code::Decode, format!("chunk {seq} is not of the type wanted: {problem}"))
        })
    }

    /// Lets the provider go on, half a window at a time: one envelope for many chunks.
    fn grant(&mut self) {
        self.taken += 1;
        if self.taken >= self.window.div_ceil(2) {
            self.inbox.grant(self.taken);
            self.taken = 0;
        }
    }
}

impl<C: FromPayload, T: FromPayload> Stream for ResultStream<C, T> {
    type Item = Result<Chunk<C>, CallError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(cx)
    }
}

/// One agent's part of a fan-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Part<T> {
    /// Who answered.
    pub target: String,
    /// How its part ended; one target's failure is its own.
    pub result: Result<Reply<T>, CallError>,
}

/// All answers of a fan-out.
#[derive(Clone, Debug, PartialEq)]
pub struct FanOut<T> {
    /// Each target's part, in the order they came.
    pub parts: Vec<Part<T>>,
    /// The hub's count.
    pub summary: Summary,
}

/// The answers of a fan-out as they come. Dropping it before the end cancels the call.
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct FanOutStream<T> {
    inbox: Receiver,
    end: Option<Result<Summary, CallError>>,
    result: PhantomData<fn() -> T>,
}

impl<T: FromPayload> FanOutStream<T> {
    pub(crate) const fn new(inbox: Receiver) -> Self {
        Self { inbox, end: None, result: PhantomData }
    }

    /// The next target's part; `None` after the last, when [`FanOutStream::summary`] says how it ended.
    pub async fn next(&mut self) -> Option<Part<T>> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// The hub's count; passes over parts that were not taken.
    ///
    /// # Errors
    /// The call's failure, when it failed as a whole.
    pub async fn summary(mut self) -> Result<Summary, CallError> {
        loop {
            if let Some(end) = self.end.take() {
                return end;
            }
            self.next().await;
        }
    }

    /// Takes all parts.
    ///
    /// # Errors
    /// The call's failure, when it failed as a whole.
    pub async fn collect(mut self) -> Result<FanOut<T>, CallError> {
        let mut parts = Vec::new();
        while let Some(part) = self.next().await {
            parts.push(part);
        }
        Ok(FanOut { parts, summary: self.summary().await? })
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Part<T>>> {
        while self.end.is_none() {
            match std::task::ready!(self.inbox.poll_next(cx)) {
                Some(CallEvent::Part { target, result }) => {
                    let target = target.unwrap_or_default();
                    return Poll::Ready(Some(Part { target, result: result.and_then(typed) }));
                }
                Some(CallEvent::Accepted(_) | CallEvent::Chunk { .. }) => {}
                Some(CallEvent::Ended(end)) => {
                    self.end = Some(end.map(|(_, summary)| summary.unwrap_or_default()));
                }
                None => self.end = Some(Err(ended())),
            }
        }
        Poll::Ready(None)
    }
}

impl<T: FromPayload> Stream for FanOutStream<T> {
    type Item = Part<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(cx)
    }
}

/// A task that the hub has stored. Dropping the handle leaves the task alone.
#[derive(Debug)]
pub struct Task<T> {
    agent: Agent,
    inbox: Receiver,
    task_id: String,
    end: Option<Result<Reply<Payload>, CallError>>,
    result: PhantomData<fn() -> T>,
}

impl<T: FromPayload> Task<T> {
    /// Waits until the task is stored. A duplicate of an ended one has its end at once.
    pub(crate) async fn stored(agent: Agent, inbox: Receiver) -> Result<Self, CallError> {
        let (task_id, end) = loop {
            match inbox.next().await {
                Some(CallEvent::Accepted(acceptance)) => {
                    let Some(task_id) = acceptance.task_id else { continue };
                    break (task_id, None);
                }
                Some(CallEvent::Ended(Ok((reply, _)))) => {
                    break (reply.task_id.clone().unwrap_or_default(), Some(Ok(reply)));
                }
                Some(CallEvent::Ended(Err(error))) => return Err(error),
                Some(CallEvent::Chunk { .. } | CallEvent::Part { .. }) => {}
                None => return Err(ended()),
            }
        };
        inbox.keep_running();
        Ok(Self { agent, inbox, task_id, end, result: PhantomData })
    }

    /// The task's id, for `hub.tasks.get`.
    pub fn task_id(&self) -> &str {
        &self.task_id
    }

    /// Waits for the task's result, over reconnects and restarts of the hub, and tells the hub that it
    /// arrived.
    ///
    /// # Errors
    /// The task's failure.
    pub async fn result(mut self) -> Result<Reply<T>, CallError> {
        let end = loop {
            if let Some(end) = self.end.take() {
                break end;
            }
            match self.inbox.next().await {
                Some(CallEvent::Ended(end)) => break end.map(|(reply, _)| reply),
                Some(CallEvent::Accepted(_) | CallEvent::Chunk { .. } | CallEvent::Part { .. }) => {}
                None => break Err(ended()),
            }
        };
        // An end that this side made itself is no result: the hub still has the task.
        if !matches!(&end, Err(error) if error.code == Code::Closed) {
            self.inbox.receipt(&self.task_id);
        }
        end.and_then(typed)
    }

    /// Cancels the task in the hub and at its provider.
    ///
    /// # Errors
    /// The failure of the call to `hub.tasks.cancel`.
    pub async fn cancel(&self) -> Result<(), CallError> {
        let input = TaskId { task_id: &self.task_id };
        self.agent.call::<Payload>("hub.tasks.cancel", &input).reply().await.map(drop)
    }

    /// Watches the task: the state now, then each change, as `hub.tasks.watch` gives them.
    ///
    /// # Errors
    /// When the call cannot be made.
    pub async fn watch<C: FromPayload>(&self) -> Result<ResultStream<C, Payload>, CallError> {
        let input = TaskId { task_id: &self.task_id };
        self.agent.call::<Payload>("hub.tasks.watch", &input).stream().await
    }
}

#[derive(serde::Serialize)]
struct TaskId<'a> {
    task_id: &'a str,
}
