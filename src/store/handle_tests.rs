//! The handle over a file: what is written comes back, in this life and in the next.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use agent_reach_core::{
    Answer, Ask, Change, Holder, KeptCall, Moved, NewTask, Question, StoreNews, TaskEnd, TaskId, TaskState,
};
use bytes::Bytes;

use super::{Restored, StoreErrorKind, StoreHandle, StoreOptions};

const LONG: Duration = Duration::from_secs(5);

pub(super) fn task(number: u64) -> NewTask {
    NewTask {
        id: TaskId::new(number, 0, number),
        identity: "spiffe://d/agent/caller".into(),
        agent: "caller".into(),
        request_id: format!("request-{number}").into(),
        capability: "text.count".into(),
        fingerprint: u128::from(number) << 64 | 7,
        keep_until: u64::MAX >> 1,
        created: number,
        budget_until: 10_000 + number,
        call: Bytes::from(format!("call {number}")),
        callback_url: None,
        reply_to: None,
        retry_of: None,
    }
}

pub(super) fn end(number: u64) -> TaskEnd {
    TaskEnd {
        task: task(number).id,
        at: 5_000,
        outcome: "completed",
        attempt: 1,
        expires: u64::MAX >> 1,
        keep_until: u64::MAX >> 1,
        end: Bytes::from(format!("end {number}")),
    }
}

pub(super) fn open(options: &StoreOptions) -> (StoreHandle, Restored, Receiver<StoreNews>) {
    let (sink, news) = channel();
    let told = move |told| drop(sink.send(told));
    let (store, restored) = StoreHandle::open(options.clone(), told).unwrap();
    (store, restored, news)
}

fn ask(store: &StoreHandle, news: &Receiver<StoreNews>, question: Question) -> Answer {
    store.ask(Ask { number: 77, question });
    match news.recv_timeout(LONG) {
        Ok(StoreNews::Answered { number: 77, answer }) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_written_is_found_again_by_this_process_and_the_next() {
    let home = tempfile::tempdir().unwrap();
    let options = StoreOptions::new(home.path().join("hub.db"));
    let (store, restored, news) = open(&options);
    assert!(restored.open.is_empty() && restored.owed.is_empty() && restored.keys.is_empty());
    let holder =
        Holder { agent: "worker".into(), instance: "one".into(), capability: None, idempotent: true };
    let moved =
        Moved { task: task(2).id, at: 9, state: TaskState::Processing, attempt: 3, holder: Some(holder) };
    store.write([
        (1, Change::Task(Box::new(task(1)))),
        (2, Change::Task(Box::new(task(2)))),
        (3, Change::Moved(moved.clone())),
        (4, Change::Ended(Box::new(end(1)))),
        (
            5,
            Change::Call(Box::new(KeptCall {
                identity: "i".into(),
                request_id: "r".into(),
                fingerprint: 3,
                until: u64::MAX >> 1,
                ends: vec![Bytes::from("a"), Bytes::from("b")],
            })),
        ),
    ]);
    assert_eq!(news.recv_timeout(LONG), Ok(StoreNews::Written { up_to: 5 }));
    let key = Question::Key { identity: "i".into(), request_id: "r".into(), now: 0 };
    let Answer::Key(Some(kept)) = ask(&store, &news, key) else { panic!("not kept") };
    assert_eq!(kept.ends, [Bytes::from("a"), Bytes::from("b")]);
    let owed = Question::Owed { agent: "caller".into(), after: None, most: (10, 1000) };
    assert_eq!(ask(&store, &news, owed), Answer::Owed(vec![(task(1).id, Bytes::from("end 1"))]));
    let again = StoreHandle::open(options.clone(), |_| {}).unwrap_err();
    assert_eq!(again.kind, StoreErrorKind::Locked, "{again}");
    store.close().unwrap();

    let (_store, restored, _news) = open(&options);
    let open: Vec<_> = restored.open.iter().map(|open| (&open.task, &open.moved)).collect();
    assert_eq!(open, [(&task(2), &moved)]);
    assert_eq!(restored.owed, ["caller".into()]);
    let keys: Vec<_> = restored.keys.iter().map(|key| &*key.request_id).collect();
    assert_eq!(keys, ["r", "request-1", "request-2"]);
}
