//! What a hub keeps on disk, put together: the store, the deliveries that it is owed, and records of ended calls.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_reach_core::{
    CallbackCheck, Callbacks, Effects, Fact, Hub, Now, Policy, Settings, StoreNews, TaskId,
};
use tokio::sync::Notify;
use tracing::info;

use crate::callbacks::{
    AllowedHosts, Book, Bounds, Busy, Client, ClientError, Due, KeysError, NoHost, Schedule, Secrets,
    Unavailable, Worker, allowed,
};
use crate::config::Config;
use crate::driver::Driver;
use crate::store::{Record, Restored, StoreError, StoreFigures, StoreHandle, StoreOptions};
use crate::telemetry::metrics::Metrics;

/// Why a hub has no store, or cannot deliver.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The store cannot be opened.
    #[error("store.path = {path:?}: {source}")]
    Store {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        source: StoreError,
    },
    /// A host of the list is none.
    #[error("callbacks.allowed_hosts: {0}")]
    Hosts(#[from] NoHost),
    /// The authorities cannot be used.
    #[error("callbacks.ca: {0}")]
    Ca(#[from] ClientError),
    /// The secrets cannot be used.
    #[error("callbacks.secret_file: {0}")]
    Secrets(#[from] KeysError),
}

/// What the store says goes to the hub, which is made after the store: what comes before waits.
#[derive(Debug, Default)]
struct NewsLine(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    early: Vec<StoreNews>,
    driver: Weak<Driver>,
}

impl NewsLine {
    fn tell(&self, news: StoreNews) {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match line.driver.upgrade() {
            Some(driver) => {
                drop(line);
                driver.store_news(news);
            }
            None => line.early.push(news),
        }
    }

    fn connect(&self, driver: &Arc<Driver>) {
        let early = {
            let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            line.driver = Arc::downgrade(driver);
            std::mem::take(&mut line.early)
        };
        early.into_iter().for_each(|news| driver.store_news(news));
    }
}

/// The store of a hub, opened.
pub struct Keeping {
    store: StoreHandle,
    news: Arc<NewsLine>,
    hosts: AllowedHosts,
    /// Whether ended calls are recorded.
    records: bool,
    /// Notified when a task with a callback has ended.
    wake: Arc<Notify>,
}

impl Keeping {
    /// Opens the store of a configuration, and gives what it kept.
    ///
    /// # Errors
    /// When it cannot be opened, or the list of hosts cannot be used.
    pub fn open(config: &Config, metrics: &Arc<Metrics>) -> Result<(Self, Restored), KeepError> {
        let hosts = AllowedHosts::new(&config.callbacks.allowed_hosts)?;
        let news = Arc::new(NewsLine::default());
        let (told, flushed) = (Arc::clone(&news), Arc::clone(metrics));
        let options = StoreOptions {
            flush: Duration::from_millis(config.store.flush_ms),
            on_flush: Some(Arc::new(move |took| flushed.store_flush(took))),
            ..StoreOptions::new(&config.store.path)
        };
        let (store, restored) = StoreHandle::open(options, move |news| told.tell(news))
            .map_err(|source| KeepError::Store { path: config.store.path.clone(), source })?;
        let (open, owed, keys) = (restored.open.len(), restored.owed.len(), restored.keys.len());
        info!(path = %config.store.path.display(), open, owed, keys, "store opened");
        let records = config.store.records;
        Ok((Self { store, news, hosts, records, wake: Arc::default() }, restored))
    }

    /// A hub that takes up what the store kept of an earlier one. `told`: who hears of tasks that end with that.
    pub fn hub(&self, settings: Settings, policy: Policy, restored: Restored, told: impl Fn(&[Fact])) -> Hub {
        let settings = Settings { store: true, callbacks: self.callback_rule(), ..settings };
        let mut hub = Hub::new(settings, policy);
        let (now, mut effects) = (Now::default(), Effects::default());
        for key in restored.keys {
            hub.restore_key(now, &key.identity, &key.request_id, key.until);
        }
        for agent in restored.owed {
            hub.restore_owed(agent);
        }
        for task in restored.open {
            hub.restore_task(now, task, &mut effects);
        }
        // Nobody is connected, so nothing else can have come of it.
        told(&effects.facts);
        self.store.write(effects.changes);
        hub
    }

    /// The store itself.
    pub fn store(&self) -> StoreHandle {
        self.store.clone()
    }

    /// From now on the hub hears what the store says.
    pub fn connect(&self, driver: &Arc<Driver>) {
        self.news.connect(driver);
    }

    /// Which URLs tasks may name.
    fn callback_rule(&self) -> Callbacks {
        let hosts = self.hosts.clone();
        let check: Arc<CallbackCheck> = Arc::new(move |url| {
            let target = allowed(url, &hosts).map_err(|refused| (refused.code(), refused.to_string()))?;
            Ok(target.url().to_owned())
        });
        Callbacks(check)
    }

    /// Delivers ends of tasks to URLs for as long as it is polled; `None` where the configuration has no secrets to sign
    /// with, and so no hosts.
    ///
    /// # Errors
    /// When authorities or secrets cannot be read.
    pub fn deliveries(
        &self,
        config: &Config,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<impl Future<Output = ()> + Send + use<>>, KeepError> {
        let Some(secret_file) = &config.callbacks.secret_file else { return Ok(None) };
        let counted = Arc::clone(metrics);
        let worker = Worker {
            book: Arc::new(StoreBook(self.store.clone())),
            post: Arc::new(Client::new(self.hosts.clone(), config.callbacks.ca.as_deref())?),
            hosts: self.hosts.clone(),
            secrets: Secrets::load(secret_file)?,
            schedule: Schedule::new(&config.callbacks.schedule_ms),
            bounds: Bounds::default(),
            now_ms: Arc::new(unix_ms),
            ended: Arc::new(move |outcome| counted.callback(outcome)),
            wake: Arc::clone(&self.wake),
        };
        Ok(Some(worker.run()))
    }

    /// What a hub says has happened.
    pub fn facts(&self, facts: &[Fact]) {
        if facts.iter().any(|fact| matches!(fact, Fact::TaskEnded { callback: true })) {
            self.wake.notify_one();
        }
        if self.records {
            let mut records = facts.iter().filter_map(record).peekable();
            if records.peek().is_some() {
                self.store.record(records);
            }
        }
    }

    /// What it has done so far.
    pub fn figures(&self) -> StoreFigures {
        self.store.figures()
    }
}

/// What is stored of a fact. What the hub itself answered is for the audit alone.
fn record(fact: &Fact) -> Option<Record<'_>> {
    match fact {
        Fact::CallEnded { mode, outcome, record: Some(call), .. } if !call.by_hub => {
            Some(Record { call, mode: mode.as_str(), outcome: outcome.as_str() })
        }
        Fact::CallEnded { .. }
        | Fact::CallTraced(_)
        | Fact::TaskEnded { .. }
        | Fact::Registered { .. }
        | Fact::Refused { .. }
        | Fact::Left { .. }
        | Fact::Liveness { .. }
        | Fact::SlowConsumer { .. }
        | Fact::WatchEnded { .. }
        | Fact::Act { .. }
        | Fact::Dedupe(_)
        | Fact::Evicted { .. }
        | Fact::Retry(_) => None,
    }
}

/// The store, as deliveries ask it.
struct StoreBook(StoreHandle);

fn unavailable(error: StoreError) -> Unavailable {
    Unavailable(error.to_string())
}

impl Book for StoreBook {
    async fn due_callbacks(&self, now_ms: u64, most: usize, busy: &Busy) -> Result<Vec<Due>, Unavailable> {
        let due = self.0.due_callbacks(now_ms, most, busy.clone()).await.map_err(unavailable)?;
        let due = due.into_iter().map(|due| Due {
            task: due.task,
            url: due.url,
            capability: due.capability,
            attempt: due.attempt,
            end: due.end,
        });
        Ok(due.collect())
    }

    async fn next_callback(&self, now_ms: u64) -> Result<Option<u64>, Unavailable> {
        self.0.next_callback(now_ms).await.map_err(unavailable)
    }

    async fn callback_tried(
        &self,
        task: TaskId,
        attempt: u32,
        outcome: &str,
        next_ms: Option<u64>,
    ) -> Result<(), Unavailable> {
        self.0.callback_tried(task, attempt, outcome.to_owned(), next_ms).await.map_err(unavailable)
    }
}

/// The wall clock, in milliseconds since the Unix epoch.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
