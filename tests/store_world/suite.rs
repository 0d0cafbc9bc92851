//! What every store does. A new one is put through all of it: see `store_conformance.rs`.

use agent_reach::callbacks::Busy;
use agent_reach::store::{BlockWriter, KeptKey, Store, SweepBounds, restore};
use agent_reach_core::{
    Answer, CallId, Change, Holder, Kept, Moved, NewTask, OpenTask, Question, StoredCall, TaskEnd, TaskId,
    TaskRow, TaskState, Whose,
};
use bytes::Bytes;

use super::world::*;

/// The lives of one store.
pub(crate) trait Lives {
    /// Ends its present life, if it has one, and begins the next.
    fn open(&mut self) -> &mut dyn Store;
}

fn write(store: &mut dyn Store, changes: impl IntoIterator<Item = Change>) -> u64 {
    let changes: Vec<_> = (1..).zip(changes).collect();
    store.write(&changes).unwrap()
}

fn moved(number: u64, at: u64, state: TaskState, holder: Option<(&str, &str)>) -> Moved {
    let holder = holder.map(|(agent, instance)| Holder {
        agent: agent.into(),
        instance: instance.into(),
        capability: Some("digest".into()),
        idempotent: true,
    });
    Moved { task: id(number), at, state, attempt: 2, holder }
}

fn key(store: &mut dyn Store, request_id: &str, now: u64) -> Option<Kept> {
    let question = Question::Key { identity: IDENTITY.into(), request_id: request_id.into(), now };
    let Answer::Key(kept) = store.answer(&question).unwrap() else { panic!("no such answer") };
    kept
}

fn owed(store: &mut dyn Store, agent: &str, after: Option<TaskId>, most: (usize, usize)) -> Vec<TaskId> {
    let Answer::Owed(ends) = store.answer(&Question::Owed { agent: agent.into(), after, most }).unwrap()
    else {
        panic!("no such answer")
    };
    ends.into_iter().map(|(id, _)| id).collect()
}

fn one(store: &mut dyn Store, identity: &str, number: u64) -> Option<TaskRow> {
    let whose = Whose::One(identity.into());
    let Answer::Task(row) = store.answer(&Question::Task { whose, task: id(number) }).unwrap() else {
        panic!("no such answer")
    };
    row.map(|row| *row)
}

fn tasks(
    store: &mut dyn Store,
    state: Option<TaskState>,
    capability: Option<&str>,
    before: Option<u64>,
    most: usize,
) -> Vec<TaskId> {
    let (capability, before) = (capability.map(Into::into), before.map(id));
    let question = Question::Tasks { whose: Whose::One(IDENTITY.into()), state, capability, before, most };
    let Answer::Tasks(rows) = store.answer(&question).unwrap() else { panic!("no such answer") };
    rows.into_iter().map(|row| row.id).collect()
}

pub(crate) fn an_open_task_is_found_as_it_was_accepted_and_moved(lives: &mut dyn Lives) {
    let store = lives.open();
    let mut full = task(2);
    full.callback_url = Some("https://example.com/hook".into());
    full.reply_to = Some("inbox".into());
    let last = moved(2, 60, TaskState::Processing, Some(("worker", "one")));
    let changes = [
        new(full.clone()),
        new(task(1)),
        Change::Moved(moved(2, 50, TaskState::Received, Some(("other", "two")))),
        Change::Moved(last.clone()),
    ];
    assert_eq!(write(store, changes), 0);
    let restored = restore(lives.open(), 0).unwrap();
    let queued = Moved { task: id(1), at: 1, state: TaskState::Queued, attempt: 0, holder: None };
    let expected = [OpenTask { task: task(1), moved: queued }, OpenTask { task: full, moved: last }];
    assert_eq!(restored.open, expected);
    assert!(restored.owed.is_empty());
}

