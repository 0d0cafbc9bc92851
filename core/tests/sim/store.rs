//! The shell around the store of the simulated world: what is told to it is written late and in batches, or never;
//! questions are answered late and in any order; and all that a hub leaves behind when it is killed is what was written.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_reach_core::{Answer, Change, Effects, Hub, Input, OpenTask, StoreNews};

use super::Sim;
use super::model::Event;

/// When the simulated hubs start, in milliseconds since the Unix epoch.
pub(crate) const STARTED_UNIX_MS: u64 = 1_700_000_000_000;

/// Longest time until a question is answered, in milliseconds.
pub(crate) const ANSWER_MAX_MS: u64 = 400;

impl Sim {
    /// The hub has said something to the store.
    pub(super) fn store_hears(&mut self, mut effects: Effects) {
        for (number, change) in &effects.changes {
            self.note(|| format!("to write {number}: {}", brief(change)));
            self.task_changes(*number, change);
        }
        let epoch = self.store.epoch;
        for ask in &effects.asks {
            self.note(|| format!("asked {}: {:?}", ask.number, ask.question));
            let most = self.dice.pick(&[0, 5, ANSWER_MAX_MS / 2]);
            self.later(0, most, Event::StoreReads(epoch, ask.number));
        }
        self.store.hear(&mut effects);
        self.plan_write();
    }

    fn plan_write(&mut self) {
        if !self.store.writes && !self.store.waiting.is_empty() {
            self.store.writes = true;
            let lag = self.store.lag_ms;
            self.later(0, lag, Event::StoreWrites);
        }
    }

    fn tell(&mut self, news: StoreNews) {
        let last = self.store.news.back().map(|(at, _)| *at);
        let lag = if self.quiet { 0 } else { self.store.lag_ms.min(100) };
        let at = self.now.plus_ms(self.dice.from(0, lag)).max(last.unwrap_or(self.now));
        self.store.news.push_back((at, news));
        self.at(at, Event::StoreTells);
    }

    /// A batch is written, or what of it can be.
    pub(super) fn store_writes(&mut self) {
        self.store.writes = false;
        if self.store.ill {
            return self.refuse_tasks();
        }
        let all = self.store.waiting.len();
        let most = if self.dice.percent(40) { 1 + all / 2 } else { all };
        if !self.quiet && self.dice.percent(5) {
            self.leave_out_calls();
        }
        if let Some(up_to) = self.store.write(self.now, most) {
            self.note(|| format!("written up to {up_to}"));
            self.tell(StoreNews::Written { up_to });
        }
        self.plan_write();
    }

    /// There is no room for ends of calls; what else waits may say that they are dealt with.
    fn leave_out_calls(&mut self) {
        let Some((last, Change::Moved(_) | Change::Ended(_) | Change::Receipt { .. } | Change::Task(_))) =
            self.store.waiting.back()
        else {
            return;
        };
        let last = *last;
        let before = self.store.waiting.len();
        self.store.waiting.retain(|(_, change)| !matches!(change, Change::Call(_)));
        if self.store.waiting.len() < before {
            self.note(|| format!("ends of calls before {last} are left out"));
            *self.met.entry("left_out").or_default() += 1;
            // They may run again once their memory gives way.
            self.ran.clear();
        }
    }

    fn refuse_tasks(&mut self) {
        let mut numbers = Vec::new();
        let refused = &mut self.store.refused;
        self.store.waiting.retain(|(number, change)| {
            let Change::Task(task) = change else { return true };
            refused.insert(task.id);
            numbers.push(*number);
            false
        });
        if !numbers.is_empty() {
            *self.met.entry("store_refused").or_default() += 1;
            self.note(|| format!("refused: {numbers:?}"));
            self.tell(StoreNews::Refused { numbers, reason: "the disk is full".to_owned() });
        }
    }

    /// The next of the news reaches the hub.
    pub(super) fn store_tells(&mut self) {
        while self.store.news.front().is_some_and(|(at, _)| *at <= self.now) {
            let Some((_, news)) = self.store.news.pop_front() else { return };
            self.task_news(&news);
            let text = format!("the store: {news:?}");
            self.input(Input::Store(news), || text);
        }
    }

    /// A question is looked at; its answer is on its way.
    pub(super) fn store_reads(&mut self, epoch: u64, number: u64) {
        if epoch != self.store.epoch {
            return;
        }
        if self.store.silent {
            *self.met.entry("store_silent").or_default() += 1;
            return;
        }
        let Some(ask) = self.store.asks.remove(&number) else { return };
        let answer = self.store.answer(&ask.question);
        self.store.read.insert(number, answer);
        let most = self.dice.pick(&[0, 0, 5, ANSWER_MAX_MS / 2]);
        self.later(0, most, Event::StoreAnswers(epoch, number));
    }

