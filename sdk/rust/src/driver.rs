//! The one task that owns the connection: carries inputs to the session and its effects out.
//!
//! Polled by hand: each wake-up takes all that is there (words of callers, frames, events of handlers), then
//! writes what came of it with one flush. Handlers run as tasks of their own, so nothing that they do can
//! hold up a heartbeat.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use agent_reach_protocol::ErrorCode;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Sink, Stream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Sleep};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::client::{Agent, Command, Shared, State};
use crate::control::Item;
use crate::errors::{ConnectError, HandlerError};
use crate::inbox;
use crate::provide::{self, Handler};
use crate::session::{
    CallEvent, CallKey, Effect, Failure, Input, Invocation, Now, Outcome, RunKey, Session, Work,
};
use crate::transport::{self, Address, Dial, Socket};

/// Frames, commands or events taken in a row before the others get their turn.
const BATCH: usize = 64;
/// Rounds in one wake-up before other tasks get theirs.
const ROUNDS: usize = 16;
/// Events of handlers that wait for the connection.
pub(crate) const EVENTS_MAX: usize = 256;

/// Where and how to dial.
pub(crate) struct Route {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) address: Address,
    pub(crate) token: Option<String>,
}

enum Line {
    Down,
    Dialing(BoxFuture<'static, Result<Socket, ConnectError>>),
    Up(Box<Socket>),
}

struct RunHandle {
    abort: AbortHandle,
    credit: Arc<Semaphore>,
    cancel: watch::Sender<bool>,
}

/// The task's state.
pub(crate) struct Driver {
    session: Session,
    effects: Vec<Effect>,
    shared: Arc<Shared>,
    route: Arc<Route>,
    line: Line,
    /// Something was written and not flushed.
    dirty: bool,
    /// Close the socket with this code when all is written.
    closing: Option<u16>,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Receiver<Work>,
    events_sender: mpsc::Sender<Work>,
    items: Vec<Item>,
    inboxes: HashMap<CallKey, inbox::Sender>,
    handlers: HashMap<String, Handler>,
    runs: HashMap<RunKey, RunHandle>,
    tasks: JoinSet<()>,
    max_message: Arc<AtomicUsize>,
    state: watch::Sender<State>,
    epoch: Instant,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set to. Often earlier than needed: a heartbeat put off by traffic is not worth a
    /// new timer for each frame.
    armed: Option<Instant>,
}

impl Driver {
    pub(crate) fn new(
        session: Session,
        shared: Arc<Shared>,
        route: Route,
        commands: mpsc::Receiver<Command>,
        handlers: HashMap<String, Handler>,
        state: watch::Sender<State>,
    ) -> Self {
        let (events_sender, events) = mpsc::channel(EVENTS_MAX);
        let epoch = Instant::now();
        Self {
            session,
            effects: Vec::new(),
            max_message: Arc::clone(&shared.max_message),
            shared,
            route: Arc::new(route),
            line: Line::Down,
            dirty: false,
            closing: None,
            commands,
            events,
            events_sender,
            items: Vec::new(),
            inboxes: HashMap::new(),
            handlers,
            runs: HashMap::new(),
            tasks: JoinSet::new(),
            state,
            epoch,
            timer: Box::pin(tokio::time::sleep_until(epoch)),
            armed: None,
        }
    }

