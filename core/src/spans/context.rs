//! Which trace a call belongs to: the caller's, or one that begins here. Texts are those of W3C Trace Context.

use std::ops::Deref;

use crate::rng::Rng;
use crate::text::digits;
use crate::trace_id::TraceId;

/// Length of a `traceparent` of version 00.
const TRACEPARENT_LEN: usize = 55;
/// The flag that says that a trace is recorded.
const SAMPLED: u8 = 0x01;
/// Flags that have a meaning: sampled, and random trace id. A sender leaves the others at 0.
const KNOWN_FLAGS: u8 = 0x03;
/// Longest `tracestate` that is exported with a span, in bytes. It goes to providers whole, whatever its length.
const TRACESTATE_MAX: usize = 512;

/// Which calls are traced that the caller has not decided about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Share of calls without a usable `traceparent` for which a trace begins here. 0 to 1.
    pub ratio: f64,
    /// Seed of ids and of choices, apart from the hub's own: ids are told to agents and collectors, which must not
    /// learn from them what the hub will choose. Take it from the system's randomness.
    pub seed: u64,
}

/// Names a span within its trace. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(u64);

impl SpanId {
    /// As it is exported.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// The `n`th span below this one. It follows from both, so that none has to be kept while the call runs.
    pub(super) fn below(self, n: usize) -> Self {
        Self(Rng::new(self.0).skip(n as u64).next().max(1))
    }
}

/// The span of a call in this hub, within its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanContext {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    /// The caller's span; `None`: the trace begins here.
    pub(super) parent: Option<SpanId>,
    pub(super) flags: u8,
    pub(super) tracestate: Option<Box<str>>,
}

impl SpanContext {
    /// What a provider is told: the span of its delivery, or that of the whole call where that step was not kept.
    pub(crate) fn traceparent(&self, step: Option<usize>) -> Traceparent {
        let span = step.map_or(self.span_id, |step| self.delivery(step));
        Traceparent::new(self.trace_id, span, self.flags)
    }

    /// Whether the caller's `tracestate` is of this trace.
    pub(crate) const fn keeps_tracestate(&self) -> bool {
        self.parent.is_some()
    }

    /// The span of the delivery that was this step of the call.
    pub(super) fn delivery(&self, step: usize) -> SpanId {
        self.span_id.below(step * super::SPANS_PER_STEP)
    }
}

/// Decides which calls are traced.
#[derive(Debug)]
pub(crate) struct Sampler {
    ratio: f64,
    rng: Rng,
}

impl Sampler {
    pub(crate) const fn new(sampling: Sampling) -> Self {
        Self { ratio: sampling.ratio, rng: Rng::new(sampling.seed) }
    }

    /// The caller decides, where it sent a `traceparent` that can be read; else chance does.
    pub(crate) fn sample(
        &mut self,
        traceparent: Option<&str>,
        tracestate: Option<&str>,
    ) -> Option<Box<SpanContext>> {
        let Some((trace_id, parent, flags)) = traceparent.and_then(parse) else {
            return self.begins().then(|| Box::new(self.root()));
        };
        let tracestate = tracestate.filter(|text| text.len() <= TRACESTATE_MAX).map(Into::into);
        (flags & SAMPLED != 0).then(|| {
            Box::new(SpanContext {
                trace_id,
                span_id: self.span_id(),
                parent: Some(parent),
                flags: flags & KNOWN_FLAGS,
                tracestate,
            })
        })
    }

    fn begins(&mut self) -> bool {
        const STEPS: f64 = (1_u64 << 53) as f64;
        ((self.rng.next() >> 11) as f64) < self.ratio * STEPS
    }

    fn root(&mut self) -> SpanContext {
        let trace_id = (u128::from(self.rng.next()) << 64) | u128::from(self.rng.next());
        SpanContext {
            trace_id: TraceId::new(trace_id),
            span_id: self.span_id(),
            parent: None,
            flags: SAMPLED,
            tracestate: None,
        }
    }

