//! Tasks, ends and calls as stores are given them.
#![allow(dead_code, reason = "each test binary takes what it needs")]

use agent_reach::store::{Record, Restored, StoreHandle, StoreOptions, SweepBounds};
use agent_reach_core::{CallId, CallRecord, Change, KeptCall, NewTask, StoreNews, TaskEnd, TaskId};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Long enough for anything that comes at all.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// A moment that does not come.
pub(crate) const NEVER: u64 = u64::MAX >> 1;
pub(crate) const IDENTITY: &str = "spiffe://d/agent/caller";

pub(crate) fn id(number: u64) -> TaskId {
    TaskId::new(number, 0, number)
}

/// A task of the caller, whose budget ends long after.
pub(crate) fn task(number: u64) -> NewTask {
    NewTask {
        id: id(number),
        identity: IDENTITY.into(),
        agent: "caller".into(),
        request_id: format!("request-{number}").into(),
        capability: "text.count".into(),
        fingerprint: u128::MAX - u128::from(number),
        keep_until: 10_000,
        created: number,
        budget_until: NEVER,
        call: Bytes::from(format!("call {number}")),
        callback_url: None,
        reply_to: None,
        retry_of: None,
    }
}

/// It has succeeded at 1000, and is kept until 20000, its request_id until 10000.
pub(crate) fn end(number: u64) -> TaskEnd {
    TaskEnd {
        task: id(number),
        at: 1_000,
        outcome: "completed",
        attempt: 1,
        expires: 20_000,
        keep_until: 10_000,
        end: Bytes::from(format!("end {number}")),
    }
}

pub(crate) fn call(request_id: &str, until: u64) -> KeptCall {
    KeptCall {
        identity: IDENTITY.into(),
        request_id: request_id.into(),
        fingerprint: 9,
        until,
        ends: vec![Bytes::from("result")],
    }
}

pub(crate) fn called(number: u64) -> CallRecord {
    CallRecord {
        call_id: CallId::new(7, number),
        task: number.is_multiple_of(2).then(|| id(number)),
        request_id: format!("request-{number}").into(),
        caller: "caller".into(),
        target: number.is_multiple_of(3).then(|| "worker".into()),
        capability: "text.count".into(),
        started_ms: number,
        ended_ms: number + 5,
        attempts: 1,
        targets: [].into(),
        trace: None,
        by_hub: false,
    }
}

pub(crate) fn record(call: &CallRecord) -> Record<'_> {
    Record { call, mode: "task", outcome: "completed" }
}

pub(crate) fn new(task: NewTask) -> Change {
    Change::Task(Box::new(task))
}

pub(crate) fn ended(end: TaskEnd) -> Change {
    Change::Ended(Box::new(end))
}

pub(crate) fn kept(call: KeptCall) -> Change {
    Change::Call(Box::new(call))
}

pub(crate) fn receipt(number: u64, agent: &str) -> Change {
    Change::Receipt { task: id(number), agent: agent.into(), at: 2_000 }
}

pub(crate) fn bounds(rows: usize) -> SweepBounds {
    SweepBounds { rows, bytes: usize::MAX, records_before: 0, records_bytes: u64::MAX }
}

/// A store in a file, and its news.
pub(crate) fn open(options: &StoreOptions) -> (StoreHandle, Restored, Receiver<StoreNews>) {
    let (sink, news) = channel();
    let sink = move |told| drop(sink.send(told));
    let (store, restored) = StoreHandle::open(options.clone(), sink).unwrap();
    (store, restored, news)
}

/// Makes an empty store in a file, and lets go of it.
pub(crate) fn made(options: &StoreOptions) {
    let (store, ..) = open(options);
    store.close().unwrap();
}

/// The next news.
pub(crate) fn next(news: &Receiver<StoreNews>) -> StoreNews {
    news.recv_timeout(LONG).expect("news")
}

/// News up to this one, which is among them.
pub(crate) fn until(news: &Receiver<StoreNews>, last: &StoreNews) -> Vec<StoreNews> {
    let mut heard = Vec::new();
    while heard.last() != Some(last) {
        heard.push(next(news));
    }
    heard
}

pub(crate) fn text(text: &str) -> Arc<str> {
    text.into()
}
