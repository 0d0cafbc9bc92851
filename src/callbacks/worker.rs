//! Makes the deliveries that are due, many at a time and only a few to one host.

use std::sync::Arc;
use std::time::Duration;

use agent_reach_core::TaskId;
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tracing::{debug, error, info, warn};

use super::book::{Book, Busy, Due, Unavailable};
use super::client::{Letter, Post};
use super::outcome::{Failure, Outcome};
use super::payload::payload;
use super::schedule::Schedule;
use super::signature::{Keys, Secrets};
use super::target::{AllowedHosts, Refused, Target, allowed};

/// The longest time without a look at the book, whatever the clocks say.
const IDLE: Duration = Duration::from_secs(60);
/// The shortest time between two looks for which there was no reason but the clock.
const BRIEF: Duration = Duration::from_millis(20);
/// How long a book that is ill is left alone, at first and at most.
const ILL: Duration = Duration::from_secs(1);
const ILL_MAX: Duration = Duration::from_secs(30);

/// How many deliveries are made at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// In all. Default 64.
    pub all: usize,
    /// To one host, so that a receiver that never answers keeps only its own callbacks waiting. Default 4.
    pub each: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { all: 64, each: 4 }
    }
}

/// A wall clock: milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What a worker works with.
pub struct Worker<B, P> {
    /// Keeps the callbacks.
    pub book: Arc<B>,
    /// Makes a delivery.
    pub post: Arc<P>,
    /// Who may be called. Asked again before each delivery: the list may have changed since the CALL.
    pub hosts: AllowedHosts,
    /// What to sign with.
    pub secrets: Secrets,
    /// When to try again.
    pub schedule: Schedule,
    /// How many at a time.
    pub bounds: Bounds,
    /// Milliseconds since the Unix epoch.
    pub now_ms: Clock,
    /// Hears how each delivery ended: `completed` or an error code.
    pub ended: Arc<dyn Fn(&'static str) + Send + Sync>,
    /// Notified when a task with a callback has ended.
    pub wake: Arc<Notify>,
}

/// A delivery that is under way.
struct Running {
    id: Id,
    task: TaskId,
    attempt: u32,
    /// `None` for one that is refused without a connection.
    host: Option<String>,
}

/// What of the book has not been looked at since something may have become due.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Unread {
    Nothing,
    /// Only this host's: it had all the deliveries that it gets.
    Of(String),
    Everything,
}

impl<B: Book, P: Post> Worker<B, P> {
    /// Works until it is dropped. A delivery that is under way then is dropped too, and made again when the hub is
    /// back: receivers know it by its `webhook-id`.
    pub async fn run(self) {
        let mut line = Line {
            worker: self,
            set: JoinSet::new(),
            running: Vec::new(),
            unread: Unread::Everything,
            looked: 0,
            ill: false,
        };
        loop {
            let pause = line.turn().await;
            // Every branch is safe to drop: a permit that was not taken stays, and so does an ended delivery.
            tokio::select! {
                Some(ended) = line.set.join_next_with_id() => line.ended(ended),
                () = line.worker.wake.notified() => line.unread = Unread::Everything,
                () = tokio::time::sleep(pause) => line.unread = Unread::Everything,
            }
        }
    }

    fn start(
        &self,
        set: &mut JoinSet<()>,
        due: Due,
        target: Result<Target, Refused>,
        keys: &Arc<Keys>,
    ) -> Id {
        let (post, keys, now_ms) = (Arc::clone(&self.post), Arc::clone(keys), Arc::clone(&self.now_ms));
        let attempt = self.attempt(due.task, due.attempt.saturating_add(1));
        let delivery = async move {
            // What may not be called is not even resolved.
            let outcome = match target.map_err(Failure::Refused) {
                Ok(target) => match sealed(due, &keys, now_ms()) {
                    Ok(letter) => post.post(target, letter).await,
                    Err(failure) => Outcome::Failed(failure),
                },
                Err(refused) => Outcome::Failed(refused),
            };
            attempt.record(outcome).await;
        };
        set.spawn(delivery).id()
    }

    fn attempt(&self, task: TaskId, number: u32) -> Attempt<B> {
        Attempt {
            task,
            number,
            book: Arc::clone(&self.book),
            ended: Arc::clone(&self.ended),
            schedule: self.schedule.clone(),
            now_ms: Arc::clone(&self.now_ms),
        }
    }
}