    const fn span_id(&mut self) -> SpanId {
        let id = self.rng.next();
        SpanId(if id == 0 { 1 } else { id })
    }
}

/// Reads a `traceparent`. One of a later version is read as far as version 00 goes, as the standard asks.
fn parse(text: &str) -> Option<(TraceId, SpanId, u8)> {
    let trace_id = TraceId::of(text)?;
    let span_id = u64::from_str_radix(text.get(36..52)?, 16).ok()?;
    let flags = u8::from_str_radix(text.get(53..TRACEPARENT_LEN)?, 16).ok()?;
    Some((trace_id, SpanId(span_id), flags))
}

/// A `traceparent` of version 00, as text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traceparent([u8; TRACEPARENT_LEN]);

impl Traceparent {
    fn new(trace: TraceId, SpanId(span): SpanId, flags: u8) -> Self {
        let mut text = [b'-'; TRACEPARENT_LEN];
        let trace = u128::from_be_bytes(trace.to_bytes());
        let [high, low] = [trace >> 64, trace & u128::from(u64::MAX)];
        let [high, low] = [high, low].map(|half| u64::try_from(half).unwrap_or(0));
        let parts = [(0..2, 0), (3..19, high), (19..35, low), (36..52, span), (53..55, u64::from(flags))];
        for (place, number) in parts {
            if let Some(room) = text.get_mut(place) {
                digits(number, room);
            }
        }
        Self(text)
    }
}

impl Deref for Traceparent {
    type Target = str;

    fn deref(&self) -> &str {
        // ASCII by its making.
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_by_the_rules_of_the_standard_and_written_as_it_was() {
        let (trace, span, flags) = parse(GOOD).unwrap();
        assert_eq!(&*Traceparent::new(trace, span, flags), GOOD);
        let later = format!("01{}-what-comes-later", &GOOD[2..]);
        assert_eq!(parse(&later), Some((trace, span, flags)));
        // What else is none is the trace id's to say.
        let bad = [
            String::new(),
            GOOD[..54].to_owned(),
            GOOD.replace("-00f0", "-+0f0"),
            GOOD.replace("-01", "-+1"),
        ];
        for text in bad {
            assert_eq!(parse(&text), None, "{text:?}");
        }
    }

    #[test]
    fn a_ratio_of_none_takes_none_and_of_all_takes_all() {
        for (ratio, least, most) in [(0.0, 0, 0), (1.0, 1000, 1000), (0.25, 180, 320)] {
            let mut sampler = Sampler::new(Sampling { ratio, seed: 7 });
            let taken = (0..1000).filter(|_| sampler.sample(None, None).is_some()).count();
            assert!((least..=most).contains(&taken), "{ratio}: {taken}");
        }
    }

    #[test]
    fn the_caller_decides_where_it_can_be_understood() {
        let unsampled = GOOD.replace("-01", "-00");
        let mut all = Sampler::new(Sampling { ratio: 1.0, seed: 7 });
        let mut none = Sampler::new(Sampling { ratio: 0.0, seed: 7 });
        assert_eq!(all.sample(Some(&unsampled), None), None);
        let joined = none.sample(Some(GOOD), Some("a=1")).unwrap();
        assert_eq!(joined.tracestate.as_deref(), Some("a=1"));
        assert!(joined.keeps_tracestate());
        let begun = all.sample(Some("nonsense"), Some("a=1")).unwrap();
        assert_eq!((begun.tracestate.as_deref(), begun.keeps_tracestate()), (None, false));
        let flags = |flags: &str| GOOD.replace("-01", &format!("-{flags}"));
        assert_eq!(none.sample(Some(&flags("ff")), None).unwrap().flags, 0x03);
        let long = format!("a={}", "1".repeat(TRACESTATE_MAX));
        assert_eq!(none.sample(Some(GOOD), Some(&long)).unwrap().tracestate, None);
    }
}
