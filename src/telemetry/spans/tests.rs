//! The export, on a clock that moves only when everybody waits.

use std::collections::VecDeque;
use std::sync::Mutex;

use agent_reach_core::{
    ConnectionId, Counters, Effects, Fact, Gauges, Hub, Input, Now, Peer, Policy, Settings,
};
use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use rmpv::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, timeout};

use super::post::{Answer, NoAnswer, Post};
use super::*;

const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// Spans of a call that is refused: receive, route, result.
const SPANS: usize = 3;
const TAKEN: Answer = Answer::Taken { refused: 0 };

/// An envelope as an agent writes it.
fn message<const N: usize>(kind: u64, header: [(&str, Value); N]) -> Bytes {
    let header = header.into_iter().map(|(key, value)| (key.into(), value)).collect();
    let mut bytes = Vec::new();
    let envelope = Value::Array(vec![kind.into(), Value::Map(header), Value::Nil]);
    rmpv::encode::write_value(&mut bytes, &envelope).unwrap();
    bytes.into()
}

/// A call that was refused, as the core tells of it.
fn call() -> Arc<CallTrace> {
    let spans = Some(Sampling { ratio: 0.0, seed: 3 });
    let mut hub = Hub::new(Settings { spans, ..Settings::default() }, Policy::open());
    let connection = ConnectionId { index: 0, generation: 1 };
    let peer = Peer { identity: "c".into(), name: "c".into() };
    let hello = [
        ("v", 1.into()),
        ("agent_id", "c".into()),
        ("instance", "life-1".into()),
        ("capabilities", Value::Array(Vec::new())),
    ];
    let call = [("id", 1.into()), ("capability", "nobody.has.this".into()), ("traceparent", SAMPLED.into())];
    let said = [message(1, hello), message(10, call)];
    let said = said.map(|message| Input::Message { connection, message, fault: None });
    let mut effects = Effects::default();
    for input in [Input::Connected { connection, peer }].into_iter().chain(said) {
        hub.handle(Now::from_millis(5), input, &mut effects);
    }
    let traced = |fact| if let Fact::CallTraced(trace) = fact { Some(trace) } else { None };
    effects.facts.into_iter().find_map(traced).unwrap()
}

/// A collector that gives these answers, the last one for ever; `None`: it never answers.
struct Fake {
    answers: Mutex<VecDeque<Option<Answer>>>,
    /// Each request, with the seconds since the test began.
    requests: Arc<Mutex<Vec<(u64, Bytes)>>>,
    begun: Instant,
}

impl Post for Fake {
    async fn post(&self, body: Bytes) -> Answer {
        self.requests.lock().unwrap().push((self.begun.elapsed().as_secs(), body));
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0].clone() }
        };
        match answer {
            Some(answer) => answer,
            None => {
                let never = timeout(Duration::from_secs(10), std::future::pending::<()>()).await;
                never.map_or(Answer::Nothing(NoAnswer::Timeout), |()| TAKEN)
            }
        }
    }
}

struct World {
    metrics: Metrics,
    queue: SpanQueue,
    flush: Flush,
    requests: Arc<Mutex<Vec<(u64, Bytes)>>>,
    task: JoinHandle<()>,
}

impl World {
    fn new(answers: impl IntoIterator<Item = Option<Answer>>) -> Self {
        let (metrics, requests) = (Metrics::new(), Arc::default());
        let answers = Mutex::new(answers.into_iter().collect());
        let fake = Fake { answers, requests: Arc::clone(&requests), begun: Instant::now() };
        let (queue, exporter, flush) = Exporter::new(fake, "i", &metrics.spans());
        Self { metrics, queue, flush, requests, task: tokio::spawn(exporter.run()) }
    }

    /// Leaves so many calls.
    async fn leave(&self, count: usize) {
        let call = call();
        (0..count).for_each(|_| self.queue.leave(&call));
        settle().await;
    }

    /// When each request was made, in seconds, and how many spans it had.
    fn requests(&self) -> Vec<(u64, usize)> {
        let spans = |body: &Bytes| {
            let request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
            request.resource_spans[0].scope_spans[0].spans.len()
        };
        self.requests.lock().unwrap().iter().map(|(at, body)| (*at, spans(body))).collect()
    }

    fn counted(&self, series: &str) -> usize {
        let page = self.metrics.scrape(&Counters::default(), &Gauges::default(), &[], None);
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("agent_reach_spans_{series} ")));
        line.unwrap_or_else(|| panic!("no {series} in {page}")).parse().unwrap()
    }

    fn exported(&self, outcome: &str) -> usize {
        self.counted(&format!("exported_total{{outcome=\"{outcome}\"}}"))
    }
}

