//! Registered series: the handles that a hot path keeps, so that it never looks a name up by its labels.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use agent_reach_core::Outcome;
use agent_reach_protocol::CallMode;
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::names;

static METADATA: Metadata<'static> = Metadata::new("agent_reach", Level::INFO, None);

/// Makes series in one recorder.
#[derive(Debug)]
pub(super) struct Registrar(pub(super) PrometheusRecorder);

impl Registrar {
    pub(super) fn counter(&self, name: &'static str, labels: &[(&'static str, SharedString)]) -> Counter {
        self.0.register_counter(&key(name, labels), &METADATA)
    }

    pub(super) fn gauge(&self, name: &'static str, labels: &[(&'static str, SharedString)]) -> Gauge {
        self.0.register_gauge(&key(name, labels), &METADATA)
    }

    pub(super) fn histogram(&self, name: &'static str, labels: &[(&'static str, SharedString)]) -> Histogram {
        self.0.register_histogram(&key(name, labels), &METADATA)
    }

    /// A counter for each word that the label may take.
    pub(super) fn counters(
        &self,
        name: &'static str,
        label: &'static str,
        words: &[&'static str],
    ) -> CountersByWord {
        let counter = |word: &&'static str| (*word, self.counter(name, &[(label, (*word).into())]));
        CountersByWord(words.iter().map(counter).collect())
    }
}

fn key(name: &'static str, labels: &[(&'static str, SharedString)]) -> Key {
    let labels: Vec<Label> = labels.iter().map(|(name, value)| Label::new(*name, value.clone())).collect();
    Key::from_parts(name, labels)
}

/// One counter for each word of a closed set. They are few, so they are looked for one by one.
#[derive(Debug)]
pub(super) struct CountersByWord(Vec<(&'static str, Counter)>);

impl CountersByWord {
    /// Counts a word; one that is not of the set counts as the last of it.
    pub(super) fn increment(&self, word: &'static str) {
        self.add(word, 1);
    }

    /// Counts a word so many times.
    pub(super) fn add(&self, word: &'static str, count: u64) {
        let Self(counters) = self;
        let known = counters.iter().find(|(known, _)| *known == word);
        if let Some((_, counter)) = known.or(counters.last()) {
            counter.increment(count);
        }
    }
}

/// How many calls wait for each capability.
#[derive(Debug)]
pub(super) struct QueuedSeries {
    /// Each that ever had one; a line that was once there stays, at 0.
    by_capability: BTreeMap<Arc<str>, Gauge>,
    none: Gauge,
    other: Gauge,
}

impl QueuedSeries {
    pub(super) fn new(registrar: &Registrar) -> Self {
        let gauge = |name: &'static str| registrar.gauge(names::QUEUED, &[("capability", name.into())]);
        Self { by_capability: BTreeMap::new(), none: gauge(names::NONE), other: gauge(names::OTHER) }
    }

    /// Shows these, and 0 for all others.
    pub(super) fn set(&mut self, registrar: &Registrar, queued: &[(Option<Arc<str>>, usize)]) {
        let (mut none, mut other) = (0, 0);
        for gauge in self.by_capability.values() {
            gauge.set(0.0);
        }
        for (name, len) in queued {
            let Some(name) = name else {
                none += len;
                continue;
            };
            if self.by_capability.len() >= names::CAPABILITIES_MAX && !self.by_capability.contains_key(name) {
                other += len;
                continue;
            }
            let label = SharedString::from(Arc::clone(name));
            let new = || registrar.gauge(names::QUEUED, &[("capability", label)]);
            self.by_capability.entry(Arc::clone(name)).or_insert_with(new).set(*len as f64);
        }
        self.none.set(none as f64);
        self.other.set(other as f64);
    }
}

/// How one call ended, and how long its phases took, in microseconds.
#[derive(Clone, Copy)]
pub(super) struct Ended {
    pub(super) mode: CallMode,
    pub(super) outcome: Outcome,
    pub(super) accept_us: Option<u64>,
    pub(super) process_us: Option<u64>,
    pub(super) total_us: u64,
}

/// The series of calls, made when a capability is first seen.
#[derive(Debug)]
pub(super) struct CallSeries {
    by_capability: HashMap<Arc<str>, CapabilitySeries>,
    none: CapabilitySeries,
    other: Option<CapabilitySeries>,
}

impl CallSeries {
    pub(super) fn new(registrar: &Registrar) -> Self {
        let none = CapabilitySeries::new(registrar, names::NONE.into());
        Self { by_capability: HashMap::new(), none, other: None }
    }

    pub(super) fn record(&mut self, registrar: &Registrar, capability: Option<&Arc<str>>, ended: Ended) {
        self.of(registrar, capability).record(registrar, ended);
    }

    fn of(&mut self, registrar: &Registrar, capability: Option<&Arc<str>>) -> &mut CapabilitySeries {
        let Some(name) = capability else { return &mut self.none };
        let full = self.by_capability.len() >= names::CAPABILITIES_MAX;
        if full && !self.by_capability.contains_key(name) {
            return self.other.get_or_insert_with(|| CapabilitySeries::new(registrar, names::OTHER.into()));
        }
        let new = || CapabilitySeries::new(registrar, SharedString::from(Arc::clone(name)));
        self.by_capability.entry(Arc::clone(name)).or_insert_with(new)
    }
}

/// The series of one capability. Ends are added as they are first seen: most of the pairs never are.
#[derive(Debug)]
struct CapabilitySeries {
    label: SharedString,
    ends: Vec<(CallMode, Outcome, Counter)>,
    accept: Histogram,
    process: Histogram,
    total: Histogram,
}

impl CapabilitySeries {
    fn new(registrar: &Registrar, label: SharedString) -> Self {
        let phase = |phase: &'static str| {
            registrar
                .histogram(names::CALL_SECONDS, &[("capability", label.clone()), ("phase", phase.into())])
        };
        let (accept, process, total) = (phase("accept"), phase("process"), phase("total"));
        let mut series = Self { label, ends: Vec::new(), accept, process, total };
        // From the start, so that a rate has its zero before the first call.
        series.ended(registrar, CallMode::Call, Outcome::Completed).absolute(0);
        series
    }

    fn record(&mut self, registrar: &Registrar, ended: Ended) {
        self.ended(registrar, ended.mode, ended.outcome).increment(1);
        if let Some(accept_us) = ended.accept_us {
            self.accept.record(seconds(accept_us));
        }
        if let Some(process_us) = ended.process_us {
            self.process.record(seconds(process_us));
        }
        self.total.record(seconds(ended.total_us));
    }

    fn ended(&mut self, registrar: &Registrar, mode: CallMode, outcome: Outcome) -> Counter {
        let known = self.ends.iter().find(|(m, o, _)| (*m, *o) == (mode, outcome));
        if let Some((.., counter)) = known {
            return counter.clone();
        }
        let labels = [
            ("capability", self.label.clone()),
            ("mode", mode.as_str().into()),
            ("outcome", outcome.as_str().into()),
        ];
        let counter = registrar.counter(names::CALLS_TOTAL, &labels);
        self.ends.push((mode, outcome, counter.clone()));
        counter
    }
}

fn seconds(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64()
}