    /// Runs until the agent's life ends.
    pub(crate) async fn run(mut self) {
        self.input(Input::Start);
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS {
            let mut progress = self.take_items(cx);
            progress |= self.advance_line(cx);
            progress |= self.take_commands(cx);
            progress |= self.take_events(cx);
            while let Poll::Ready(Some(_)) = self.tasks.poll_join_next(cx) {}
            progress |= self.tick(cx);
            // What was carried out can have made something to poll: a new dial, above all.
            progress |= !self.effects.is_empty();
            if self.apply() {
                return Poll::Ready(());
            }
            progress |= self.write(cx);
            if !progress && self.effects.is_empty() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn now(&self) -> Now {
        Now(Instant::now().saturating_duration_since(self.epoch))
    }

    fn input(&mut self, input: impl Into<Input>) {
        let now = self.now();
        self.session.handle(now, input.into(), &mut self.effects);
    }

    fn take_items(&mut self, cx: &Context<'_>) -> bool {
        let mut items = std::mem::take(&mut self.items);
        self.shared.control.take(cx.waker(), &mut items);
        let any = !items.is_empty();
        for item in items.drain(..) {
            match item {
                Item::Cancel(key) => {
                    self.inboxes.remove(&key);
                    self.input(Work::Cancel(key));
                }
                Item::Forget(key) => {
                    self.inboxes.remove(&key);
                    self.input(Work::Forget(key));
                }
                Item::Consumed(key, n) => self.input(Work::Consumed(key, n)),
                Item::Received(task_id) => self.input(Work::Received(task_id)),
                Item::Unheld => self.input(Input::Close(self.shared.drain)),
            }
        }
        self.items = items;
        any
    }

    fn take_commands(&mut self, cx: &mut Context<'_>) -> bool {
        for taken in 0..BATCH {
            if !self.session.has_room() {
                return taken > 0;
            }
            let Poll::Ready(Some(command)) = self.commands.poll_recv(cx) else { return taken > 0 };
            match command {
                // A caller that let go before its call was taken has said so already, to no effect.
                Command::Open(_, _, sender) if sender.is_abandoned() => {}
                Command::Open(key, spec, sender) => {
                    self.inboxes.insert(key, sender);
                    self.input(Work::Open(key, spec));
                }
                Command::Add(capability, handler) => {
                    self.handlers.insert(capability.name.clone(), handler);
                    self.input(Input::Add(capability));
                }
                Command::Remove(name) => {
                    self.handlers.remove(&name);
                    self.input(Input::Remove(name));
                }
                Command::SetLoad(load) => self.input(Input::SetLoad(load)),
                Command::SetStatus(status) => self.input(Input::SetStatus(status)),
                Command::Close(bound) => self.input(Input::Close(bound)),
            }
        }
        true
    }

    fn take_events(&mut self, cx: &mut Context<'_>) -> bool {
        for taken in 0..BATCH {
            if !self.session.has_room() {
                return taken > 0;
            }
            let Poll::Ready(Some(event)) = self.events.poll_recv(cx) else { return taken > 0 };
            if let Work::Finished(run, _) = &event {
                self.runs.remove(run);
            }
            self.input(event);
        }
        true
    }

    fn advance_line(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.line {
            Line::Down => false,
            Line::Dialing(dial) => {
                let Poll::Ready(dialled) = dial.poll_unpin(cx) else { return false };
                match dialled {
                    Ok(socket) => {
                        self.line = Line::Up(Box::new(socket));
                        self.input(Input::Opened);
                    }
                    Err(error) => {
                        self.line = Line::Down;
                        self.failing(error.clone());
                        self.input(Input::DialFailed(error));
                    }
                }
                true
            }
            Line::Up(_) => self.read(cx),
        }
    }

    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        for taken in 0..BATCH {
            let Line::Up(socket) = &mut self.line else { return true };
            // Effects are carried out between frames only when they are many: a frame costs at most a few.
            if !self.session.may_read() || self.effects.len() > 4 * BATCH {
                return taken > 0;
            }
            let Poll::Ready(frame) = Pin::new(&mut **socket).poll_next(cx) else { return taken > 0 };
            match frame {
                Some(Ok(Message::Binary(bytes))) => self.input(Input::Message(bytes)),
                Some(Ok(Message::Text(_))) => self.input(Input::Text),
                Some(Ok(Message::Ping(_))) => {
                    // The library queued a pong; it must not wait for the next message to carry it.
                    self.dirty = true;
                    self.input(Input::Alive);
                }
                Some(Ok(Message::Pong(_) | Message::Frame(_))) => self.input(Input::Alive),
                Some(Ok(Message::Close(frame))) => {
                    let (code, reason) = frame
                        .map_or((None, String::new()), |f| (Some(u16::from(f.code)), f.reason.to_string()));
                    self.answer_close(cx);
                    self.lost(code, reason);
                }
                Some(Err(error)) => self.lost(None, error.to_string()),
                None => self.lost(None, "the connection ended".to_owned()),
            }
        }
        true
    }

    /// One try to get the answer to a close frame out; the socket is let go in any case.
    fn answer_close(&mut self, cx: &mut Context<'_>) {
        if let Line::Up(socket) = &mut self.line
            && let Poll::Ready(Err(error)) = Pin::new(&mut **socket).poll_flush(cx)
        {
            tracing::debug!(%error, "close was not answered");
        }
    }

    fn lost(&mut self, code: Option<u16>, reason: String) {
        self.line = Line::Down;
        self.dirty = false;
        self.closing = None;
        self.failing(ConnectError::Io(reason.clone()));
        self.input(Input::Lost(code, reason));
    }

    /// Notes why there is no session.
    fn failing(&self, error: ConnectError) {
        self.state.send_replace(State::Connecting(Some(error)));
    }

    fn tick(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(next) = self.session.next_timeout() else { return false };
        if next <= self.now() {
            self.input(Input::Timeout);
            return true;
        }
        let at = self.epoch + next.0.min(FAR);
        if self.armed.is_none_or(|armed| at < armed) {
            self.timer.as_mut().reset(at);
            self.armed = Some(at);
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            self.armed = None;
            return true;
        }
        false
    }

    /// Carries out what the session wants. `true` at the end of the agent's life.
    fn apply(&mut self) -> bool {
        while !self.effects.is_empty() {
            for effect in std::mem::take(&mut self.effects) {
                if self.carry_out(effect) {
                    return true;
                }
            }
        }
        false
    }

    fn carry_out(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::Dial => self.dial(),
            Effect::Ping => self.send(Message::Ping(bytes::Bytes::new())),
            Effect::Close(code) => self.closing = Some(code),
            Effect::Abort => {
                self.line = Line::Down;
                self.dirty = false;
                self.closing = None;
                self.failing(ConnectError::Io("the session was broken off".to_owned()));
            }
            Effect::Ready(max_message) => {
                self.max_message.store(max_message, Ordering::Relaxed);
                self.state.send_replace(State::Ready);
            }
            Effect::Tell(key, event) => self.tell(key, event),
            Effect::Unclaimed(task_id) => {
                // No receipt: the hub keeps it, and offers it again to a later life of this agent.
                tracing::debug!(task_id, "a task's result that nobody here waits for");
            }
            Effect::Run(invocation) => self.start(*invocation),
            Effect::Grant(run, n) => {
                if let Some(handle) = self.runs.get(&run) {
                    let room = Semaphore::MAX_PERMITS - handle.credit.available_permits();
                    handle.credit.add_permits(usize::try_from(n).unwrap_or(usize::MAX).min(room));
                }
            }
            Effect::CancelRun(run) => {
                if let Some(handle) = self.runs.get(&run) {
                    handle.cancel.send_replace(true);
                    handle.credit.close();
                }
            }
            Effect::AbortRun(run) => {
                if let Some(handle) = self.runs.remove(&run) {
                    handle.abort.abort();
                }
            }
            Effect::Stopped(reason) => {
                self.line = Line::Down;
                self.state.send_replace(State::Closed(reason));
                return true;
            }
        }
        false
    }

