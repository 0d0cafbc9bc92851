//! The most that the values of a body can cost under one schema.

use super::decode::Level;
use super::outline::Part;

/// Deepest body that is checked: arrays and maps inside each other.
pub(super) const BODY_DEPTH_MAX: usize = 64;
/// Bytes of text that are passed over in one step.
const TEXT_BYTES_OF_A_STEP: u64 = 256;
/// Steps for each value inside an array whose items have to differ: short arrays are compared pairwise.
const DIFFERENT_STEPS: u64 = 8;

/// Work on one value. A step is in the order of ten nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Steps.
    pub(super) steps: u64,
    /// Steps for each byte of text, where patterns are held against it.
    pub(super) patterns: u64,
    /// Steps for each byte of a key.
    pub(super) keys: u64,
    /// How often all that is inside is compared.
    pub(super) whole: u64,
    /// How often the check of this value is run again for each value in it (`unevaluatedProperties`).
    pub(super) again: u64,
}

impl Load {
    /// Both.
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            steps: self.steps.saturating_add(other.steps),
            patterns: self.patterns.saturating_add(other.patterns),
            keys: self.keys.saturating_add(other.keys),
            whole: self.whole.saturating_add(other.whole),
            again: self.again.saturating_add(other.again),
        }
    }

    /// Steps on all values of one depth.
    fn on(self, level: &Level) -> u64 {
        let text = u64::from(level.text.saturating_add(level.keys));
        [
            u64::from(level.nodes).saturating_mul(self.steps),
            text.saturating_mul(self.steps) / TEXT_BYTES_OF_A_STEP,
            u64::from(level.short_text).saturating_mul(self.patterns),
            u64::from(level.keys).saturating_mul(self.keys),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// The larger of each.
    fn or(self, other: Self) -> Self {
        Self {
            steps: self.steps.max(other.steps),
            patterns: self.patterns.max(other.patterns),
            keys: self.keys.max(other.keys),
            whole: self.whole.max(other.whole),
            again: self.again.max(other.again),
        }
    }
}

/// The most that one value of some depth can cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Most {
    load: Load,
    /// Schemas inside each other on the way to it, and choices among them.
    chain: u32,
    turns: u32,
}

impl Most {
    fn or(self, other: Self) -> Self {
        Self {
            load: self.load.or(other.load),
            chain: self.chain.max(other.chain),
            turns: self.turns.max(other.turns),
        }
    }
}

/// The most that one value can cause, by its depth in the body; what lies deeper causes nothing.
#[derive(Debug)]
pub(super) struct Price {
    by_depth: Box<[Most]>,
}

/// What the check of one body costs at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) steps: u64,
    /// Schemas inside each other: how deep the check recurses.
    pub(super) chain: u32,
    /// Choices inside each other: how often a part of the check may be run again for its reasons.
    pub(super) turns: u32,
}

impl Price {
    /// Of the first part.
    pub(super) fn new(parts: &[Part<'_>]) -> Self {
        let start = |part: &Part<'_>| Most { load: part.own, chain: part.chain, turns: part.turns };
        let mut now: Vec<Most> = parts.iter().map(start).collect();
        let mut by_depth = Vec::new();
        while let Some(first) = now.first()
            && by_depth.len() <= BODY_DEPTH_MAX
            && (by_depth.is_empty() || first.load != Load::default())
        {
            by_depth.push(*first);
            now = parts.iter().map(|part| inside(part, &now)).collect();
        }
        Self { by_depth: by_depth.into() }
    }

    pub(super) fn of(&self, levels: &[Level]) -> Cost {
        let mut cost = Cost { steps: 0, chain: 0, turns: 0 };
        let mut values_inside = 0;
        // From the inside out, as a value may be checked again together with all that is in it.
        for (depth, (most, level)) in self.by_depth.iter().zip(levels).enumerate().rev() {
            cost.steps = cost.steps.saturating_add(most.load.on(level));
            if most.load.whole > 0 {
                cost.steps = cost.steps.saturating_add(inner(levels, depth).saturating_mul(most.load.whole));
            }
            let again = most.load.again.saturating_mul(values_inside);
            cost.steps = cost.steps.saturating_mul(again.saturating_add(1));
            (cost.chain, cost.turns) = (cost.chain.max(most.chain), cost.turns.max(most.turns));
            values_inside = u64::from(level.nodes);
        }
        cost
    }
}

/// What a value one level further in than `then` was made for can cause under a part.
fn inside(part: &Part<'_>, then: &[Most]) -> Most {
    let all = |parts: &[usize], more: &[usize]| {
        (parts.iter().chain(more))
            .filter_map(|to| then.get(*to))
            .fold(Most::default(), |sum, most| Most { load: sum.load.and(most.load), ..sum.or(*most) })
    };
    // Each value has one key or one place, so that of the ways by name only the worst counts.
    let most = (part.names.values().map(|leads| all(leads, &part.members)))
        .chain(part.places.values().map(|leads| all(leads, &part.items)))
        .chain([all(&part.members, &[]), all(&part.items, &[])])
        .fold(Most::default(), Most::or);
    Most {
        chain: part.chain.saturating_add(most.chain),
        turns: part.turns.saturating_add(most.turns),
        ..most
    }
}

/// Steps to compare all that lies at a depth and deeper.
fn inner(levels: &[Level], depth: usize) -> u64 {
    let of = |level: &Level| {
        u64::from(level.nodes) * DIFFERENT_STEPS + u64::from(level.text.saturating_add(level.keys)) / 2
    };
    levels.iter().skip(depth).map(of).sum()
}
