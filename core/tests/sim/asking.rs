//! `hub.tasks.*`: what owners ask of their tasks, and what the answers and watches have to agree with.

use std::collections::BTreeMap;

use agent_reach_core::{ConnectionId, Now, TaskId, TaskState};
use agent_reach_protocol::{Call, CallResult, encode};
use rmpv::Value;

use super::Sim;
use super::model::{Asked, Event, On};
use crate::world::call;

/// What a CALL asks of tasks.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    List,
    Get(TaskId),
    Cancel(TaskId),
    Watch(Option<TaskId>, Watched),
}

/// What a watch has shown: each task's state, once it has shown all that were there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    complete: bool,
    states: BTreeMap<String, String>,
}

fn body_of(question: &Question) -> Vec<u8> {
    let mut out = Vec::new();
    let entries = match question {
        Question::Get(task) | Question::Cancel(task) | Question::Watch(Some(task), _) => {
            vec![("task_id".into(), task.to_string().into())]
        }
        Question::List | Question::Watch(None, _) => Vec::new(),
    };
    rmpv::encode::write_value(&mut out, &Value::Map(entries)).unwrap();
    out
}

fn read(body: &[u8]) -> Value {
    rmpv::decode::read_value(&mut &*body).expect("the hub's own body is read")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

impl Sim {
    /// An owner asks, or somebody else does.
    pub(super) fn ask_of_tasks(&mut self, id: ConnectionId) {
        let Some(conn) = self.conns.get(&id) else { return };
        let own = self.players[conn.agent].name.as_str();
        let of_own = self.store.tasks.values().filter(|task| *task.new.agent == *own);
        let mut some: Vec<TaskId> = of_own.map(|task| task.new.id).collect();
        if self.dice.percent(10) {
            some = self.store.tasks.keys().copied().collect();
        }
        let task = if some.is_empty() { TaskId::from_bits(7) } else { self.dice.pick(&some) };
        let question = match self.dice.from(0, 9) {
            0..=2 => Question::List,
            3..=5 => Question::Get(task),
            6 => Question::Cancel(task),
            7 => Question::Watch(Some(task), Watched::default()),
            _ => Question::Watch(None, Watched::default()),
        };
        self.ask_question(id, question);
    }

    fn ask_question(&mut self, id: ConnectionId, question: Question) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let call_id = conn.next_id;
        conn.next_id += 1;
        let (name, credit) = match &question {
            Question::List => ("hub.tasks.list", 1),
            Question::Get(_) => ("hub.tasks.get", 1),
            Question::Cancel(_) => ("hub.tasks.cancel", 1),
            Question::Watch(..) => ("hub.tasks.watch", 10_000),
        };
        let mut asked = Asked::new(None, credit, false);
        // Its arrival says when.
        let bounded = !matches!(question, Question::Watch(..));
        asked.due = bounded.then_some(Now::from_micros(u64::MAX));
        let body = body_of(&question);
        let watch = matches!(question, Question::Watch(..));
        if let Question::Cancel(task) = question {
            self.wants_no_more(id, task);
        }
        asked.question = Some(question);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.asked.insert(call_id, asked);
        }
        let asking = Call { stream: watch, credit: Some(credit), ..call(call_id, name) };
        let message = encode(&asking, Some(&body));
        self.send(id, message, On::Ask { call: call_id, again: false }, |_| format!("CALL {call_id} {name}"));
        if watch || self.dice.percent(5) {
            self.later(0, 8000, Event::Cancel(id, call_id));
        }
    }

    fn wants_no_more(&mut self, id: ConnectionId, task: TaskId) {
        let own = self.conns.get(&id).map(|conn| self.players[conn.agent].name.clone());
        let owner = self.store.tasks.get(&task).filter(|stored| Some(&*stored.new.agent) == own.as_deref());
        let number = owner.and_then(|_| self.tasks.known.get(&task)).map(|known| known.number);
        if let Some(intent) = number.and_then(|number| self.intent_mut(number)) {
            intent.cancelled = true;
        }
    }

    /// An answer to a question of tasks is read.
    pub(super) fn question_answered(
        &mut self,
        id: ConnectionId,
        asked: &Asked,
        result: &CallResult<'_>,
        body: Option<&[u8]>,
    ) {
        let Some(question) = &asked.question else { return };
        let Some(conn) = self.conns.get(&id) else { return };
        let own = self.players[conn.agent].name.as_str();
        let code = result.error.as_ref().map_or("completed", |error| error.code);
        *self.met.entry("asked_of_tasks").or_default() += 1;
        let task = match question {
            Question::List if code == "completed" => {
                return self.every_open_task_is_listed(own, asked, &read(body.unwrap_or_default()));
            }
            Question::List | Question::Watch(None, _) => return,
            Question::Get(task) | Question::Cancel(task) => *task,
            Question::Watch(Some(task), _) => *task,
        };
        let stored = self.store.tasks.get(&task);
        let is_own = stored.is_some_and(|stored| *stored.new.agent == *own);
        let found = code == "completed";
        let found = found && !matches!(question, Question::Watch(..));
        assert!(
            !found || is_own,
            "a_task_is_told_to_nobody_else: {result:?} to {own}, who asked for {task}: {stored:?}"
        );
        assert!(
            code != "invalid_request" || !is_own,
            "an_owner_finds_its_task: {result:?} to {own}, who asked for {task}: {stored:?}"
        );
        let (Some(stored), true) = (stored, found) else { return };
        let said = read(body.unwrap_or_default());
        assert!(text(&said, "task_id") == task.to_string(), "an_owner_finds_its_task: {said} for {task}");
        let state = TaskState::parse(text(&said, "state"));
        let Some(state) = state else { panic!("an_owner_finds_its_task: {said}") };
        let cancel = matches!(question, Question::Cancel(_));
        let outcome = stored.end.as_ref().map(|end| end.outcome);
        assert!(
            !(state.is_end() || cancel) || outcome == Some(text(&said, "outcome")),
            "no_end_is_said_before_it_is_written: {said}, where {outcome:?} is written of {task}"
        );
    }

    /// What was open all the time is in the list, and nobody else's.
    fn every_open_task_is_listed(&self, own: &str, asked: &Asked, said: &Value) {
        let listed: Vec<&str> = list(said, "tasks").iter().map(|task| text(task, "task_id")).collect();
        for task in &listed {
            let stored = task.parse().ok().and_then(|task: TaskId| self.store.tasks.get(&task));
            let is_own = stored.is_some_and(|stored| *stored.new.agent == *own);
            assert!(is_own, "a_task_is_told_to_nobody_else: {task} to {own}");
        }
        let whole = said["more"].as_bool() != Some(true);
        let since = asked.arrived.map(|at| super::store::STARTED_UNIX_MS + at.micros() / 1000);
        for id in self.tasks.open.keys().filter(|_| whole) {
            let stored = self.store.tasks.get(id).filter(|stored| *stored.new.agent == *own);
            // It was accepted well before.
            let before = stored.filter(|stored| Some(stored.new.created + 20_000) < since);
            let accepted = before.is_some()
                || self.conns.values().flat_map(|c| c.asked.values()).any(|other| {
                    other.task == Some(*id) && other.told.is_some_and(|told| Some(told) < asked.arrived)
                });
            let text = id.to_string();
            assert!(
                stored.is_none() || !accepted || listed.contains(&&*text),
                "an_owner_sees_its_open_tasks: {id} is not in {listed:?}"
            );
        }
    }

    /// A piece of a watch of tasks is read: what was there, or one step.
    pub(super) fn watched(&mut self, id: ConnectionId, call: u64, body: &[u8]) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let own = self.players[conn.agent].name.as_str();
        let Some(Question::Watch(_, watched)) =
            conn.asked.get_mut(&call).and_then(|asked| asked.question.as_mut())
        else {
            return;
        };
        let said = read(body);
        let event = text(&said, "event");
        if event == "snapshot" {
            assert!(!watched.complete, "a_watch_shows_every_step_once: a second snapshot: {said}");
            for task in list(&said, "tasks") {
                let twice = watched.states.contains_key(text(task, "task_id"));
                assert!(!twice, "a_watch_shows_every_step_once: {said}");
                watched.states.insert(text(task, "task_id").to_owned(), text(task, "state").to_owned());
            }
            watched.complete = said["more"].as_bool() == Some(false);
            return;
        }
        *self.met.entry("watched").or_default() += 1;
        assert!(watched.complete, "a_watch_shows_every_step_once: {said} before all that was there");
        let task = match event {
            "task.progress" => text(&said, "task_id"),
            _ => text(&said["task"], "task_id"),
        };
        let known = task.parse().ok().and_then(|task: TaskId| self.tasks.known.get(&task));
        let is_own = known.is_some_and(|known| known.agent == own);
        assert!(is_own, "a_task_is_told_to_nobody_else: {said} to {own}");
        if event == "task.progress" {
            let state = watched.states.get(task).map(String::as_str);
            assert!(state == Some("PROCESSING"), "a_watch_shows_every_step_once: {said} while {state:?}");
            return;
        }
        let state = text(&said["task"], "state");
        let before = watched.states.get(task).map(String::as_str);
        let follows = match state {
            "QUEUED" => before != Some("QUEUED"),
            "RECEIVED" => before == Some("QUEUED"),
            "PROCESSING" => matches!(before, Some("QUEUED" | "RECEIVED")),
            // One whose end was not written yet when the watch began is not shown as open.
            _ => true,
        };
        assert!(follows, "a_watch_shows_every_step_once: {said} where it was {before:?}");
        match state {
            "SUCCEEDED" | "FAILED" => watched.states.remove(task),
            _ => watched.states.insert(task.to_owned(), state.to_owned()),
        };
    }

    /// What watches have to show now: open ones, and those whose end is not known to be written.
    pub(super) fn to_be_watched(&self) -> BTreeMap<String, (String, Option<TaskState>)> {
        let owner = |id: &TaskId| self.store.tasks.get(id).map(|stored| stored.new.agent.to_string());
        let ending = self.tasks.ending.values().filter_map(|id| Some((id.to_string(), (owner(id)?, None))));
        let open = self.tasks.open.iter();
        let open = open.filter_map(|(id, state)| Some((id.to_string(), (owner(id)?, Some(*state)))));
        ending.chain(open).collect()
    }

    /// Whoever watches and has read everything knows the state of all.
    pub(super) fn watches_agree(
        &self,
        id: ConnectionId,
        all: &BTreeMap<String, (String, Option<TaskState>)>,
    ) {
        let Some(conn) = self.conns.get(&id).filter(|conn| !conn.left && !conn.ended) else { return };
        let own = &self.players[conn.agent].name;
        for (call, asked) in &conn.asked {
            let Some(Question::Watch(only, watched)) = &asked.question else { continue };
            let only = only.map(|task| task.to_string());
            if !watched.complete {
                continue;
            }
            let all_own = all.iter().filter(|(task, _)| only.as_ref().is_none_or(|only| only == *task));
            for (task, (owner, state)) in all_own {
                let seen = watched.states.get(task).map(String::as_str);
                let agree = state.is_none_or(|state| seen == Some(state.as_str()));
                assert!(
                    owner != own || agree,
                    "a_watch_agrees_with_what_is: {task} is {state:?}, and watch {call} shows {seen:?}"
                );
            }
            let ended = |state: &str| state == "SUCCEEDED" || state == "FAILED";
            let gone = watched.states.iter().find(|(task, state)| !all.contains_key(*task) && !ended(state));
            assert!(
                gone.is_none(),
                "a_watch_agrees_with_what_is: watch {call} shows {gone:?}, which has ended"
            );
        }
    }
}
