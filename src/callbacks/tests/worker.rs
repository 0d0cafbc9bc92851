//! The worker, on a clock that moves only when everybody waits.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, timeout};

use super::super::{
    AllowedHosts, Bounds, Failure, Letter, Outcome, Post, Refused, Schedule, Secrets, Target, Worker,
};
use super::memory::Memory;
use super::{SECRET, hosts, task};

/// When every test begins, in milliseconds since the Unix epoch.
const START: u64 = 1_700_000_000_000;
const MINUTE: u64 = 60_000;
const OK: Outcome = Outcome::Delivered { status: 200 };

/// How a delivery ends, by host and number of the delivery.
type Says = Box<dyn Fn(&str, usize) -> Option<Outcome> + Send + Sync>;

/// The wall clock of a test that began then.
fn clock(begun: Instant) -> u64 {
    START + u64::try_from(begun.elapsed().as_millis()).unwrap()
}

/// A post office that says what its test wants: by host and number of the delivery, from 1. `None`: never.
struct Fake {
    says: Says,
    seen: Mutex<Seen>,
    begun: Instant,
}

#[derive(Default)]
struct Seen {
    letters: Vec<(u64, Letter)>,
    open: BTreeMap<String, usize>,
    /// Most at a time: to one host, and in all.
    most: (usize, usize),
}

impl Post for Fake {
    async fn post(&self, target: Target, letter: Letter) -> Outcome {
        let host = target.host().to_string();
        let number = {
            let mut seen = self.seen.lock().unwrap();
            seen.letters.push((clock(self.begun), letter));
            let own = seen.open.entry(host.clone()).or_default();
            *own += 1;
            let (own, all) = (*own, seen.open.values().sum());
            seen.most = (seen.most.0.max(own), seen.most.1.max(all));
            seen.letters.len()
        };
        let outcome = match (self.says)(&host, number) {
            Some(outcome) => {
                tokio::task::yield_now().await;
                outcome
            }
            None => {
                // What the client makes of a receiver that never answers.
                let never = timeout(Duration::from_secs(15), std::future::pending::<()>()).await;
                never.map_or(Outcome::Failed(Failure::Timeout), |()| OK)
            }
        };
        *self.seen.lock().unwrap().open.entry(host).or_default() -= 1;
        outcome
    }
}

struct World {
    book: Arc<Memory>,
    post: Arc<Fake>,
    wake: Arc<Notify>,
    hosts: AllowedHosts,
    words: Arc<Mutex<Vec<&'static str>>>,
    secret: tempfile::NamedTempFile,
    begun: Instant,
}

impl World {
    fn new(list: &[&str], says: impl Fn(&str, usize) -> Option<Outcome> + Send + Sync + 'static) -> Self {
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secret.path(), SECRET).unwrap();
        let begun = Instant::now();
        Self {
            book: Memory::new(list),
            post: Arc::new(Fake { says: Box::new(says), seen: Mutex::default(), begun }),
            wake: Arc::default(),
            hosts: hosts(list),
            words: Arc::default(),
            secret,
            begun,
        }
    }

    fn now(&self) -> u64 {
        clock(self.begun)
    }

    /// Starts a worker, which is the hub coming up. Ending the handle is the hub going down.
    fn worker(&self) -> JoinHandle<()> {
        let (begun, words) = (self.begun, Arc::clone(&self.words));
        let worker = Worker {
            book: Arc::clone(&self.book),
            post: Arc::clone(&self.post),
            hosts: self.hosts.clone(),
            secrets: Secrets::load(self.secret.path()).unwrap(),
            schedule: Schedule::new(&crate::config::Callbacks::default().schedule_ms),
            bounds: Bounds::default(),
            now_ms: Arc::new(move || clock(begun)),
            ended: Arc::new(move |word| words.lock().unwrap().push(word)),
            wake: Arc::clone(&self.wake),
        };
        tokio::spawn(worker.run())
    }

    /// When deliveries were made, in milliseconds since the beginning, and their ids.
    fn posted(&self) -> Vec<(u64, String)> {
        let seen = self.post.seen.lock().unwrap();
        seen.letters.iter().map(|(at, letter)| (at - START, letter.id.clone())).collect()
    }

    fn words(&self) -> Vec<&'static str> {
        self.words.lock().unwrap().clone()
    }
}

fn failed(status: u16) -> Outcome {
    Outcome::Status { status, retry_after_ms: None }
}

