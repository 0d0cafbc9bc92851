//! A book in memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_reach_core::TaskId;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::super::{AllowedHosts, Book, Busy, Due, Target, Unavailable, allowed};
use super::{end, hosts};

/// A delivery as it was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tried {
    pub(super) task: TaskId,
    pub(super) attempt: u32,
    pub(super) outcome: String,
    pub(super) next_ms: Option<u64>,
}

#[derive(Default)]
struct Pages {
    open: BTreeMap<TaskId, (u64, Due)>,
    tried: Vec<Tried>,
}

/// Its first line is the earliest.
#[derive(Default)]
pub(super) struct Memory {
    pages: Mutex<Pages>,
    changed: Notify,
    /// Nothing can be read, or nothing written.
    pub(super) unreadable: AtomicBool,
    pub(super) unwritable: AtomicBool,
    /// How long a look takes, in milliseconds.
    pub(super) slow: AtomicU64,
    /// Says who is on which host, as a store does by its own column.
    everybody: AllowedHosts,
}

fn ill(is: &AtomicBool) -> Result<(), Unavailable> {
    if is.load(Ordering::SeqCst) { Err(Unavailable("disk full".into())) } else { Ok(()) }
}

impl Memory {
    /// One that knows these hosts.
    pub(super) fn new(list: &[&str]) -> Arc<Self> {
        Arc::new(Self { everybody: hosts(list), ..Self::default() })
    }

    /// A task has ended.
    pub(super) fn add(&self, task: TaskId, url: &str, now_ms: u64) {
        let due = Due { task, url: url.into(), capability: "order.create".into(), attempt: 0, end: end() };
        self.pages.lock().unwrap().open.insert(task, (now_ms, due));
    }

    /// A receipt has come.
    pub(super) fn receipt(&self, task: TaskId) {
        self.pages.lock().unwrap().open.remove(&task);
    }

    pub(super) fn tried(&self) -> Vec<Tried> {
        self.pages.lock().unwrap().tried.clone()
    }

    pub(super) fn open(&self) -> usize {
        self.pages.lock().unwrap().open.len()
    }

    fn due(&self, now_ms: u64, most: usize, busy: &Busy) -> Vec<Due> {
        let pages = self.pages.lock().unwrap();
        let host = |url: &str| allowed(url, &self.everybody).map(|target: Target| target.host().to_string());
        let mut due: Vec<_> = pages
            .open
            .values()
            .filter(|(at, due)| *at <= now_ms && !busy.tasks.contains(&due.task))
            .filter(|(_, due)| host(&due.url).is_ok_and(|host| !busy.hosts.contains(&host)))
            .collect();
        due.sort_by_key(|(at, due)| (*at, due.task));
        due.into_iter().take(most).map(|(_, due)| due.clone()).collect()
    }

    /// Waits until so many deliveries are written down.
    pub(super) async fn has_tried(&self, most: usize) -> Vec<Tried> {
        let enough = async {
            while self.tried().len() < most {
                self.changed.notified().await;
            }
        };
        // By the clock of the test, which stands still but while all wait.
        timeout(Duration::from_secs(7 * 86_400), enough).await.expect("no more is tried");
        self.tried()
    }
}

impl Book for Memory {
    async fn due_callbacks(&self, now_ms: u64, most: usize, busy: &Busy) -> Result<Vec<Due>, Unavailable> {
        ill(&self.unreadable)?;
        let due = self.due(now_ms, most, busy);
        let slow = Duration::from_millis(self.slow.load(Ordering::SeqCst));
        assert!(slow.is_zero() || timeout(slow, std::future::pending::<()>()).await.is_err());
        Ok(due)
    }

    async fn next_callback(&self, now_ms: u64) -> Result<Option<u64>, Unavailable> {
        ill(&self.unreadable)?;
        let pages = self.pages.lock().unwrap();
        Ok(pages.open.values().map(|(at, _)| *at).filter(|at| *at > now_ms).min())
    }

    async fn callback_tried(
        &self,
        task: TaskId,
        attempt: u32,
        outcome: &str,
        next_ms: Option<u64>,
    ) -> Result<(), Unavailable> {
        ill(&self.unwritable)?;
        let mut pages = self.pages.lock().unwrap();
        match (pages.open.get_mut(&task), next_ms) {
            (Some((at, due)), Some(next)) => (*at, due.attempt) = (next, attempt),
            (Some(_), None) => drop(pages.open.remove(&task)),
            (None, _) => {}
        }
        pages.tried.push(Tried { task, attempt, outcome: outcome.to_owned(), next_ms });
        drop(pages);
        self.changed.notify_one();
        Ok(())
    }
}
