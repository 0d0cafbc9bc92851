//! What a CALL asks for, read from its header alone.

use agent_reach_protocol::{Call as Asking, ErrorCode, Policy, Select};

use super::Failure;
use crate::routing::{NoRoute, Wanted};
use crate::schema::Body;
use crate::time::Now;

/// A call to several agents has a RESULT for each.
pub(crate) fn is_fan_out(asking: &Asking<'_>) -> bool {
    match asking.select {
        Some(Select::All | Select::Count(_)) => true,
        Some(Select::One) | None => asking.agents.as_ref().is_some_and(|agents| agents.len() > 1),
    }
}

/// Whether each of the named agents has a RESULT, also one that cannot take the call.
pub(super) fn each_named_answers(asking: &Asking<'_>) -> bool {
    let counted = matches!(asking.select, Some(Select::Count(_)));
    is_fan_out(asking) && !counted && asking.agents.is_some()
}

pub(super) fn wanted<'a>(
    now: Now,
    caller: usize,
    asking: &'a Asking<'a>,
    name: &'a str,
    body: &'a Body<'a>,
) -> Wanted<'a> {
    let count = match asking.select {
        Some(Select::Count(n)) => usize::try_from(n).unwrap_or(usize::MAX),
        Some(Select::All) => usize::MAX,
        Some(Select::One) | None if is_fan_out(asking) => usize::MAX,
        Some(Select::One) | None => 1,
    };
    // `select: 1` is a fan-out of one; only the plain form takes the short way of a single choice.
    Wanted {
        now,
        caller,
        name,
        agents: asking.agents.as_deref(),
        count,
        policy: asking.policy.unwrap_or(Policy::LeastLoaded),
        prefer: &asking.labels,
        require: &asking.require,
        version: None,
        affinity_key: asking.affinity_key,
        except: &[],
        body,
        expected: None,
        grant: None,
    }
}

pub(super) fn nobody(why: NoRoute, name: &str) -> Failure {
    let (code, message) = match why {
        NoRoute::NeverOffered => (ErrorCode::NoCapability, format!("nobody has ever offered {name}")),
        NoRoute::NoneAble => (ErrorCode::NoInstance, format!("no agent that offers {name} can take it now")),
        NoRoute::Forbidden => {
            (ErrorCode::Unauthorized, format!("{name} is an alias of a name that the caller may not call"))
        }
        NoRoute::Mismatch => {
            (ErrorCode::SchemaMismatch, format!("the call fits the schemas of no agent that offers {name}"))
        }
        NoRoute::Tripped => {
            (ErrorCode::CircuitOpen, format!("the breaker of every agent that can take {name} is open"))
        }
        NoRoute::RateLimited => {
            (ErrorCode::RateLimited, format!("every agent that can take {name} has reached its qps_limit"))
        }
        NoRoute::Busy => {
            return Failure::overloaded(&format!("every agent that can take {name} has its slots full"));
        }
    };
    Failure::new(code, message)
}

/// Whether a call that nobody can take now is not over yet: it waits, or an older result will do.
pub(super) fn goes_on(asking: &Asking<'_>, why: NoRoute) -> bool {
    if is_fan_out(asking) {
        return false;
    }
    let waits = match why {
        NoRoute::Busy | NoRoute::RateLimited => asking.queue.unwrap_or(true),
        NoRoute::NoneAble | NoRoute::NeverOffered => asking.wait_ms.is_some_and(|ms| ms > 0),
        NoRoute::Tripped | NoRoute::Forbidden | NoRoute::Mismatch => false,
    };
    waits || asking.allow_cached_ms.is_some_and(|ms| ms > 0)
}
