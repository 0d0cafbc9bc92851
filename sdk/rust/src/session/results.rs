//! Results of tasks: to the handles that wait for them, else to the program's inbox, each once.
//!
//! The hub sends a result until it has its RECEIPT, so the same one may come several times, on this connection and on
//! later ones. The receipt goes out when the program took the result from a handle or from its inbox, and again for
//! each repetition: the first one may have been lost. A handle that is let go of with the result still in it gives it
//! back.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use agent_reach_protocol::{Receipt, encode};

use super::Context;
use super::types::{CallKey, Effect, TaskEnd};

/// Most results that wait in the inbox. The hub keeps the others, and sends them again.
const HELD_MAX: usize = 256;
/// Most bytes of their bodies. 64 MiB.
const HELD_BYTES: usize = 64 * 1024 * 1024;
/// Tasks whose result was given out that are known, so that a repetition is not given out again.
const TAKEN_MAX: usize = 4096;

/// Who waits for which task, and what became of each.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Handles of each task, in the order they were made.
    handles: HashMap<String, Vec<CallKey>>,
    by_key: HashMap<CallKey, String>,
    /// Given to so many handles, which have not shown it to the program yet.
    handed: HashMap<String, usize>,
    /// In the inbox, with their bytes.
    held: HashMap<String, usize>,
    held_bytes: usize,
    taken: HashSet<Arc<str>>,
    /// The same in the order they were taken.
    taken_order: VecDeque<Arc<str>>,
}

impl Results {
    /// A handle waits for this task.
    pub(crate) fn wait(&mut self, key: CallKey, task_id: &str) {
        self.by_key.insert(key, task_id.to_owned());
        self.handles.entry(task_id.to_owned()).or_default().push(key);
    }

    /// The same for a handle that was made from an id: its result may be here already.
    pub(crate) fn claim(&mut self, cx: &mut Context<'_>, key: CallKey, task_id: String) {
        self.wait(key, &task_id);
        if self.held.contains_key(&task_id) {
            cx.effects.push(Effect::Hand(key, task_id));
        }
    }

    /// A handle is gone. `false`: there was none of this key.
    pub(crate) fn forget(&mut self, key: CallKey) -> bool {
        let Some(task_id) = self.by_key.remove(&key) else { return false };
        if let Some(keys) = self.handles.get_mut(&task_id) {
            keys.retain(|own| *own != key);
            if keys.is_empty() {
                self.handles.remove(&task_id);
            }
        }
        true
    }

    /// A result comes home. `asked`: the call that it answers by its id, if there is one.
    pub(crate) fn arrive(
        &mut self,
        cx: &mut Context<'_>,
        asked: Option<CallKey>,
        task_id: &str,
        end: TaskEnd,
    ) {
        let mut keys = self.handles.remove(task_id).unwrap_or_default();
        for key in &keys {
            self.by_key.remove(key);
        }
        keys.extend(asked);
        let known = self.taken.contains(task_id);
        if known {
            receipt(cx, task_id);
        }
        if !keys.is_empty() {
            if !known {
                *self.handed.entry(task_id.to_owned()).or_default() += keys.len();
            }
            cx.effects.push(Effect::Deliver(keys, Box::new(end)));
            return;
        }
        if known || self.handed.contains_key(task_id) || self.held.contains_key(task_id) {
            return;
        }
        let bytes = end.bytes();
        if self.held.len() >= HELD_MAX || self.held_bytes.saturating_add(bytes) > HELD_BYTES {
            tracing::debug!(task_id, "the inbox is full: the hub keeps this result");
            return;
        }
        self.held.insert(task_id.to_owned(), bytes);
        self.held_bytes += bytes;
        cx.effects.push(Effect::Arrived(Box::new(end)));
    }

    /// A handle took over what was in the inbox.
    pub(crate) fn moved(&mut self, key: CallKey, task_id: &str) {
        self.forget(key);
        self.leaves_inbox(task_id);
        *self.handed.entry(task_id.to_owned()).or_default() += 1;
    }

    /// A handle was let go of, and nobody saw the result in it.
    pub(crate) fn returned(&mut self, cx: &mut Context<'_>, end: TaskEnd) {
        let Some(handles) = self.handed.get_mut(&end.task_id) else { return };
        *handles = handles.saturating_sub(1);
        if *handles == 0 {
            self.handed.remove(&end.task_id);
            let task_id = end.task_id.clone();
            self.arrive(cx, None, &task_id, end);
        }
    }

    fn leaves_inbox(&mut self, task_id: &str) {
        if let Some(bytes) = self.held.remove(task_id) {
            self.held_bytes -= bytes;
        }
    }

    /// A result is in the program's hands.
    pub(crate) fn taken(&mut self, cx: &mut Context<'_>, task_id: &str) {
        self.leaves_inbox(task_id);
        self.handed.remove(task_id);
        let task: Arc<str> = task_id.into();
        if !self.taken.insert(Arc::clone(&task)) {
            // Two handles of one task: the hub knows from the first one.
            return;
        }
        self.taken_order.push_back(task);
        while self.taken_order.len() > TAKEN_MAX {
            if let Some(oldest) = self.taken_order.pop_front() {
                self.taken.remove(&oldest);
            }
        }
        receipt(cx, task_id);
    }

    /// Every handle that waits, in the order they were made; none does any more.
    pub(crate) fn drain(&mut self) -> Vec<CallKey> {
        self.handles.clear();
        let mut keys: Vec<CallKey> = std::mem::take(&mut self.by_key).into_keys().collect();
        keys.sort_unstable();
        keys
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.handles.is_empty() && self.by_key.is_empty() && self.handed.is_empty()
    }
}

fn receipt(cx: &mut Context<'_>, task_id: &str) {
    if cx.open {
        cx.outbound.control(encode(&Receipt { task_id }, None));
    }
}
