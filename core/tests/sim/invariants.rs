//! What always has to hold, each under its own name.

use agent_reach_core::{Gauges, Now, Outgoing};
use agent_reach_protocol::{ToAgent, decode_to_agent};

use super::Sim;
use super::model::{Asked, Conn, Given, Intent, Player};

/// Capabilities of the simulated world.
pub(crate) const CAPABILITIES: [&str; 4] = ["x.one", "x.two", "x.three", "x.secret"];

/// Who may call what: agent 2 may not call `x.two`.
pub(crate) fn may_call(agent: &str, capability: &str) -> bool {
    !(agent == "agent-2" && capability == "x.two")
}

/// Who may offer what: agent 1 may not offer `x.secret`.
pub(crate) fn may_provide(agent: &str, capability: &str) -> bool {
    !(agent == "agent-1" && capability == "x.secret")
}

/// A RESULT that ends a call, or a part of it, is for a call that its caller has open on that connection:
/// never a second end, never an end of something else.
pub(crate) fn every_call_ends_exactly_once(conn: &Conn, id: u64) {
    assert!(
        conn.asked.contains_key(&id),
        "every_call_ends_exactly_once: {:?} has no open call {id}",
        conn.id
    );
}

/// A caller that has read everything waits for no call beyond its budget.
pub(crate) fn every_call_ends_in_its_budget(sim: &Sim) {
    for conn in
        sim.conns.values().filter(|conn| conn.welcomed && !conn.pending && !conn.ended && !conn.closed)
    {
        for (id, asked) in &conn.asked {
            let late = asked.due.is_some_and(|due| sim.now > due.plus_ms(1));
            assert!(
                !late,
                "every_call_ends_in_its_budget: call {id} of {:?} is still open: {asked:?}",
                conn.id
            );
        }
    }
}

/// Nobody cancels a call but its asker, by CANCEL or by staying away for the whole resume window.
pub(crate) fn only_the_asker_cancels(now: Now, intent: &Intent) {
    let abandoned = intent.abandoned || intent.window.is_some_and(|end| now >= end);
    assert!(intent.cancelled || abandoned, "only_the_asker_cancels: {intent:?}");
}

/// A call goes only to an agent that may offer it, does offer it, and from a caller who may call it.
pub(crate) fn only_authorised_targets(target: &Player, given: &Given) {
    let name = given.capability.as_str();
    assert!(
        target.offers.contains(&name) && may_provide(&target.name, name) && may_call(&given.caller, name),
        "only_authorised_targets: {} got {name} from {}",
        target.name,
        given.caller
    );
}

/// A provider has no more calls, beside cancelled ones, than it has room for.
pub(crate) fn slots_never_exceed_max_concurrency(target: &Player, conn: &Conn) {
    let running = conn.given.values().filter(|given| !given.cancelled).count() as u64;
    assert!(
        running <= target.slots,
        "slots_never_exceed_max_concurrency: {} has {running} of {}",
        target.name,
        target.slots
    );
}

/// Taking from a queue lowers the gauge by exactly what was taken, and all queues together stay within their
/// bounds.
pub(crate) fn queue_bytes_equal_the_gauge(before: usize, after: usize, batch: &[Outgoing]) {
    let cost = |outgoing: &Outgoing| {
        size_of::<Outgoing>() + if let Outgoing::Message(message) = outgoing { message.len() } else { 0 }
    };
    let taken: usize = batch.iter().map(cost).sum();
    assert_eq!(before - after, taken, "queue_bytes_equal_the_gauge: by what was taken");
}

/// Once every queue is empty the gauge is zero.
pub(crate) fn empty_queues_have_no_bytes(gauges: &Gauges) {
    assert_eq!(gauges.outbound_bytes, 0, "queue_bytes_equal_the_gauge: every queue is empty");
}

/// A full queue ends its connection: what waits never stays above the bound of all connections.
pub(crate) fn queue_bytes_stay_within_their_bound(sim: &Sim) {
    let gauges = sim.hub.gauges();
    let (bound, bytes) = (gauges.connections * (sim.outbound_bytes + 512), gauges.outbound_bytes);
    assert!(bytes <= bound, "queue_bytes_stay_within_their_bound: {bytes} of {bound}");
}

