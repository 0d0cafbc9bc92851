//! The one task that owns the connection: carries inputs to the session and its effects out.
//!
//! Polled by hand: each wake-up takes all that is there (words of callers, frames, events of handlers), then
//! writes what came of it with one flush. Handlers run as tasks of their own on the program's runtime, and this
//! task on another one, so nothing that they do can hold up a heartbeat, not even blocking a whole runtime.

mod line;
mod runs;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, Sleep};
use tokio_tungstenite::tungstenite::Message;

use line::Line;
use runs::RunHandle;

use crate::client::{Command, Shared, State};
use crate::control::Item;
use crate::dedupe::Writer;
use crate::errors::{CloseReason, ConnectError};
use crate::inbox;
use crate::provide::Handler;
use crate::session::{CallEvent, CallKey, Effect, Input, Now, RunKey, Session, TaskEnd, Work};
use crate::transport::{Address, Dial};

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

/// What serves calls, and where.
pub(crate) struct Provided {
    pub(crate) handlers: HashMap<String, Handler>,
    pub(crate) program: Handle,
    /// Events of handlers, and of what is written.
    pub(crate) events: (mpsc::Sender<Work>, mpsc::Receiver<Work>),
    /// Who writes the dedupe file, if there is one.
    pub(crate) writer: Option<Writer>,
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
    writer: Option<Writer>,
    /// Why it ended, until that is told.
    stopped: Option<CloseReason>,
    /// Where handlers run.
    program: Handle,
    /// A task on the program's runtime that ends only with it.
    sentinel: Id,
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
        Provided { handlers, program, events: (events_sender, events), writer }: Provided,
        state: watch::Sender<State>,
    ) -> Self {
        let mut tasks = JoinSet::new();
        let sentinel = tasks.spawn_on(std::future::pending(), &program).id();
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
            tasks,
            writer,
            stopped: None,
            program,
            sentinel,
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
        self.events.close();
        if let Some(writer) = self.writer.take() {
            // Whoever is told of the end may open the file again.
            writer.close().await;
        }
        if let Some(reason) = self.stopped.take() {
            self.state.send_replace(State::Closed(reason));
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS {
            let mut progress = self.take_items(cx);
            progress |= self.advance_line(cx);
            progress |= self.take_commands(cx);
            progress |= self.take_events(cx);
            if self.reap(cx) {
                return Poll::Ready(());
            }
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

    /// Forgets handlers that ended. `true` when the program's runtime is gone, and all handlers with it.
    fn reap(&mut self, cx: &mut Context<'_>) -> bool {
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next(cx) {
            if ended.is_err_and(|error| error.id() == self.sentinel) {
                return true;
            }
        }
        false
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
                Item::Consumed(key, n, target) => self.input(Work::Consumed(key, n, target)),
                Item::Received(task_id) => self.input(Work::Received(task_id)),
                Item::Returned(end) => self.input(Work::Returned(end)),
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
                Command::Open(key, spec, mut sender) => {
                    sender.take();
                    self.inboxes.insert(key, sender);
                    self.input(Work::Open(key, spec));
                }
                Command::Claim(_, _, sender) if sender.is_abandoned() => {}
                Command::Claim(key, task_id, sender) => {
                    self.inboxes.insert(key, sender);
                    self.input(Work::Claim(key, task_id));
                }
                Command::Withdraw(key) => self.input(Work::Withdraw(key)),
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
            Effect::Leaving => {
                self.state.send_replace(State::Connecting(None));
            }
            Effect::Tell(key, event) => self.tell(key, event),
            Effect::Deliver(keys, end) => self.deliver(keys, &end),
            Effect::Arrived(end) => self.shared.mailbox.put(*end),
            Effect::Hand(key, task_id) => self.hand(key, &task_id),
            Effect::Run(invocation) => self.start(*invocation),
            Effect::Note(note) => {
                if let Some(writer) = &self.writer {
                    writer.write(*note);
                }
            }
            Effect::Grant(run, n) => self.grant_run(run, n),
            Effect::CancelRun(run) => self.cancel_run(run),
            Effect::AbortRun(run) => self.abort_run(run),
            Effect::Stopped(reason) => {
                self.line = Line::Down;
                self.stopped = Some(reason);
                return true;
            }
        }
        false
    }

    /// Gives a task's result to its handles. One that was just let go of gives it back at once.
    fn deliver(&mut self, keys: Vec<CallKey>, end: &TaskEnd) {
        for key in keys {
            if !self.inboxes.remove(&key).is_some_and(|sender| sender.deliver(end)) {
                self.input(Work::Returned(Box::new(end.clone())));
            }
        }
    }

    /// Gives a handle the result of its task from the inbox, unless the program has just taken it there.
    fn hand(&mut self, key: CallKey, task_id: &str) {
        let Some(end) = self.shared.mailbox.take(task_id) else { return };
        self.input(Work::Moved(key, task_id.to_owned()));
        self.deliver(vec![key], &end);
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
}

/// Keeps `Instant` arithmetic in range, whatever a peer says.
const FAR: std::time::Duration = std::time::Duration::from_secs(365 * 86_400);

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.mailbox.close();
        // A runtime that shuts down drops this task in the middle; whoever waits must still learn of the end.
        self.state.send_if_modified(|state| {
            let open = !matches!(state, State::Closed(_));
            if open {
                *state = State::Closed(CloseReason::RuntimeStopped);
            }
            open
        });
    }
}
