//! What differs from world to world: bounds, rules, and who lives there.

use std::collections::BTreeMap;

use agent_reach_core::{BreakerSettings, Durable, Policy, Rule, Sampling, Settings};

use super::dice::Dice;
use super::model::RESUME_MS;
use super::store::STARTED_UNIX_MS;
use super::tasks::REDELIVER_MS;

/// Capabilities of the simulated world.
pub(crate) const CAPABILITIES: [&str; 4] = ["x.one", "x.two", "x.three", "x.secret"];

/// Names that callers ask for: capabilities, an alias of the policy, one of an agent, and another spelling.
pub(crate) const ASKED: [&str; 8] =
    ["x.one", "x.one", "x.two", "x.three", "x.secret", "also.one", "third", "X.One"];

/// What some callers declare; the last may call an alias, and not what it stands for.
pub(crate) const DECLARED: [&[&str]; 2] = [&["x.one", "x.two"], &["x.one", "third"]];

/// Longest budget of a simulated call, in milliseconds.
pub(crate) const BUDGET_MAX_MS: u64 = 8000;

/// Most HELLOs of one agent in ten seconds.
pub(crate) const REGISTRATIONS: usize = 5;

/// Processing time that `x.two` allows, in milliseconds.
pub(crate) const TWO_TIMEOUT_MS: u64 = 1500;

/// Most calls of one agent.
pub(crate) const IN_FLIGHT: usize = 20;

pub(crate) fn settings(seed: u64, dice: &mut Dice) -> Settings {
    Settings {
        seed,
        handshake_timeout_ms: 1000,
        keepalive_ms: 1000,
        suspect_ms: 3000,
        gone_ms: dice.pick(&[5000, 12_000]),
        resume_ms: RESUME_MS,
        accept_timeout_ms: 500,
        timeout_ms: 2000,
        budget_ms: 5000,
        registrations_per_10s: REGISTRATIONS,
        max_in_flight: IN_FLIGHT,
        max_message: dice.pick(&[1900, 1 << 20]),
        outbound_bytes: dice.pick(&[4096, 16_384, 1 << 20]),
        open_bytes: dice.pick(&[20_000, 1 << 20]),
        open_bytes_each: dice.pick(&[9000, 1 << 20]),
        dedupe_bytes: dice.pick(&[4000, 1 << 20, 1 << 20]),
        watch_bytes: dice.pick(&[2000, 1 << 20]),
        names: dice.pick(&[2, 1000, 1000]),
        traces: 50,
        retry_base_ms: dice.pick(&[40, 200, 500]),
        retry_jitter_ms: dice.pick(&[0, 100]),
        queue_len: dice.pick(&[2, 10_000, 10_000]),
        store: dice.percent(60),
        started_unix_ms: STARTED_UNIX_MS,
        durable: dice.pick(&[Durable::Tasks, Durable::Keyed, Durable::All, Durable::All]),
        task_bytes: dice.pick(&[16_000, 1 << 20, 1 << 20]),
        redeliver_ms: REDELIVER_MS,
        return_ms: dice.pick(&[1000, 4000]),
        breaker: match dice.percent(60) {
            true => BreakerSettings { window_ms: 2000, min_success: 0.6, min_calls: 3, open_ms: 500 },
            false => BreakerSettings::default(),
        },
        // Of every other seed, so that both ways are run.
        spans: seed.is_multiple_of(2).then_some(Sampling { ratio: 0.5, seed }),
        ..Settings::default()
    }
}

/// The sets of rules that come into force one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Agent 1 may not offer `x.secret`, agent 2 may not call `x.two`.
    First,
    /// Agent 3 is nobody, agent 0 may call `x.one` only, agent 1 may not offer `x.three` either.
    Strict,
    /// Everybody may do everything, and an alias means something else.
    Open,
}

impl Rules {
    pub(crate) const ALL: [Self; 3] = [Self::First, Self::Strict, Self::Open];

    pub(crate) fn may_be(self, agent: &str) -> bool {
        self != Self::Strict || agent != "agent-3"
    }

    pub(crate) fn may_call(self, agent: &str, capability: &str) -> bool {
        match (self, agent) {
            (Self::First, "agent-2") => capability != "x.two",
            (Self::Strict, "agent-0") => capability == "x.one",
            (_, _) => self.may_be(agent),
        }
    }

    pub(crate) fn may_provide(self, agent: &str, capability: &str) -> bool {
        match (self, agent) {
            (Self::First, "agent-1") => capability != "x.secret",
            (Self::Strict, "agent-1") => !matches!(capability, "x.secret" | "x.three"),
            (_, _) => self.may_be(agent),
        }
    }

    /// The provider's own name of what is asked for.
    pub(crate) fn resolve(self, asked: &str) -> &str {
        match asked {
            "also.one" if self == Self::Open => "x.two",
            "also.one" | "X.One" => "x.one",
            "third" => "x.three",
            own => own,
        }
    }

    pub(crate) fn policy(self) -> Policy {
        let rule = |agent: Option<&str>, provide: &[&str], call: &[&str]| Rule {
            identity: agent.map(|name| format!("spiffe://d/agent/{name}")),
            agent_ids: None,
            provide: provide.iter().map(|p| p.parse().unwrap()).collect(),
            call: call.iter().map(|p| p.parse().unwrap()).collect(),
        };
        let everybody = rule(None, &["*"], &["*"]);
        let operator =
            rule(Some("agent-2"), &["*"], &["x.one", "x.three", "x.secret", "also.one", "third", "hub.*"]);
        let rules = match self {
            Self::First => {
                vec![
                    rule(Some("agent-1"), &["x.one", "x.two", "x.three", "third"], &["*"]),
                    operator,
                    everybody,
                ]
            }
            Self::Strict => vec![
                Rule { agent_ids: Some(Vec::new()), ..rule(Some("agent-3"), &["*"], &["*"]) },
                rule(Some("agent-0"), &["*"], &["x.one", "also.one", "hub.*"]),
                rule(Some("agent-1"), &["x.one", "x.two"], &["*"]),
                everybody,
            ],
            Self::Open => vec![everybody],
        };
        let alias = self.resolve("also.one").to_owned();
        let aliases = BTreeMap::from([("also.one".to_owned(), alias)]);
        Policy { version: 1, rules, aliases, ..Policy::default() }
    }
}