    pub(super) fn store_answers(&mut self, epoch: u64, number: u64) {
        if epoch != self.store.epoch {
            return;
        }
        let Some(answer) = self.store.read.remove(&number) else { return };
        if answer == Answer::Unreadable {
            *self.met.entry("unreadable").or_default() += 1;
        }
        let text =
            format!("answer {number}: {}", format!("{answer:?}").chars().take(100).collect::<String>());
        self.input(Input::Store(StoreNews::Answered { number, answer }), || text);
    }

    /// Its disk is full, or is not any more.
    pub(super) fn store_sickens(&mut self) {
        if self.quiet || self.store.ill {
            return;
        }
        self.store.ill = true;
        self.store.unreadable = self.dice.percent(40);
        self.store.silent = self.dice.percent(30);
        *self.met.entry("store_ill").or_default() += 1;
        self.note(|| "the store is ill".to_owned());
        self.refuse_tasks();
        self.tell(StoreNews::Writable(false));
        let most = self.dice.pick(&[100, 1500, 5000]);
        self.later(50, most, Event::StoreRecovers);
    }

    pub(super) fn store_recovers(&mut self) {
        self.later(1000, 8000, Event::StoreSickens);
        if !self.store.ill {
            return;
        }
        (self.store.ill, self.store.unreadable, self.store.silent) = (false, false, false);
        let (epoch, asked) = (self.store.epoch, self.store.asks.keys().copied().collect::<Vec<_>>());
        for number in asked {
            self.later(0, ANSWER_MAX_MS / 2, Event::StoreReads(epoch, number));
        }
        self.note(|| "the store is well".to_owned());
        self.tell(StoreNews::Writable(true));
        self.plan_write();
    }

    /// Everything is written, told and answered at once, as long as anything comes of it.
    pub(super) fn settle_store(&mut self) {
        if self.store.ill {
            self.store_recovers();
        }
        while !self.store.is_idle() {
            if let Some(up_to) = self.store.write(self.now, usize::MAX) {
                self.store.news.push_back((self.now, StoreNews::Written { up_to }));
            }
            for (at, _) in &mut self.store.news {
                *at = self.now;
            }
            self.store_tells();
            let (epoch, asks) = (self.store.epoch, self.store.asks.keys().copied().collect::<Vec<_>>());
            for number in asks {
                self.store_reads(epoch, number);
            }
            for number in self.store.read.keys().copied().collect::<Vec<_>>() {
                self.store_answers(epoch, number);
            }
        }
    }

    /// The process is gone. A part of what it wanted to have written may be, all of it when it ended in order; nobody
    /// was told.
    pub(super) fn store_loses(&mut self, in_order: bool) {
        let all = self.store.waiting.len() as u64;
        let written = if in_order { all } else { self.dice.from(0, all) };
        if self.store.ill {
            self.refuse_tasks();
        } else {
            self.store.write(self.now, usize::try_from(written).unwrap());
        }
        let store = &mut self.store;
        if !store.waiting.is_empty() {
            *self.met.entry("lost_changes").or_default() += 1;
        }
        store.waiting.clear();
        store.asks.clear();
        store.read.clear();
        store.news.clear();
        store.writes = false;
        store.next_number = 0;
        store.epoch += 1;
    }

    /// A new hub takes up what is written.
    pub(super) fn restore(&mut self, hub: &mut Hub) -> Effects {
        let (now, unix) = (self.now, self.unix());
        let mut effects = Effects::default();
        for ((identity, request_id), key) in &self.store.keys {
            if key.open || key.until > unix {
                hub.restore_key(now, identity, request_id, key.until);
            }
        }
        let agents: BTreeSet<_> = self.store.owed.iter().map(|(agent, _)| Arc::clone(agent)).collect();
        agents.into_iter().for_each(|agent| hub.restore_owed(agent));
        for task in self.store.tasks.values().filter(|task| task.end.is_none()) {
            let open = OpenTask { task: task.new.clone(), moved: task.moved.clone() };
            hub.restore_task(now, open, &mut effects);
        }
        if self.store.ill {
            self.tell(StoreNews::Writable(false));
        }
        effects
    }

    /// The present moment as it is stored.
    pub(super) fn unix(&self) -> u64 {
        STARTED_UNIX_MS + self.now.micros() / 1000
    }
}

/// A change for the log.
fn brief(change: &Change) -> String {
    match change {
        Change::Task(task) => format!("task {} of {} {}", task.id, task.agent, task.request_id),
        Change::Moved(moved) => format!("{moved:?}"),
        Change::Ended(end) => format!("end of {} {} keep {}", end.task, end.outcome, end.keep_until > end.at),
        Change::Receipt { task, agent, .. } => format!("receipt of {task} by {agent}"),
        Change::Call(call) => format!("call {} {}", call.identity, call.request_id),
    }
}