pub(crate) fn who_had_a_task_last_is_shown_when_nobody_has_it(lives: &mut dyn Lives) {
    let store = lives.open();
    let changes = [
        new(task(1)),
        Change::Moved(moved(1, 50, TaskState::Received, Some(("worker", "one")))),
        Change::Moved(moved(1, 60, TaskState::Queued, None)),
    ];
    write(store, changes);
    assert_eq!(one(store, IDENTITY, 1).unwrap().holder, Some(text("worker")));
    assert_eq!(restore(store, 0).unwrap().open[0].moved.holder, None);
}

pub(crate) fn an_ended_task_is_no_longer_open_and_owed_to_both_recipients(lives: &mut dyn Lives) {
    let store = lives.open();
    let both = NewTask { reply_to: Some("inbox".into()), ..task(1) };
    let itself = NewTask { reply_to: Some("caller".into()), ..task(2) };
    write(store, [new(both), new(itself), ended(end(1)), ended(end(2))]);
    let store = lives.open();
    let restored = restore(store, 0).unwrap();
    assert!(restored.open.is_empty());
    assert_eq!(restored.owed, [text("caller"), text("inbox")]);
    assert_eq!(owed(store, "caller", None, (9, 999)), [id(1), id(2)]);
    assert_eq!(owed(store, "inbox", None, (9, 999)), [id(1)]);
    assert_eq!(write(store, [receipt(1, "caller"), receipt(2, "caller")]), 0);
    assert_eq!(owed(store, "caller", None, (9, 999)), []);
    assert_eq!(restore(store, 0).unwrap().owed, [text("inbox")]);
}

pub(crate) fn ends_that_are_owed_come_in_pages_of_rows_and_bytes(lives: &mut dyn Lives) {
    let store = lives.open();
    write(store, (1..=5).flat_map(|number| [new(task(number)), ended(end(number))]));
    assert_eq!(owed(store, "caller", None, (2, 999)), [id(1), id(2)]);
    assert_eq!(owed(store, "caller", Some(id(2)), (9, 999)), [id(3), id(4), id(5)]);
    // Each has five bytes; the first comes in any case.
    assert_eq!(owed(store, "caller", None, (9, 10)), [id(1), id(2)]);
    assert_eq!(owed(store, "caller", None, (9, 9)), [id(1)]);
    assert_eq!(owed(store, "caller", None, (9, 0)), [id(1)]);
    assert_eq!(owed(store, "calle", None, (9, 999)), []);
    assert_eq!(owed(store, "callers", None, (9, 999)), []);
}

pub(crate) fn a_task_is_shown_to_its_owner_alone(lives: &mut dyn Lives) {
    let store = lives.open();
    write(store, [new(task(1)), new(task(2)), ended(end(2))]);
    let row = TaskRow {
        id: id(2),
        state: TaskState::Succeeded,
        agent: "caller".into(),
        request_id: "request-2".into(),
        capability: "text.count".into(),
        created: 2,
        updated: 1_000,
        attempt: 1,
        holder: None,
        outcome: Some("completed".into()),
        end: Some(Bytes::from("end 2")),
        callback: None,
        retry_of: None,
    };
    assert_eq!(one(store, IDENTITY, 2), Some(row));
    let open = one(store, IDENTITY, 1).unwrap();
    assert_eq!((open.state, open.outcome, open.end), (TaskState::Queued, None, None));
    assert_eq!(one(store, "spiffe://d/agent/other", 2), None);
    assert_eq!(one(store, IDENTITY, 3), None);
}

