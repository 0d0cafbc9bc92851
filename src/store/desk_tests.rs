//! What is done and told in which order, with time as an argument.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use agent_reach_core::{Change, KeptCall, Moved, StoreNews, TaskState};
use bytes::Bytes;

use super::desk::Desk;
use super::figures::Counters;
use super::handle_tests::task;
use super::job::{Batch, Done, Job, Left};
use super::{StoreError, StoreErrorKind, StoreOptions};

struct World {
    desk: Desk,
    counters: Arc<Counters>,
    now: Instant,
    /// The batch that the writer has.
    taken: Batch,
}

impl World {
    /// Nothing expires and nothing is recorded in it.
    fn new(change: impl FnOnce(&mut StoreOptions)) -> Self {
        let mut options = StoreOptions::new("none");
        options.sweep_every = (Duration::from_secs(3600), Duration::from_secs(3600));
        options.records_every = Duration::from_secs(3600);
        change(&mut options);
        let (counters, now) = (Arc::new(Counters::default()), Instant::now());
        let mut world =
            Self { desk: Desk::new(options, Arc::clone(&counters), now), counters, now, taken: Vec::new() };
        assert_eq!(world.next(), "sweep");
        world.desk.done(now, Done::Sweep(Ok(Left::Nothing)));
        world
    }