    fn dial(&mut self) {
        let route = Arc::clone(&self.route);
        self.line = Line::Dialing(Box::pin(async move {
            transport::connect(&*route.dial, &route.address, route.token.as_deref()).await
        }));
    }

    fn tell(&mut self, key: CallKey, event: CallEvent) {
        let ended = matches!(event, CallEvent::Ended(_));
        let Some(sender) = self.inboxes.get(&key) else { return };
        let fits = sender.push(event);
        if ended || !fits {
            self.inboxes.remove(&key);
        }
        if !fits && !ended {
            self.input(Work::Cancel(key));
        }
    }

    fn start(&mut self, call: Invocation) {
        let run = call.run;
        let Some(handler) = self.handlers.get(&call.capability).map(Arc::clone) else {
            let failure = Failure::new(ErrorCode::Unsupported, "the capability was just removed");
            return self.input(Work::Finished(run, Outcome::Failed(failure)));
        };
        let permits = usize::try_from(call.credit).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let credit = Arc::new(Semaphore::new(permits));
        let (cancel, cancelled) = watch::channel(false);
        let events = self.events_sender.clone();
        let payload = call.payload.clone();
        let context = provide::Context {
            inner: Arc::new(provide::Inner {
                deadline: Instant::now() + call.deadline.min(FAR),
                credit: Arc::clone(&credit),
                cancelled,
                events: events.clone(),
                max_message: Arc::clone(&self.max_message),
                agent: Agent::new(Arc::clone(&self.shared)),
                call,
            }),
        };
        let abort = self.tasks.spawn(async move {
            let work = async move { handler(context, payload).await };
            let outcome = match AssertUnwindSafe(work).catch_unwind().await {
                Ok(Ok(payload)) => Outcome::Completed(payload),
                Ok(Err(error)) => Outcome::Failed(error.into()),
                Err(_) => Outcome::Failed(HandlerError::new("panic", "the handler panicked").into()),
            };
            if events.send(Work::Finished(run, outcome)).await.is_err() {
                tracing::debug!("a handler outlived its agent");
            }
        });
        self.runs.insert(run, RunHandle { abort, credit, cancel });
    }