pub(crate) fn an_ended_task_s_call_is_kept_for_as_long_as_the_task_and_read_by_whom_it_concerns(
    lives: &mut dyn Lives,
) {
    fn call(store: &mut dyn Store, whose: Whose) -> Option<StoredCall> {
        let Answer::Call(stored) = store.answer(&Question::Call { whose, task: id(2) }).unwrap() else {
            panic!("no such answer")
        };
        stored.map(|stored| *stored)
    }
    let own = || Whose::One(IDENTITY.into());
    let again = NewTask { retry_of: Some(id(1)), ..task(2) };
    let stored = |state| Some(StoredCall { task: again.clone(), state });
    let store = lives.open();
    write(store, [new(again.clone())]);
    assert_eq!(call(store, own()), stored(TaskState::Queued));
    let failed = TaskEnd { outcome: "timeout", ..end(2) };
    write(lives.open(), [ended(failed)]);
    let store = lives.open();
    assert_eq!(call(store, own()), stored(TaskState::Failed));
    assert_eq!(call(store, Whose::Everybodys), stored(TaskState::Failed));
    assert_eq!(call(store, Whose::One("spiffe://d/agent/other".into())), None);
    assert_eq!(one(store, IDENTITY, 2).unwrap().retry_of, Some(id(1)));
    store.sweep(20_000, bounds(9)).unwrap();
    assert_eq!(call(store, own()), None);
}