/// Nothing follows a WebSocket close, and nothing is sent to a connection that is closed.
pub(crate) fn no_frame_to_a_closed_session(conn: &Conn, batch: &[Outgoing]) {
    let end = batch.iter().position(|outgoing| matches!(outgoing, Outgoing::Close { .. }));
    let after = end.map_or(0, |end| batch.len() - end - 1);
    assert!(
        after == 0 && !conn.closed && (batch.is_empty() || !conn.ended),
        "no_frame_to_a_closed_session: {:?} got {batch:?}",
        conn.id
    );
}

/// The pieces of a stream come without gaps to its asker, as long as nobody else asks for the same intent.
pub(crate) fn chunks_gapless_per_asker(asked: &mut Asked, target: &str, seq: u64) {
    let next = asked.next_seq.entry(target.to_owned()).or_default();
    let begins_late = asked.shared && *next == 0;
    assert!(
        seq == *next || begins_late || asked.shared && seq > *next,
        "chunks_gapless_per_asker: {seq} where {next} was due"
    );
    *next = seq + 1;
}

/// A provider is not given as new what it runs already, nor what it completed within the time of memory.
pub(crate) fn no_request_id_runs_twice(now: Now, target: &Player, conn: &Conn, given: &Given, attempt: u64) {
    if attempt > 1 {
        return;
    }
    let same = |other: &Given| other.caller == given.caller && other.request_id == given.request_id;
    let runs = conn.given.values().any(|other| !other.cancelled && !other.notify && same(other));
    let key = (conn.life, given.caller.clone(), given.request_id.clone());
    let ran = target.completed.get(&key).is_some_and(|until| now < *until);
    assert!(!runs && !ran, "no_request_id_runs_twice: {given:?} runs: {runs}, ran: {ran}");
}

/// Control envelopes never wait behind bodies; only what is about a CALL that waited too stays behind it.
pub(crate) fn control_goes_before_data(conn: &mut Conn, batch: &[Outgoing]) {
    let mut bodies = false;
    for outgoing in batch {
        let Outgoing::Message(message) = outgoing else {
            assert!(
                !bodies || matches!(outgoing, Outgoing::Close { .. }),
                "control_goes_before_data: a ping"
            );
            continue;
        };
        match decode_to_agent(message).expect("readable").0 {
            ToAgent::Call(call) => {
                bodies = true;
                conn.calls_read.insert(call.id);
            }
            ToAgent::Result(_) | ToAgent::Chunk(_) | ToAgent::Error(_) => bodies = true,
            ToAgent::Credit(credit) => about(conn, bodies, credit.id),
            ToAgent::Cancel(cancel) => about(conn, bodies, cancel.id),
            ToAgent::Welcome(_) | ToAgent::Goodbye(_) | ToAgent::Accept(_) => {
                assert!(!bodies, "control_goes_before_data: {message:?}");
            }
        }
    }
}

fn about(conn: &Conn, bodies: bool, id: u64) {
    assert!(!bodies || conn.calls_read.contains(&id), "control_goes_before_data: about call {id}");
    assert!(id <= conn.last_given.max(*conn.calls_read.last().unwrap_or(&0)), "about a call before its CALL");
}

/// After a Tick nothing that is due is left: the shell that follows `next_timeout` never spins.
pub(crate) fn no_timer_of_the_past(now: Now, next: Option<Now>) {
    assert!(next.is_none_or(|next| next > now), "no_timer_of_the_past: {next:?} at {now:?}");
}

/// A connection is woken exactly when it has something to read that it does not know of.
pub(crate) fn nothing_waits_unannounced(sim: &mut Sim) {
    let idle: Vec<_> = sim.conns.values().filter(|conn| !conn.pending).map(|conn| conn.id).collect();
    for id in idle {
        let waits = sim.hub.take_outbound(id, 0, 0, &mut Vec::new()).is_some();
        assert!(!waits, "nothing_waits_unannounced: {id:?} was not woken");
    }
}

/// When everybody has left and every window has passed, nothing is left of anybody.
pub(crate) fn nothing_is_left(gauges: &Gauges) {
    assert_eq!(*gauges, Gauges::default(), "nothing_is_left");
}
