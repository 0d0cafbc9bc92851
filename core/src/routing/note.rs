//! How a choice came about, and why nobody was chosen.

use agent_reach_protocol::Policy;

use super::Wanted;
use crate::text::push_number;

/// Why an agent that offers the capability does not get the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exclusion {
    Away,
    Suspect,
    Draining,
    Unhealthy,
    Labels,
    Version,
    /// It does not offer the capability (any more), or was left out of the choice.
    NotOffered,
    /// The caller may not call the name under which this agent offers it.
    Forbidden,
    /// The body does not fit its `input_schema`.
    Input,
    /// Its `output_schema` lacks what is expected.
    Output,
    /// It was tried, and failed.
    Tried,
    /// Too few of its calls succeed: its breaker is open.
    Tripped,
    /// Its `qps_limit` is reached.
    RateLimited,
    Busy,
}

impl Exclusion {
    pub(crate) const ALL: [Self; 14] = [
        Self::Away,
        Self::Suspect,
        Self::Draining,
        Self::Unhealthy,
        Self::Labels,
        Self::Version,
        Self::NotOffered,
        Self::Forbidden,
        Self::Input,
        Self::Output,
        Self::Tried,
        Self::Tripped,
        Self::RateLimited,
        Self::Busy,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Suspect => "suspect",
            Self::Draining => "draining",
            Self::Unhealthy => "unhealthy",
            Self::Labels => "labels",
            Self::Version => "version",
            Self::NotOffered => "not_offered",
            Self::Forbidden => "forbidden",
            Self::Input => "input_schema",
            Self::Output => "output_schema",
            Self::Tried => "tried",
            Self::Tripped => "tripped",
            Self::RateLimited => "rate_limited",
            Self::Busy => "busy",
        }
    }
}

/// How the choice came about; small and copied into the call's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) policy: Policy,
    /// Agents that offer the capability.
    pub(crate) offering: u32,
    /// Of those, able to take the call.
    pub(crate) able: u32,
    /// The others, by reason, in the order of [`Exclusion::ALL`].
    pub(crate) excluded: [u32; 14],
    /// Whether preferred labels decided among the able.
    pub(crate) preferred: bool,
    /// Whether an affinity key decided.
    pub(crate) affine: bool,
    /// How many were looked at, where there are too many to look at all.
    pub(crate) probed: Option<u32>,
}

impl Note {
    /// The one-line form: `route` in RESULT.
    pub(crate) fn line(&self, directed: bool, load: Option<(u32, u32)>) -> String {
        let mut line = String::with_capacity(96);
        line.push_str(if directed { "directed" } else { self.policy.as_str() });
        line.push_str(": ");
        push_number(&mut line, self.able);
        if let Some(probed) = self.probed {
            line.push_str(" of ");
            push_number(&mut line, probed);
            line.push_str(" probed");
        }
        line.push_str(" of ");
        push_number(&mut line, self.offering);
        line.push_str(" able");
        if let Some((taken, slots)) = load {
            line.push_str(", ");
            push_number(&mut line, taken);
            line.push('/');
            push_number(&mut line, slots);
            line.push_str(" in flight");
        }
        if self.preferred {
            line.push_str(", by labels");
        }
        if self.affine {
            line.push_str(", by affinity");
        }
        line
    }

    /// Before anybody was looked at.
    pub(crate) const fn new(policy: Policy) -> Self {
        Self {
            policy,
            offering: 0,
            able: 0,
            excluded: [0; 14],
            preferred: false,
            affine: false,
            probed: None,
        }
    }

    pub(super) const fn of(wanted: &Wanted<'_>) -> Self {
        Self { affine: wanted.affinity_key.is_some(), ..Self::new(wanted.policy) }
    }

    pub(super) fn exclude(&mut self, why: Exclusion) {
        if let Some(count) = self.excluded.get_mut(why as usize) {
            *count += 1;
        }
    }

    /// How many were left out for a reason.
    pub(crate) fn excluded_by(&self, why: Exclusion) -> u32 {
        self.excluded.get(why as usize).copied().unwrap_or_default()
    }

    /// Whether an agent may yet take the call without anything new being offered.
    pub(crate) fn has_hope(&self) -> bool {
        use Exclusion::{Away, Busy, RateLimited, Suspect, Tripped};
        self.able > 0
            || [Busy, RateLimited, Tripped, Suspect, Away].iter().any(|why| self.excluded_by(*why) > 0)
    }
}

/// Why nobody gets a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoute {
    /// Nobody ever offered the capability.
    NeverOffered,
    /// Who could take it has its slots full.
    Busy,
    /// Who could take it has reached its `qps_limit`.
    RateLimited,
    /// The breaker of who could take it is open.
    Tripped,
    /// Who could take it offers it under a name that the caller may not call.
    Forbidden,
    /// The call fits nobody who offers the capability.
    Mismatch,
    /// Nobody could.
    NoneAble,
}