#[tokio::test(start_paused = true)]
async fn five_deliveries_with_one_id_are_made_on_time_and_then_it_is_over() {
    let world = World::new(&["a.example"], |_, _| Some(failed(404)));
    world.book.add(task(1), "https://a.example/", START);
    let _worker = world.worker();
    let tried = world.book.has_tried(5).await;
    let minutes: Vec<u64> = world.posted().iter().map(|(at, _)| at / MINUTE).collect();
    assert_eq!(minutes, [0, 1, 6, 36, 156]);
    assert!(world.posted().iter().all(|(_, id)| *id == task(1).to_string()));
    assert_eq!(tried.iter().map(|tried| tried.attempt).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let last = tried.last().unwrap();
    assert_eq!((last.outcome.as_str(), last.next_ms), ("HTTP 404", None));
    assert_eq!(world.words(), ["handler_error"; 5]);
    advance(Duration::from_secs(86_400)).await;
    tokio::task::yield_now().await;
    assert_eq!((world.posted().len(), world.book.open()), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_delivered_on_time_by_a_hub_that_was_restarted() {
    let world = World::new(&["a.example"], |_, number| Some(if number < 3 { failed(500) } else { OK }));
    world.book.add(task(1), "https://a.example/", START);
    for number in 1..=3 {
        let worker = world.worker();
        world.book.has_tried(number).await;
        worker.abort();
    }
    let minutes: Vec<u64> = world.posted().iter().map(|(at, _)| at / MINUTE).collect();
    assert_eq!(minutes, [0, 1, 6]);
    assert_eq!(world.words(), ["handler_error", "handler_error", "completed"]);
    assert_eq!(world.book.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_was_down_when_a_delivery_was_due_makes_it_when_it_comes_up() {
    let world = World::new(&["a.example"], |_, _| Some(OK));
    world.book.add(task(1), "https://a.example/", START);
    advance(Duration::from_secs(3_600)).await;
    let _worker = world.worker();
    world.book.has_tried(1).await;
    assert_eq!(world.posted(), [(60 * MINUTE, task(1).to_string())]);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_asks_for_time_gets_it() {
    let busy = Outcome::Status { status: 503, retry_after_ms: Some(90 * MINUTE) };
    let world =
        World::new(&["a.example"], move |_, number| Some(if number == 1 { busy.clone() } else { OK }));
    world.book.add(task(1), "https://a.example/", START);
    let _worker = world.worker();
    world.book.has_tried(2).await;
    assert_eq!(world.posted()[1].0 / MINUTE, 90);
    assert_eq!(world.words(), ["overloaded", "completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_gone_and_one_that_has_it_are_left_alone() {
    let world = World::new(&["a.example", "b.example"], |host, _| {
        Some(if host == "a.example" { Outcome::Gone } else { OK })
    });
    world.book.add(task(1), "https://a.example/", START);
    world.book.add(task(2), "https://b.example/", START);
    let _worker = world.worker();
    let tried = world.book.has_tried(2).await;
    assert!(tried.iter().all(|tried| tried.next_ms.is_none()));
    let mut words = world.words();
    words.sort_unstable();
    assert_eq!(words, ["cancelled", "completed"]);
    advance(Duration::from_secs(86_400)).await;
    tokio::task::yield_now().await;
    assert_eq!(world.posted().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_receipt_stops_further_deliveries() {
    let world = World::new(&["a.example"], |_, _| Some(failed(500)));
    world.book.add(task(1), "https://a.example/", START);
    let _worker = world.worker();
    world.book.has_tried(1).await;
    world.book.receipt(task(1));
    advance(Duration::from_secs(86_400)).await;
    tokio::task::yield_now().await;
    assert_eq!(world.posted().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_is_delivered_at_once_when_the_worker_is_told() {
    let world = World::new(&["a.example"], |_, _| Some(OK));
    let _worker = world.worker();
    for number in 1..=3 {
        advance(Duration::from_millis(2_500)).await;
        world.book.add(task(number), "https://a.example/", world.now());
        world.wake.notify_one();
        world.book.has_tried(number).await;
    }
    let moments: Vec<u64> = world.posted().iter().map(|(at, _)| *at).collect();
    assert_eq!(moments, [2_500, 5_000, 7_500]);
}

#[tokio::test(start_paused = true)]
async fn what_becomes_due_while_the_book_is_read_is_not_overlooked() {
    let world = World::new(&["a.example"], |_, _| Some(OK));
    world.book.slow.store(50, Ordering::SeqCst);
    world.book.add(task(1), "https://a.example/", START + 30);
    let _worker = world.worker();
    world.book.has_tried(1).await;
    // The first look ends at 50, and the next one begins 20 later.
    assert_eq!(world.posted(), [(120, task(1).to_string())]);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_never_answers_delays_nobody_else() {
    let names: Vec<String> = (0..10).map(|number| format!("h{number}.example")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::new(&names, |host, _| (host != "h0.example").then_some(OK));
    // A thousand of the silent one's stand before all others.
    for number in 0..1_000 {
        world.book.add(task(number), "https://h0.example/", START - 1);
    }
    for number in 0..180 {
        world.book.add(task(1_000 + number), &format!("https://h{}.example/", 1 + number % 9), START);
    }
    let _worker = world.worker();
    let tried = world.book.has_tried(180).await;
    assert!(tried.iter().all(|tried| tried.outcome == "HTTP 200"));
    assert_eq!(world.now(), START, "all others have theirs before any time has passed");
    // The silent one's own line goes on, four at a time.
    let tried = world.book.has_tried(188).await;
    assert!(tried[180..].iter().all(|tried| tried.outcome == "no answer in time"));
    assert_eq!(world.now(), START + 30_000);
}

#[tokio::test(start_paused = true)]
async fn deliveries_at_a_time_are_bounded_for_each_host_and_in_all() {
    let names: Vec<String> = (0..40).map(|number| format!("h{number}.example")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // Some end at once while others of the same host last, so that hosts are refilled when they are nearly full.
    let world = World::new(&names, |_, number| (number % 3 == 0).then_some(OK));
    for number in 0..400 {
        world.book.add(task(number), &format!("https://h{}.example:{}/", number / 10, 1 + number), START);
    }
    let _worker = world.worker();
    world.book.has_tried(400).await;
    let Bounds { all, each } = Bounds::default();
    assert_eq!(world.post.seen.lock().unwrap().most, (each, all));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_with_many_gets_them_all_without_waiting_for_the_clock() {
    let world = World::new(&["a.example"], |_, _| Some(OK));
    for number in 0..500 {
        world.book.add(task(number), "https://a.example/", START);
    }
    let _worker = world.worker();
    world.book.has_tried(500).await;
    assert_eq!((world.now(), world.book.open()), (START, 0));
    assert_eq!(world.post.seen.lock().unwrap().most.0, 4);
}

#[tokio::test(start_paused = true)]
async fn a_book_that_cannot_be_written_makes_no_delivery_happen_twice() {
    let world = World::new(&["a.example"], |_, _| Some(OK));
    world.book.add(task(1), "https://a.example/", START);
    world.book.unwritable.store(true, Ordering::SeqCst);
    let _worker = world.worker();
    assert!(timeout(Duration::from_secs(600), std::future::pending::<()>()).await.is_err());
    assert_eq!((world.posted().len(), world.book.tried().len()), (1, 0));
    world.book.unwritable.store(false, Ordering::SeqCst);
    let tried = world.book.has_tried(1).await;
    assert_eq!((tried[0].attempt, tried[0].outcome.as_str()), (1, "HTTP 200"));
    assert_eq!((world.posted().len(), world.words()), (1, vec!["completed"]));
}

#[tokio::test(start_paused = true)]
async fn a_book_that_could_not_be_read_is_read_when_it_can_be() {
    let world = World::new(&["a.example"], |_, _| Some(OK));
    world.book.add(task(1), "https://a.example/", START);
    world.book.unreadable.store(true, Ordering::SeqCst);
    let _worker = world.worker();
    assert!(timeout(Duration::from_millis(600_500), std::future::pending::<()>()).await.is_err());
    world.book.unreadable.store(false, Ordering::SeqCst);
    world.book.has_tried(1).await;
    assert_eq!(world.posted(), [(601_000, task(1).to_string())]);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_under_way_at_a_stop_is_made_again() {
    let world = World::new(&["a.example"], |_, number| (number > 1).then_some(OK));
    world.book.add(task(1), "https://a.example/", START);
    let worker = world.worker();
    assert!(timeout(Duration::from_secs(1), std::future::pending::<()>()).await.is_err());
    worker.abort();
    assert!(worker.await.is_err_and(|error| error.is_cancelled()));
    let _worker = world.worker();
    let tried = world.book.has_tried(1).await;
    assert_eq!((tried[0].attempt, world.posted().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_no_longer_on_the_list_is_not_called() {
    let mut world = World::new(&["a.example"], |_, _| Some(OK));
    world.hosts = hosts(&["b.example"]);
    world.book.add(task(1), "https://a.example/", START);
    let _worker = world.worker();
    let tried = world.book.has_tried(1).await;
    assert_eq!(tried[0].outcome, Refused::HostNotAllowed.to_string());
    assert_eq!(tried[0].next_ms, Some(START + MINUTE), "the list may be mended");
    assert_eq!((world.posted(), world.words()), (vec![], vec!["unauthorized"]));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_panics_counts_and_the_others_go_on() {
    let world = World::new(&["a.example", "b.example"], |host, _| {
        assert_ne!(host, "a.example", "planted");
        Some(OK)
    });
    world.book.add(task(1), "https://a.example/", START);
    world.book.add(task(2), "https://b.example/", START);
    let _worker = world.worker();
    world.book.has_tried(6).await;
    assert_eq!((world.posted().len(), world.book.open()), (6, 0));
    let mut words = world.words();
    words.sort_unstable();
    assert_eq!(words, ["completed", "internal", "internal", "internal", "internal", "internal"]);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_is_signed_at_its_time_with_the_secrets_of_its_time() {
    let world = World::new(&["a.example"], |_, _| Some(failed(500)));
    world.book.add(task(1), "https://a.example/", START);
    let _worker = world.worker();
    world.book.has_tried(1).await;
    let new = format!("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n{SECRET}");
    std::fs::write(world.secret.path(), new).unwrap();
    world.book.has_tried(2).await;
    let seen = world.post.seen.lock().unwrap();
    let [(_, first), (_, second)] = seen.letters.as_slice() else { panic!("two are made") };
    let seconds = START / 1_000;
    assert_eq!((first.timestamp, second.timestamp), (seconds, seconds + 60));
    assert_eq!(first.signature.split(' ').count(), 1);
    assert_eq!(second.signature.split(' ').count(), 2);
    assert_eq!(first.body, second.body);
}
