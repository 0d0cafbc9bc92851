//! Events of calls that are refused before they are calls: who watches calls sees those too.
//!
//! A refusal costs its caller next to nothing, so a peer that does nothing else could fill every watch, and a watch that
//! does not keep up ends. So few are told in each second, few of them of one caller, and the next one says how many were
//! not told.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_reach_protocol::{ErrorCode, names};
use serde::Serialize;

use crate::calls::Refusal;
use crate::events::about;
use crate::hub::{Hub, Turn, clip_to};
use crate::text::CallId;
use crate::time::Now;
use crate::views::pack;

/// Most refusals that are told in one second, and most of one caller.
const TOLD_MAX: usize = 100;
const TOLD_EACH_MAX: usize = 20;
/// Microseconds of a second.
const SECOND: u64 = 1_000_000;
/// Most bytes of a refusal's message that are told.
const REASON_BYTES: usize = 256;

/// What was told in this second.
#[derive(Debug, Default)]
pub(crate) struct Told {
    second: u64,
    total: usize,
    /// By the caller's place; as many as were told at the most.
    by: BTreeMap<usize, usize>,
    /// How many were not, since the last one that was.
    left_out: u64,
}

impl Told {
    /// Whether one more may be told, and how many were not before it.
    fn take(&mut self, now: Now, caller: usize) -> Option<u64> {
        let second = now.micros() / SECOND;
        if second != self.second {
            *self = Self { second, left_out: self.left_out, ..Self::default() };
        }
        let own = self.by.get(&caller).copied().unwrap_or_default();
        if self.total >= TOLD_MAX || own >= TOLD_EACH_MAX {
            self.left_out += 1;
            return None;
        }
        self.total += 1;
        self.by.insert(caller, own + 1);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// The body of one CHUNK of a watch; `call` has those keys of an open call's that there are.
#[derive(Debug, Serialize)]
struct Event<'a> {
    event: &'static str,
    call: RefusedCall<'a>,
    outcome: &'static str,
    reason: &'a str,
    /// Refusals since the last one told that were not.
    #[serde(skip_serializing_if = "is_none")]
    left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it so")]
const fn is_none(count: &u64) -> bool {
    *count == 0
}

#[derive(Debug, Serialize)]
struct RefusedCall<'a> {
    call_id: CallId,
    request_id: &'a str,
    caller: &'a str,
    capability: &'a str,
    age_ms: u64,
    targets: [&'a str; 0],
}

impl Hub {
    /// Tells watches of a refusal.
    ///
    /// What the hub itself is asked has no events, but for who may not ask it.
    pub(crate) fn announce_refused(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        (call_id, request_id, capability): (CallId, &str, &str),
        refusal: &Refusal,
    ) {
        let code = refusal.failure.code;
        if self.watches.is_empty() || (names::is_reserved(capability) && code != ErrorCode::Unauthorized) {
            return;
        }
        let Some(agent) = self.registry.agents.get(key) else { return };
        let caller = Arc::clone(&agent.id);
        let about = about("calls", &caller, Some(capability));
        if !self.is_watched(&about) {
            return;
        }
        let Some(left_out) = self.refusals.take(turn.now, key) else { return };
        let call = RefusedCall { call_id, request_id, caller: &caller, capability, age_ms: 0, targets: [] };
        let reason = clip_to(&refusal.failure.message, REASON_BYTES);
        let outcome = code.as_str();
        let packed = pack(&Event { event: "call.refused", call, outcome, reason, left_out });
        self.announce(turn, &about, packed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_cannot_take_what_is_told_of_the_others_and_what_is_left_out_is_said() {
        let mut told = Told::default();
        let now = Now::from_millis(1500);
        let of_one = (0..1000).filter(|_| told.take(now, 7).is_some()).count();
        assert_eq!(of_one, TOLD_EACH_MAX);
        assert_eq!(told.take(now, 8), Some(980));
        assert_eq!(told.take(now, 8), Some(0));
        let others = (100..1100).filter(|caller| told.take(now, *caller).is_some()).count();
        assert_eq!(others, TOLD_MAX - TOLD_EACH_MAX - 2);
        assert_eq!(told.by.len(), others + 2);
        let next = Now::from_millis(2000);
        assert_eq!(told.take(next, 7), Some(1000 - others as u64));
        assert_eq!(told.by.len(), 1);
    }
}