    fn advance(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// What the writer is given now, in a word.
    fn next(&mut self) -> String {
        match self.desk.next(self.now) {
            None => "nothing".into(),
            Some(Job::Batch(batch)) => {
                let numbers: Vec<_> = batch.iter().map(|(number, _)| number.to_string()).collect();
                self.taken = batch;
                numbers.join(" ")
            }
            Some(Job::Probe) => "probe".into(),
            Some(Job::Sweep) => "sweep".into(),
            Some(Job::Records) => "records".into(),
            Some(Job::Errand(_)) => "errand".into(),
        }
    }

    fn written(&mut self) {
        self.desk.done(self.now, Done::Batch(Ok(0)));
    }

    fn full(&mut self) {
        let batch = std::mem::take(&mut self.taken);
        self.desk.done(self.now, Done::Batch(Err((batch, full()))));
    }

    fn news(&mut self) -> Vec<StoreNews> {
        self.desk.news()
    }
}

fn full() -> StoreError {
    StoreError::new(StoreErrorKind::Full, "no room")
}

fn new(number: u64) -> (u64, Change) {
    (number, Change::Task(Box::new(task(number))))
}

fn moved(number: u64) -> (u64, Change) {
    let (task, state) = (task(1).id, TaskState::Queued);
    (number, Change::Moved(Moved { task, at: number, state, attempt: 1, holder: None }))
}

fn call(number: u64, bytes: usize) -> (u64, Change) {
    let ends = vec![Bytes::from(vec![0; bytes])];
    let (identity, request_id) = ("i".into(), number.to_string().into());
    (number, Change::Call(Box::new(KeptCall { identity, request_id, fingerprint: 0, until: 9, ends })))
}

fn refused(numbers: &[u64], reason: &str) -> StoreNews {
    StoreNews::Refused { numbers: numbers.to_vec(), reason: reason.into() }
}

const FULL: &str = "the store is full";

#[test]
fn a_change_alone_is_written_at_once_and_those_behind_it_gather() {
    let mut world = World::new(|_| {});
    world.desk.add([new(1)]);
    assert_eq!(world.next(), "1");
    world.desk.add([new(2)]);
    assert_eq!(world.next(), "nothing");
    world.desk.add([moved(3)]);
    world.written();
    assert_eq!(world.news(), [StoreNews::Written { up_to: 1 }]);
    assert_eq!(world.next(), "nothing");
    world.advance(4);
    assert_eq!(world.next(), "nothing");
    assert_eq!(world.desk.wake(world.now), world.now + Duration::from_millis(1));
    world.advance(1);
    assert_eq!(world.next(), "2 3");
    world.written();
    assert_eq!(world.news(), [StoreNews::Written { up_to: 3 }]);
    assert_eq!(world.counters.backlog_bytes.load(Relaxed), 0);
}

#[test]
fn a_batch_that_fails_refuses_its_tasks_and_keeps_all_else_until_it_is_written() {
    let mut world = World::new(|_| {});
    world.desk.add([new(1), moved(2), new(3)]);
    assert_eq!(world.next(), "1 2 3");
    world.desk.add([new(4), moved(5)]);
    world.full();
    assert_eq!(world.news(), [refused(&[1, 3, 4], FULL), StoreNews::Writable(false)]);
    world.desk.add([new(6), moved(7)]);
    assert_eq!(world.news(), [refused(&[6], FULL)]);
    assert_eq!(world.next(), "nothing");
    world.advance(100);
    assert_eq!(world.next(), "2 5 7");
    world.full();
    assert_eq!(world.news(), []);
    // The pause doubles, up to a second.
    for pause in [200, 400, 800, 1000, 1000] {
        world.advance(pause - 1);
        assert_eq!(world.next(), "nothing", "{pause}");
        world.advance(1);
        assert_eq!(world.next(), "2 5 7", "{pause}");
        world.full();
    }
    world.advance(1000);
    assert_eq!(world.next(), "2 5 7");
    world.written();
    assert_eq!(world.news(), [StoreNews::Written { up_to: 7 }]);
    // What fits is no proof that a task does.
    assert_eq!(world.next(), "probe");
    world.desk.done(world.now, Done::Probe(Ok(())));
    assert_eq!(world.news(), [StoreNews::Writable(true)]);
    world.desk.add([new(8)]);
    world.advance(5);
    assert_eq!(world.next(), "8");
}

#[test]
fn with_nothing_to_write_it_probes() {
    let mut world = World::new(|_| {});
    world.desk.add([new(1)]);
    world.next();
    world.full();
    assert_eq!(world.news(), [refused(&[1], FULL), StoreNews::Writable(false)]);
    for pause in [100, 200] {
        world.advance(pause);
        assert_eq!(world.next(), "probe");
        world.desk.done(world.now, Done::Probe(Err(full())));
        assert_eq!(world.news(), []);
    }
    world.advance(400);
    assert_eq!(world.next(), "probe");
    world.desk.done(world.now, Done::Probe(Ok(())));
    assert_eq!(world.news(), [StoreNews::Writable(true)]);
    world.advance(5000);
    assert_eq!(world.next(), "nothing");
}

#[test]
fn a_write_that_hangs_is_told_of_and_so_is_its_coming_back() {
    let mut world = World::new(|_| {});
    world.desk.add([new(1)]);
    assert_eq!(world.next(), "1");
    world.desk.add([new(2), moved(3)]);
    world.advance(4999);
    assert_eq!((world.next(), world.news()), ("nothing".into(), vec![]));
    assert_eq!(world.desk.wake(world.now), world.now + Duration::from_millis(1));
    world.advance(1);
    assert_eq!(world.next(), "nothing");
    let hangs = "the store does not answer";
    assert_eq!(world.news(), [refused(&[2], hangs), StoreNews::Writable(false)]);
    assert!(world.desk.wake(world.now) > world.now, "it waits for the write, and does not spin");
    world.desk.add([new(4)]);
    assert_eq!(world.news(), [refused(&[4], hangs)]);
    world.written();
    assert_eq!(world.news(), [StoreNews::Written { up_to: 1 }, StoreNews::Writable(true)]);
    assert_eq!(world.next(), "3");
}

#[test]
fn a_write_that_hangs_and_fails_then_refuses_its_own_tasks() {
    let mut world = World::new(|_| {});
    world.desk.add([new(1)]);
    world.next();
    world.advance(5000);
    world.next();
    assert_eq!(world.news(), [StoreNews::Writable(false)]);
    world.full();
    assert_eq!(world.news(), [refused(&[1], FULL)]);
}

#[test]
fn beyond_the_bound_ends_of_calls_are_left_out_and_tasks_refused_and_all_else_stays() {
    let mut world = World::new(|options| options.backlog_bytes = 10_000);
    world.desk.add([call(1, 9_000), call(2, 2_000), call(3, 10), new(4), moved(5)]);
    assert_eq!(world.news(), [refused(&[4], "more waits to be stored than there is room for")]);
    assert_eq!(world.counters.left_out.load(Relaxed), 1);
    assert_eq!(world.next(), "1 2 5");
    assert!(world.counters.backlog_bytes.load(Relaxed) > 11_000, "what is under way counts");
    world.desk.add([call(6, 10)]);
    assert_eq!(world.counters.left_out.load(Relaxed), 2);
    world.written();
    // Nothing waits any more, so all that was seen is settled.
    assert_eq!(world.news(), [StoreNews::Written { up_to: 6 }]);
}

#[test]
fn a_batch_is_bounded_and_a_full_one_does_not_wait() {
    let mut world = World::new(|_| {});
    world.desk.add((1..=5000).map(moved));
    assert!(world.next().ends_with(" 4096"));
    world.written();
    world.desk.add((5001..=10_000).map(moved));
    assert!(world.next().ends_with(" 8192"));
    world.written();
    assert_eq!(world.next(), "nothing");
    world.advance(5);
    assert!(world.next().ends_with(" 10000"));
}

#[test]
fn other_work_goes_between_batches_and_is_not_starved_by_them() {
    let mut world = World::new(|options| options.flush = Duration::ZERO);
    let errand = || Box::new(|_: Result<&mut dyn super::Store, StoreError>| Ok(()));
    world.desk.add([moved(1)]);
    world.desk.add_errand(world.now, errand());
    assert_eq!(world.next(), "1");
    world.desk.add([moved(2)]);
    world.advance(49);
    world.written();
    assert_eq!(world.next(), "2");
    world.desk.add([moved(3)]);
    world.advance(1);
    world.written();
    assert_eq!(world.next(), "errand");
    world.desk.done(world.now, Done::Other(Ok(())));
    assert_eq!(world.next(), "3");
}

#[test]
fn steps_of_the_sweep_follow_each_other_while_there_is_more() {
    let mut world = World::new(|options| {
        options.sweep_every = (Duration::from_millis(20), Duration::from_secs(1));
    });
    let mut step = |after: u64, took, left| {
        world.advance(after - 1);
        assert_eq!(world.next(), "nothing");
        world.advance(1);
        assert_eq!(world.next(), "sweep");
        world.advance(took);
        world.desk.done(world.now, Done::Sweep(Ok(left)));
        assert_eq!(world.next(), "nothing");
    };
    step(1000, 0, Left::Some);
    step(20, 5, Left::Some);
    // It rests for long beside what it took, unless it is late.
    step(5 * 32, 50, Left::Late);
    step(50, 1, Left::Late);
    step(20, 5, Left::Nothing);
    world.advance(994);
    assert_eq!(world.next(), "nothing");
    world.advance(1);
    assert_eq!(world.next(), "sweep");
}

#[test]
fn closing_writes_what_waits_without_waiting() {
    let mut world = World::new(|_| {});
    world.desk.add([moved(1)]);
    assert_eq!(world.next(), "1");
    world.desk.add([moved(2)]);
    world.desk.close(world.now);
    assert_eq!(world.desk.closed(world.now), None);
    world.written();
    assert_eq!(world.desk.closed(world.now), None);
    assert_eq!(world.next(), "2");
    world.written();
    assert_eq!(world.desk.closed(world.now), Some(Ok(())));
}

#[test]
fn closing_gives_up_after_one_more_try() {
    let mut world = World::new(|_| {});
    world.desk.add([moved(1)]);
    world.next();
    world.full();
    world.desk.close(world.now);
    assert_eq!(world.next(), "1");
    world.full();
    assert_eq!(world.desk.closed(world.now), Some(Err(full())));
}

#[test]
fn closing_does_not_wait_for_a_write_that_hangs() {
    let mut world = World::new(|_| {});
    world.desk.add([moved(1)]);
    world.next();
    world.desk.close(world.now);
    world.advance(5000);
    assert_eq!(world.desk.closed(world.now).unwrap().unwrap_err().kind, StoreErrorKind::Io);
}
