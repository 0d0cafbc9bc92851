//! Takes ended calls from the line, and sends their spans in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_reach_protocol::ErrorCode;
use bytes::Bytes;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};

use super::otlp;
use super::post::{Answer, Post};
use super::{Flush, QUEUE_CALLS, SpanQueue, Waiting};
use crate::telemetry::metrics::SpanSeries;

/// How long the first call of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// With so many spans a batch leaves at once. One call has fewer than a thousand.
const BATCH_SPANS: usize = 2048;
/// How often a batch is sent at most.
const TRIES: u32 = 5;
/// The pause before the second try; doubled before each further one.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, also where a collector asks for more.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Exports spans through a [`Post`].
pub(super) struct Exporter<P> {
    post: P,
    line: mpsc::Receiver<Waiting>,
    bytes: Arc<AtomicUsize>,
    stop: watch::Receiver<bool>,
    series: Arc<SpanSeries>,
    resource: Resource,
    /// The collector did not take what it was sent last.
    ill: bool,
}

impl<P: Post> Exporter<P> {
    pub(super) fn new(post: P, instance: &str, series: &Arc<SpanSeries>) -> (SpanQueue, Self, Flush) {
        let (sender, line) = mpsc::channel(QUEUE_CALLS);
        let (stopper, stop) = watch::channel(false);
        let bytes = Arc::new(AtomicUsize::new(0));
        let queue = SpanQueue { line: sender, bytes: Arc::clone(&bytes), series: Arc::clone(series) };
        let flush = Flush { stop: stopper, bytes: Arc::clone(&bytes) };
        let resource = otlp::resource(instance);
        let exporter = Self { post, line, bytes, stop, series: Arc::clone(series), resource, ill: false };
        (queue, exporter, flush)
    }

    /// Works until it is flushed.
    pub(super) async fn run(mut self) {
        while let Some(spans) = self.gather().await {
            self.send(spans).await;
        }
    }

    fn stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// The next batch, which is never empty; `None`: that was all.
    async fn gather(&mut self) -> Option<Vec<Span>> {
        let first = tokio::select! {
            biased;
            first = self.line.recv() => first,
            // Also when nobody is left who could stop it.
            _ = self.stop.wait_for(|stop| *stop) => self.line.try_recv().ok(),
        };
        let mut spans = Vec::new();
        self.take(first?, &mut spans);
        let until = Instant::now() + GATHER;
        while spans.len() < BATCH_SPANS {
            let next = tokio::select! {
                biased;
                next = timeout_at(until, self.line.recv()) => next.ok().flatten(),
                _ = self.stop.wait_for(|stop| *stop) => self.line.try_recv().ok(),
            };
            let Some(next) = next else { break };
            self.take(next, &mut spans);
        }
        Some(spans)
    }

    fn take(&self, waiting: Waiting, spans: &mut Vec<Span>) {
        self.bytes.fetch_sub(waiting.bytes, Ordering::Relaxed);
        spans.extend(otlp::spans(&waiting.trace, waiting.ended));
    }

    /// Sends a batch until it is taken or given up.
    async fn send(&mut self, spans: Vec<Span>) {
        let count = spans.len();
        let body = Bytes::from(otlp::request(self.resource.clone(), spans).encode_to_vec());
        let mut pause = PAUSE;
        for tried in 1..=TRIES {
            let answer = self.post.post(body.clone()).await;
            self.tell(&answer);
            if tried == TRIES || !answer.may_pass() || self.stopping() {
                return self.count(&answer, count);
            }
            let wait = match &answer {
                Answer::Status { retry_after: Some(asked), .. } => (*asked).min(PAUSE_MAX),
                Answer::Status { retry_after: None, .. } | Answer::Taken { .. } | Answer::Nothing(_) => pause,
            };
            pause = (pause * 2).min(PAUSE_MAX);
            // A hub that stops does not wait: it tries once more.
            tokio::select! {
                () = sleep(wait) => {}
                _ = self.stop.wait_for(|stop| *stop) => {}
            }
        }
    }

    fn count(&self, answer: &Answer, count: usize) {
        let refused = match answer {
            Answer::Taken { refused } => (*refused).min(count),
            Answer::Status { .. } | Answer::Nothing(_) => 0,
        };
        self.series.exported(answer.word(), count - refused);
        self.series.exported(ErrorCode::InvalidRequest.as_str(), refused);
    }

    /// One line in the log when it begins to fail, and one when that is over.
    fn tell(&mut self, answer: &Answer) {
        let ill = !matches!(answer, Answer::Taken { refused: 0 });
        match (self.ill, ill) {
            (false, true) => warn!(error = answer.reason(), "traces cannot be exported"),
            (true, false) => info!("traces are exported again"),
            (true, true) | (false, false) => {}
        }
        self.ill = ill;
    }
}