/// Lets everybody do what there is to do. A task that has much of it yields in between.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Lets time pass, second by second.
async fn pass(seconds: u64) {
    for _ in 0..seconds {
        advance(Duration::from_secs(1)).await;
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_within_a_second_leaves_in_one_request() {
    let w = World::new([Some(TAKEN)]);
    w.leave(4).await;
    pass(1).await;
    assert_eq!(w.requests(), [(1, 4 * SPANS)]);
    pass(60).await;
    assert_eq!(w.requests().len(), 1, "nothing is sent for nothing");
    w.leave(1).await;
    pass(1).await;
    assert_eq!(w.requests()[1..], [(62, SPANS)]);
    assert_eq!((w.exported("completed"), w.counted("dropped_total")), (5 * SPANS, 0));
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_leaves_at_once() {
    let w = World::new([Some(TAKEN)]);
    w.leave(1000).await;
    assert_eq!(w.requests(), [(0, 2049)]);
}

#[tokio::test(start_paused = true)]
async fn who_is_busy_is_tried_again_when_it_wants_to_be_and_not_later_than_in_half_a_minute() {
    let busy =
        |seconds| Some(Answer::Status { status: 503, retry_after: Some(Duration::from_secs(seconds)) });
    let w = World::new([busy(7), busy(4000), Some(TAKEN)]);
    w.leave(1).await;
    pass(100).await;
    assert_eq!(w.requests(), [(1, SPANS), (8, SPANS), (38, SPANS)]);
    let bodies = w.requests.lock().unwrap().clone();
    assert!(bodies.iter().all(|(_, body)| *body == bodies[0].1), "the same is said again");
    assert_eq!((w.exported("completed"), w.exported("overloaded")), (SPANS, 0));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_gone_is_tried_five_times_with_growing_pauses() {
    let gone = || Some(Answer::Nothing(NoAnswer::Connect(std::io::ErrorKind::ConnectionRefused)));
    let w = World::new([gone()]);
    w.leave(1).await;
    pass(100).await;
    let times: Vec<u64> = w.requests().iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [1, 2, 4, 8, 16]);
    assert_eq!(w.exported("no_instance"), SPANS);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_for_good_is_not_said_again() {
    for (status, word) in [(400, "invalid_request"), (401, "unauthorized"), (500, "handler_error")] {
        let w = World::new([Some(Answer::Status { status, retry_after: None })]);
        w.leave(1).await;
        pass(100).await;
        assert_eq!(w.requests(), [(1, SPANS)], "{status}");
        assert_eq!(w.exported(word), SPANS, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn spans_that_a_collector_does_not_take_of_a_batch_are_counted_apart() {
    let w = World::new([Some(Answer::Taken { refused: 2 })]);
    w.leave(1).await;
    pass(1).await;
    assert_eq!((w.exported("completed"), w.exported("invalid_request")), (SPANS - 2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_never_answers_costs_bounded_memory_and_everything_is_counted() {
    let w = World::new([None]);
    let calls = QUEUE_CALLS + 5000;
    w.leave(calls).await;
    assert!(w.queue.bytes.load(Ordering::Relaxed) <= QUEUE_BYTES);
    let dropped = w.counted("dropped_total");
    assert!(dropped >= 5000 * SPANS, "{dropped}");
    pass(5).await;
    assert_eq!(w.requests().len(), 1, "the next one waits");
    // All that was not dropped is still in the line, or in the one batch.
    let waiting = w.queue.bytes.load(Ordering::Relaxed) / call().bytes();
    assert_eq!(waiting * SPANS + w.requests()[0].1 + dropped, calls * SPANS);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_stops_sends_what_waits_at_once() {
    let w = World::new([Some(TAKEN)]);
    w.leave(1500).await;
    let begun = Instant::now();
    w.flush.within(Duration::from_secs(5)).await;
    assert_eq!(begun.elapsed(), Duration::ZERO, "without a pause");
    w.task.await.unwrap();
    let page = w.metrics.scrape(&Counters::default(), &Gauges::default(), &[], None);
    let all = format!("agent_reach_spans_exported_total{{outcome=\"completed\"}} {}\n", 1500 * SPANS);
    assert!(page.contains(&all), "{page}");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_stops_waits_for_no_collector_that_is_busy_and_not_long_for_one_that_is_silent() {
    let busy = Answer::Status { status: 429, retry_after: Some(Duration::from_secs(20)) };
    let w = World::new([Some(busy)]);
    w.leave(1).await;
    pass(2).await;
    let begun = Instant::now();
    w.flush.within(Duration::from_secs(5)).await;
    assert_eq!(
        (begun.elapsed(), w.requests.lock().unwrap().len()),
        (Duration::ZERO, 2),
        "once more, at once"
    );
    let w = World::new([None]);
    w.leave(1).await;
    let begun = Instant::now();
    w.flush.within(Duration::from_secs(5)).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
}