    fn send(&mut self, message: Message) {
        if let Line::Up(socket) = &mut self.line {
            match Pin::new(&mut **socket).start_send(message) {
                Ok(()) => self.dirty = true,
                Err(error) => self.lost(None, error.to_string()),
            }
        }
    }

    /// Writes all that waits, then flushes once. `true` when there may be room for more work now.
    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let mut wrote = false;
        let outcome = self.write_batch(cx, &mut wrote);
        if wrote {
            self.input(Input::Wrote);
        }
        match outcome {
            Poll::Ready(Err(error)) => {
                self.lost(None, error);
                true
            }
            Poll::Ready(Ok(())) | Poll::Pending => wrote,
        }
    }

    fn write_batch(&mut self, cx: &mut Context<'_>, wrote: &mut bool) -> Poll<Result<(), String>> {
        let Line::Up(socket) = &mut self.line else { return Poll::Ready(Ok(())) };
        let mut socket = Pin::new(&mut **socket);
        let text = |e: tokio_tungstenite::tungstenite::Error| e.to_string();
        while self.session.has_outgoing() {
            ready!(socket.as_mut().poll_ready(cx)).map_err(text)?;
            let Some(message) = self.session.pop() else { break };
            socket.as_mut().start_send(Message::Binary(message)).map_err(text)?;
            self.dirty = true;
            *wrote = true;
        }
        if let Some(code) = self.closing.take() {
            let frame = CloseFrame { code: code.into(), reason: "".into() };
            socket.as_mut().start_send(Message::Close(Some(frame))).map_err(text)?;
            self.dirty = true;
        }
        if self.dirty {
            ready!(socket.as_mut().poll_flush(cx)).map_err(text)?;
            self.dirty = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// Keeps `Instant` arithmetic in range, whatever a peer says.
const FAR: std::time::Duration = std::time::Duration::from_secs(365 * 86_400);

impl Drop for Driver {
    fn drop(&mut self) {
        // A runtime that shuts down drops this task in the middle; whoever waits must still learn of the end.
        self.state.send_if_modified(|state| {
            let open = !matches!(state, State::Closed(_));
            if open {
                *state = State::Closed(crate::CloseReason::RuntimeStopped);
            }
            open
        });
    }
}