/// A delivery, and what is needed to write down how it ended.
struct Attempt<B> {
    task: TaskId,
    /// From 1.
    number: u32,
    book: Arc<B>,
    ended: Arc<dyn Fn(&'static str) + Send + Sync>,
    schedule: Schedule,
    now_ms: Clock,
}

impl<B: Book> Attempt<B> {
    /// Writes it down, however long the book does not take it. Meanwhile the delivery keeps its place, so that a book
    /// that cannot be written does not make it happen again and again.
    async fn record(self, outcome: Outcome) {
        let Self { task, number, .. } = self;
        let next = self.schedule.next(number, &outcome, (self.now_ms)());
        (self.ended)(outcome.word());
        let text = outcome.to_string();
        match (&outcome, next) {
            (Outcome::Delivered { .. }, _) => {
                debug!(task_id = %task, attempt = number, "a webhook is delivered")
            }
            (_, Some(_)) => {
                info!(task_id = %task, attempt = number, outcome = text, "a webhook is to be tried again")
            }
            (_, None) => warn!(task_id = %task, attempt = number, outcome = text, "a webhook is given up"),
        }
        let mut pause = ILL;
        while let Err(error) = self.book.callback_tried(task, number, &text, next).await {
            warn!(task_id = %task, %error, "the outcome of a webhook waits to be written down");
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(ILL_MAX);
        }
    }
}

/// A worker at work.
struct Line<B, P> {
    worker: Worker<B, P>,
    set: JoinSet<()>,
    running: Vec<Running>,
    unread: Unread,
    /// What was due at this moment is under way, or of a host that has all it gets.
    looked: u64,
    /// The book could not be read the last time.
    ill: bool,
}

impl<B: Book, P: Post> Line<B, P> {
    /// Starts what can be started, and says how long nothing happens by the clock alone.
    async fn turn(&mut self) -> Duration {
        let pause = match self.fill().await {
            Ok(()) => self.pause().await,
            Err(error) => Err(error),
        };
        match pause {
            Ok(pause) => {
                self.ill = false;
                pause
            }
            Err(error) => {
                // Once for each time that it falls ill, not once a second.
                if !std::mem::replace(&mut self.ill, true) {
                    warn!(%error, "webhooks wait");
                }
                ILL
            }
        }
    }

    async fn pause(&self) -> Result<Duration, Unavailable> {
        if self.running.len() >= self.worker.bounds.all {
            return Ok(IDLE);
        }
        // Not after now: what has become due since the last look is still to be seen.
        let next = self.worker.book.next_callback(self.looked).await?;
        let now = (self.worker.now_ms)();
        Ok(next.map_or(IDLE, |at| Duration::from_millis(at.saturating_sub(now)).clamp(BRIEF, IDLE)))
    }

    /// Starts what is due, as far as there is room. It reads as many as one host gets: each page starts them all or
    /// fills a host, which the next one is without, so no receiver can stand in the way of another.
    async fn fill(&mut self) -> Result<(), Unavailable> {
        let Bounds { all, each } = self.worker.bounds;
        let keys = self.worker.secrets.keys();
        while self.unread != Unread::Nothing && self.running.len() < all {
            let most = each.min(all - self.running.len());
            let now = (self.worker.now_ms)();
            let page = self.worker.book.due_callbacks(now, most, &self.busy()).await?;
            let last = page.len() < most;
            let before = self.running.len();
            for due in page.into_iter().take(most) {
                self.take(due, &keys);
            }
            // A book that only has what is under way already is not asked again at once either.
            if last || self.running.len() == before {
                (self.unread, self.looked) = (Unread::Nothing, now);
            } else if matches!(&self.unread, Unread::Of(host) if self.is_full(host)) {
                self.unread = Unread::Nothing;
            }
        }
        Ok(())
    }

    fn take(&mut self, due: Due, keys: &Arc<Keys>) {
        let target = allowed(&due.url, &self.worker.hosts);
        let host = target.as_ref().ok().map(|target| target.host().to_string());
        let full = host.as_deref().is_some_and(|host| self.is_full(host));
        if full || self.running.iter().any(|running| running.task == due.task) {
            return;
        }
        let (task, attempt) = (due.task, due.attempt.saturating_add(1));
        let id = self.worker.start(&mut self.set, due, target, keys);
        self.running.push(Running { id, task, attempt, host });
    }

    fn is_full(&self, host: &str) -> bool {
        let own = self.running.iter().filter(|running| running.host.as_deref() == Some(host));
        own.count() >= self.worker.bounds.each
    }

    fn busy(&self) -> Busy {
        let mut hosts: Vec<_> = self.running.iter().filter_map(|running| running.host.clone()).collect();
        hosts.sort();
        hosts.dedup();
        hosts.retain(|host| self.is_full(host));
        Busy { tasks: self.running.iter().map(|running| running.task).collect(), hosts }
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        let Some(at) = self.running.iter().position(|running| running.id == id) else { return };
        let host = self.running.get(at).and_then(|running| running.host.clone());
        let was_full = host.filter(|host| self.is_full(host));
        let running = self.running.swap_remove(at);
        if let Err(failed) = ended {
            // A fault of ours. It counts as a delivery, so that it ends some time.
            error!(task_id = %running.task, error = %failed, "a webhook's delivery has failed");
            let attempt = self.worker.attempt(running.task, running.attempt);
            let id = self.set.spawn(attempt.record(Outcome::Failed(Failure::Broken))).id();
            self.running.push(Running { id, ..running });
            return;
        }
        self.unread = match (&self.unread, was_full) {
            (Unread::Nothing, None) => Unread::Nothing,
            (Unread::Nothing, Some(host)) => Unread::Of(host),
            (Unread::Of(_) | Unread::Everything, _) => Unread::Everything,
        };
    }
}

/// Writes and signs what is delivered.
fn sealed(due: Due, keys: &Keys, now_ms: u64) -> Result<Letter, Failure> {
    let id = due.task.to_string();
    let body = payload(&id, &due.capability, &due.end).map_err(|_| Failure::NoResult)?;
    // Results may be large, and the delivery may last.
    drop(due);
    let timestamp = now_ms / 1_000;
    let signature = keys.sign(&id, timestamp, &body);
    Ok(Letter { id, timestamp, signature, body })
}
