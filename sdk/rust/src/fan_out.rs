//! Waiting for several agents at once.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use agent_reach_protocol::Summary;
use futures_util::Stream;

use crate::errors::CallError;
use crate::inbox::Receiver;
use crate::payload::FromPayload;
use crate::pending::{Chunk, Taken, ended, piece, typed};
use crate::session::{CallEvent, Reply};

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

/// The answers of a fan-out as they come, one part for each target. Dropping it before the end cancels the call.
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

/// What comes of a fan-out whose answers come in pieces.
#[derive(Clone, Debug, PartialEq)]
pub enum FanOutItem<C, T> {
    /// A piece of one target's result; each target counts its own from 0.
    Chunk(Chunk<C>),
    /// One target's end; none of its chunks come after it.
    Part(Part<T>),
}

/// The answers of a fan-out in pieces, as they come from all targets. Each target has a window of its own, so one
/// that is ahead holds up no other. Dropping it before the end cancels the call.
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct FanOutChunks<C, T> {
    inbox: Receiver,
    window: u64,
    /// Only targets that are not at their end.
    taken: BTreeMap<String, Taken>,
    end: Option<Result<Summary, CallError>>,
    types: PhantomData<fn() -> (C, T)>,
}

impl<C: FromPayload, T: FromPayload> FanOutChunks<C, T> {
    pub(crate) const fn new(inbox: Receiver, window: u64) -> Self {
        Self { inbox, window, taken: BTreeMap::new(), end: None, types: PhantomData }
    }

    /// The next piece or part; `None` after the last, when [`FanOutChunks::summary`] says how it ended. A piece
    /// that is not of type `C` comes as an error, and the others go on.
    pub async fn next(&mut self) -> Option<Result<FanOutItem<C, T>, CallError>> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// The hub's count; passes over what was not taken.
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

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Result<FanOutItem<C, T>, CallError>>> {
        while self.end.is_none() {
            match std::task::ready!(self.inbox.poll_next(cx)) {
                Some(CallEvent::Chunk { seq, target, payload }) => {
                    let name = target.clone().unwrap_or_default();
                    self.taken.entry(name).or_default().take(&self.inbox, self.window, target.as_deref());
                    return Poll::Ready(Some(piece(seq, target, payload).map(FanOutItem::Chunk)));
                }
                Some(CallEvent::Part { target, result }) => {
                    let target = target.unwrap_or_default();
                    self.taken.remove(&target);
                    let part = Part { target, result: result.and_then(typed) };
                    return Poll::Ready(Some(Ok(FanOutItem::Part(part))));
                }
                Some(CallEvent::Accepted(_)) => {}
                Some(CallEvent::Ended(end)) => {
                    self.end = Some(end.map(|(_, summary)| summary.unwrap_or_default()));
                }
                None => self.end = Some(Err(ended())),
            }
        }
        Poll::Ready(None)
    }
}

impl<C: FromPayload, T: FromPayload> Stream for FanOutChunks<C, T> {
    type Item = Result<FanOutItem<C, T>, CallError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(cx)
    }
}