pub(crate) fn tasks_are_listed_newest_first_and_filtered(lives: &mut dyn Lives) {
    let store = lives.open();
    let other = NewTask { identity: "spiffe://d/agent/other".into(), ..task(9) };
    let image = NewTask { capability: "image.scale".into(), ..task(2) };
    let failed = TaskEnd { outcome: "timeout", ..end(3) };
    let changes = [
        new(task(1)),
        new(image),
        new(task(3)),
        new(task(4)),
        new(other),
        ended(end(1)),
        ended(end(2)),
        ended(failed),
        ended(end(9)),
    ];
    write(store, changes);
    assert_eq!(tasks(store, None, None, None, 9), [id(4), id(3), id(2), id(1)]);
    assert_eq!(tasks(store, None, None, None, 2), [id(4), id(3)]);
    assert_eq!(tasks(store, None, None, Some(3), 9), [id(2), id(1)]);
    assert_eq!(tasks(store, Some(TaskState::Failed), None, None, 9), [id(3)]);
    assert_eq!(tasks(store, Some(TaskState::Queued), None, None, 9), [id(4)]);
    assert_eq!(tasks(store, None, Some("image.scale"), None, 9), [id(2)]);
    let everybodys = |store: &mut dyn Store, state, capability: Option<&str>, most| {
        let (whose, capability) = (Whose::Everybodys, capability.map(Into::into));
        let question = Question::Tasks { whose, state, capability, before: Some(id(10)), most };
        let Answer::Tasks(rows) = store.answer(&question).unwrap() else { panic!("no such answer") };
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(everybodys(store, None, None, 3), [id(9), id(4), id(3)]);
    assert_eq!(everybodys(store, Some(TaskState::Queued), None, 9), [id(4)]);
    assert_eq!(everybodys(store, Some(TaskState::Queued), Some("image.scale"), 9), []);
    let question = Question::Task { whose: Whose::Everybodys, task: id(9) };
    assert!(matches!(store.answer(&question).unwrap(), Answer::Task(Some(_))));
    assert_eq!(store.counts(), [1, 0, 0, 3, 1]);
}

pub(crate) fn a_request_id_is_kept_while_its_task_is_open_and_then_as_long_as_its_end_says(
    lives: &mut dyn Lives,
) {
    let store = lives.open();
    write(store, [new(task(1))]);
    let open_key = |ends| Some(Kept { fingerprint: u128::MAX - 1, until: 10_000, task: Some(id(1)), ends });
    assert_eq!(key(store, "request-1", NEVER), open_key(vec![]));
    write(store, [ended(end(1))]);
    assert_eq!(key(store, "request-1", 9_999), open_key(vec![Bytes::from("end 1")]));
    assert_eq!(key(store, "request-1", 10_000), None);
    let kept = KeptKey { identity: IDENTITY.into(), request_id: "request-1".into(), until: 10_000 };
    let store = lives.open();
    assert_eq!(restore(store, 9_999).unwrap().keys, [kept]);
    assert_eq!(restore(store, 10_000).unwrap().keys, []);
}

pub(crate) fn an_end_that_keeps_no_request_id_frees_it(lives: &mut dyn Lives) {
    let store = lives.open();
    let free = TaskEnd { outcome: "overloaded", keep_until: 1_000, ..end(1) };
    write(store, [new(task(1)), ended(free)]);
    assert_eq!(key(store, "request-1", 0), None);
    assert!(one(store, IDENTITY, 1).is_some());
    // The next with the same id is another task, whose key the former's sweep leaves alone.
    let again = NewTask { request_id: "request-1".into(), ..task(2) };
    write(store, [new(again)]);
    assert_eq!(store.sweep(20_000, bounds(9)).unwrap().tasks, 1);
    assert_eq!(key(store, "request-1", 0).unwrap().task, Some(id(2)));
}

pub(crate) fn no_request_id_is_kept_longer_than_its_task(lives: &mut dyn Lives) {
    let store = lives.open();
    let long = TaskEnd { keep_until: NEVER, ..end(1) };
    write(store, [new(task(1)), ended(long)]);
    assert_eq!(key(store, "request-1", 0).unwrap().until, 20_000);
}

pub(crate) fn a_call_is_kept_with_all_its_ends(lives: &mut dyn Lives) {
    let store = lives.open();
    let mut many = call("many", 500);
    many.ends = vec![Bytes::from("one"), Bytes::new(), Bytes::from(vec![0; 100_000])];
    write(store, [kept(many.clone())]);
    let store = lives.open();
    let found = key(store, "many", 499);
    assert_eq!(found, Some(Kept { fingerprint: 9, until: 500, task: None, ends: many.ends }));
    assert_eq!(key(store, "many", 500), None);
}

pub(crate) fn what_was_kept_before_gives_way(lives: &mut dyn Lives) {
    let store = lives.open();
    write(store, [kept(call("request-1", 5)), new(task(1))]);
    let found = key(store, "request-1", 7).unwrap();
    assert_eq!((found.task, found.ends), (Some(id(1)), vec![]));
    write(store, [ended(end(1)), kept(call("request-1", 50_000))]);
    let found = key(store, "request-1", 20_000).unwrap();
    assert_eq!((found.task, found.until, found.ends), (None, 50_000, vec![Bytes::from("result")]));
    store.sweep(20_000, bounds(9)).unwrap();
    assert!(key(store, "request-1", 20_000).is_some(), "it is no longer the task's");
}

pub(crate) fn a_call_does_not_take_the_request_id_of_an_open_task(lives: &mut dyn Lives) {
    let store = lives.open();
    assert_eq!(write(store, [new(task(1)), kept(call("request-1", NEVER))]), 1);
    assert_eq!(key(store, "request-1", 0).unwrap().task, Some(id(1)));
}

pub(crate) fn what_names_no_task_or_an_ended_one_is_ignored_and_counted(lives: &mut dyn Lives) {
    let store = lives.open();
    let changes = [
        Change::Moved(moved(7, 5, TaskState::Received, None)),
        ended(end(7)),
        receipt(7, "caller"),
        new(task(1)),
        new(task(1)),
        receipt(1, "caller"),
        Change::Moved(moved(1, 5, TaskState::Failed, None)),
        ended(end(1)),
        ended(TaskEnd { end: Bytes::from("late"), ..end(1) }),
        Change::Moved(moved(1, 5, TaskState::Received, None)),
        receipt(1, "somebody"),
    ];
    assert_eq!(write(store, changes), 9);
    assert_eq!(one(store, IDENTITY, 1).unwrap().end, Some(Bytes::from("end 1")));
    assert_eq!(store.counts(), [0, 0, 0, 1, 0]);
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

pub(crate) fn counts_follow_the_states_into_the_next_life(lives: &mut dyn Lives) {
    let store = lives.open();
    write(store, (1..=5).map(|number| new(task(number))));
    let failed = TaskEnd { outcome: "timeout", ..end(4) };
    let changes = [
        Change::Moved(moved(1, 5, TaskState::Received, None)),
        Change::Moved(moved(2, 5, TaskState::Processing, None)),
        ended(end(3)),
        ended(failed),
    ];
    write(store, changes);
    assert_eq!(store.counts(), [1; 5]);
    assert_eq!(lives.open().counts(), [1; 5]);
}

pub(crate) fn what_has_expired_goes_in_steps_and_what_has_not_stays(lives: &mut dyn Lives) {
    let store = lives.open();
    write(store, (1..=10).map(|number| new(task(number))));
    let freed = |number| TaskEnd { keep_until: 0, ..end(number) };
    write(store, (1..=7).map(|number| ended(freed(number))));
    write(store, [ended(TaskEnd { expires: 20_001, ..end(8) })]);
    write(store, [kept(call("short", 30)), kept(call("long", 20_001))]);
    assert_eq!(store.sweep(29, bounds(3)).unwrap(), Default::default());
    let steps: Vec<_> = (0..4).map(|_| store.sweep(20_000, bounds(3)).unwrap()).collect();
    assert_eq!(steps.iter().map(|swept| swept.tasks).collect::<Vec<_>>(), [3, 3, 1, 0]);
    // The key of the eighth was kept until 10000 only.
    assert_eq!(steps.iter().map(|swept| swept.keys).collect::<Vec<_>>(), [2, 0, 0, 0]);
    assert_eq!(steps.iter().map(|swept| swept.more).collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!(owed(store, "caller", None, (99, 999)), [id(8)]);
    assert_eq!(restore(store, 0).unwrap().open.len(), 2);
    assert!(key(store, "long", 20_000).is_some());
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

pub(crate) fn a_step_removes_no_more_bytes_than_it_may(lives: &mut dyn Lives) {
    let store = lives.open();
    write(store, (1..=4).flat_map(|number| [new(task(number)), ended(end(number))]));
    // Each has eleven bytes.
    let narrow = |bytes| SweepBounds { bytes, ..bounds(9) };
    let first = store.sweep(20_000, narrow(22)).unwrap();
    assert_eq!((first.tasks, first.more), (2, true));
    let next = store.sweep(20_000, narrow(0)).unwrap();
    assert_eq!((next.tasks, next.more), (1, true));
    assert_eq!(store.sweep(20_000, narrow(22)).unwrap().tasks, 1);
}

fn with_url(number: u64) -> Change {
    let url = format!("https://example.com/{number}");
    new(NewTask { callback_url: Some(url.into()), ..task(number) })
}

fn due(store: &mut dyn Store, now: u64, most: usize) -> Vec<(TaskId, u32)> {
    due_but(store, now, most, &Busy::default())
}

fn due_but(store: &mut dyn Store, now: u64, most: usize, busy: &Busy) -> Vec<(TaskId, u32)> {
    let due = store.due_callbacks(now, most, busy).unwrap();
    due.into_iter().map(|due| (due.task, due.attempt)).collect()
}

pub(crate) fn a_delivery_is_due_at_the_end_and_again_when_it_was_said(lives: &mut dyn Lives) {
    let store = lives.open();
    write(store, [with_url(1), with_url(2), new(task(3))]);
    assert_eq!(store.next_callback(5).unwrap(), None);
    write(store, [ended(end(1)), ended(TaskEnd { at: 900, ..end(2) }), ended(end(3))]);
    assert_eq!(store.next_callback(5).unwrap(), Some(900));
    assert_eq!(store.next_callback(950).unwrap(), Some(1_000));
    assert_eq!(due(store, 899, 9), []);
    assert_eq!(due(store, 5_000, 9), [(id(2), 0), (id(1), 0)]);
    assert_eq!(due(store, 5_000, 1), [(id(2), 0)]);
    let busy = Busy { tasks: vec![id(2)], hosts: Vec::new() };
    assert_eq!(due_but(store, 5_000, 9, &busy), [(id(1), 0)]);
    let all = Busy { tasks: Vec::new(), hosts: vec!["example.com".to_owned()] };
    assert_eq!(due_but(store, 5_000, 9, &all), []);
    let first = store.due_callbacks(5_000, 1, &Busy::default()).unwrap().remove(0);
    assert_eq!((&*first.url, &*first.end), ("https://example.com/2", &b"end 2"[..]));
    assert_eq!((&*first.request_id, &*first.capability), ("request-2", "text.count"));
    store.callback_tried(id(2), 1, "HTTP 500", Some(6_000)).unwrap();
    store.callback_tried(id(1), 1, "HTTP 200", None).unwrap();
    let shown = |row: Option<TaskRow>| {
        let callback = row.unwrap().callback.unwrap();
        (callback.attempts, callback.outcome.unwrap().to_string(), callback.next)
    };
    assert_eq!(shown(one(store, IDENTITY, 2)), (1, "HTTP 500".into(), Some(6_000)));
    assert_eq!(shown(one(store, IDENTITY, 1)), (1, "HTTP 200".into(), None));
    let store = lives.open();
    assert_eq!(due(store, 5_999, 9), []);
    assert_eq!(store.next_callback(0).unwrap(), Some(6_000));
    assert_eq!(due(store, 6_000, 9), [(id(2), 1)]);
}

pub(crate) fn a_receipt_of_the_caller_ends_deliveries(lives: &mut dyn Lives) {
    let store = lives.open();
    write(store, [with_url(1), with_url(2), ended(end(1)), ended(end(2))]);
    write(store, [receipt(1, "caller"), receipt(2, "somebody")]);
    assert_eq!(due(store, 5_000, 9), [(id(2), 0)]);
    // A delivery that was under way does not bring it back.
    store.callback_tried(id(1), 1, "HTTP 500", Some(6_000)).unwrap();
    assert_eq!(due(store, 7_000, 9), [(id(2), 0)]);
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

pub(crate) fn records_come_back_in_blocks_and_the_oldest_go_first(lives: &mut dyn Lives) {
    let store = lives.open();
    let block = |from: u64| {
        let mut block = BlockWriter::default();
        // In whatever order they end.
        assert!(block.add(record(&called(from + 1))) && block.add(record(&called(from))));
        block.take(Vec::new())
    };
    for from in [10, 20, 30, 40] {
        store.write_records(&block(from)).unwrap();
    }
    let store = lives.open();
    let found = store.records(0, 2).unwrap();
    assert_eq!(found.iter().map(|(_, block)| block.clone()).collect::<Vec<_>>(), [block(10), block(20)]);
    let next = store.records(found[1].0, 9).unwrap();
    assert_eq!(next.iter().map(|(_, block)| block.first_ms).collect::<Vec<_>>(), [35, 45]);
    let records = next[1].1.records().unwrap();
    assert_eq!((&*records[1].call_id, records[0].ended_ms), (&*CallId::new(7, 40), 46));
    assert_eq!((records.len(), &records[1].task), (2, &Some(id(40).to_string())));
    let two = (block(30).bytes.len() + block(40).bytes.len()) as u64;
    assert_eq!(store.stats().unwrap().records, 8);
    // The first block is too old; of the others there is room for two.
    let kept = SweepBounds { records_before: 17, records_bytes: two, ..bounds(9) };
    assert_eq!(store.sweep(0, kept).unwrap().blocks, 2);
    assert_eq!(store.records(0, 9).unwrap().len(), 2);
    let stats = store.stats().unwrap();
    assert_eq!((stats.records, stats.record_bytes, stats.oldest_record), (4, two, Some(35)));
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

pub(crate) fn figures_are_those_of_what_is_stored(lives: &mut dyn Lives) {
    let store = lives.open();
    write(store, [new(task(1)), with_url(2), new(task(3)), ended(end(1)), ended(end(2)), kept(call("x", 9))]);
    let stats = store.stats().unwrap();
    assert_eq!(stats.tasks, [1, 0, 0, 2, 0]);
    assert_eq!((stats.keys, stats.owed, stats.callbacks), (4, 2, 1));
    assert_eq!((stats.oldest_task, stats.oldest_open), (Some(1), Some(3)));
    store.probe().and_then(|()| store.checkpoint()).and_then(|()| store.shorten_log()).unwrap();
}
