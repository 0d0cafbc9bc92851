//! What always has to hold, each under its own name.

use agent_reach_core::{ConnectionId, Effects, Gauges, Now, Outgoing};
use agent_reach_protocol::{Accept, CallResult, Dispatch, ToAgent};

use super::Sim;
use super::callers::PER_AGENT;
use super::model::{Asked, Conn, Given, Intent, Player, Select};
use super::network::version_of;
use super::setting::{IN_FLIGHT, REGISTRATIONS, TWO_TIMEOUT_MS};
use super::tries::Try;
use super::{tasks, waits};

/// How the body of a piece begins.
pub(crate) const PIECE: &str = "piece ";

/// What is checked whatever has happened.
pub(super) fn after_every_step(sim: &mut Sim) {
    let gauges = sim.hub.gauges();
    nothing_grows_without_bound(sim, &gauges);
    waits::after_every_step(sim, &gauges);
    tasks::after_every_step(sim);
    counters_agree_with_facts(sim);
    nothing_waits_unannounced(sim);
    // A tick that is late lets what is due wait with it.
    let is_late = sim.events.first_key_value().is_some_and(|((at, _), _)| *at < sim.now);
    if sim.hub.next_timeout().is_none_or(|next| next > sim.now) && !(is_late && sim.settings.store) {
        every_call_ends_in_time(sim);
    }
}

/// A RESULT that ends a call, or a part of it, is for a call that its caller has open on that connection:
/// never a second end, never an end of something else.
pub(super) fn every_call_ends_exactly_once(conn: &Conn, id: u64) {
    assert!(
        conn.asked.contains_key(&id),
        "every_call_ends_exactly_once: {:?} has no open call {id}",
        conn.id
    );
}

/// A caller that has read everything waits for no call beyond its budget, nor beyond the time of its phase.
fn every_call_ends_in_time(sim: &Sim) {
    for conn in
        sim.conns.values().filter(|conn| conn.welcomed && !conn.pending && !conn.ended && !conn.closed)
    {
        for (id, asked) in &conn.asked {
            let late = asked.due.is_some_and(|due| sim.now > due.plus_ms(1));
            assert!(!late, "every_call_ends_in_its_budget: call {id} of {:?}: {asked:?}", conn.id);
            let late = asked.phase_due.is_some_and(|due| !asked.shared && sim.now > due.plus_ms(1));
            assert!(!late, "every_phase_ends_in_its_time: call {id} of {:?}: {asked:?}", conn.id);
        }
    }
}

/// No deadline passes before its time.
pub(super) fn no_deadline_comes_early(now: Now, asked: &Asked, intent: &Intent, code: &str) {
    let Some(arrived) = asked.arrived.filter(|_| !asked.shared) else { return };
    // Priority may halve the processing time, and the capability may allow less.
    let least = match code {
        "accept_timeout" => intent.accept_ms,
        "timeout" => (intent.timeout_ms / 2).min(TWO_TIMEOUT_MS),
        "budget_exhausted" => intent.budget_ms,
        _ => 0,
    };
    // Each piece of a stream restarts its processing time.
    let exact = code == "timeout" && intent.times_asked == 1 && !intent.is_fan_out();
    let restarted = intent.progress.filter(|_| exact);
    let from = restarted.map_or(arrived, |at| at.max(arrived));
    assert!(now >= from.plus_ms(least), "no_deadline_comes_early: {code} of {asked:?} of {intent:?}");
}

/// Nobody cancels a call but its asker, by CANCEL or by staying away for the whole resume window.
pub(super) fn only_the_asker_cancels(now: Now, intent: &Intent) {
    let abandoned = intent.abandoned || intent.window.is_some_and(|end| now >= end);
    assert!(intent.cancelled || abandoned, "only_the_asker_cancels: {intent:?}");
}

/// A call goes only to an agent that may offer it, does offer it, and from a caller who may call it. What was
/// queued before a change may still be there; what runs goes on.
pub(super) fn only_authorised_targets(sim: &Sim, conn: &Conn, given: &Given, kind: Try, since: Now) {
    let (target, name) = (&sim.players[conn.agent], given.capability.as_str());
    if kind == Try::Resumed {
        return;
    }
    let declared = sim.players.iter().find(|player| player.name == given.caller);
    let declared = declared.and_then(|player| player.declares.as_ref());
    // A call that runs goes on through a change of rules: whoever might ask may have it tried again.
    let asked_since = sim.intent(given.number).and_then(|intent| intent.first).map(|(at, _)| at);
    let might_ask = asked_since
        .filter(|_| kind == Try::Again || given.task.is_some())
        .is_some_and(|since| sim.rules_since(since).any(|rules| rules.may_call(&given.caller, name)));
    let allowed = sim.rules_since(since).any(|rules| {
        rules.may_provide(&target.name, name)
            && (might_ask || rules.may_call(&given.caller, name))
            && sim.intent(given.number).is_none_or(|intent| rules.resolve(intent.capability) == name)
    });
    let offered = conn.offered.get(name).is_some_and(|(on, at)| *on || *at >= since);
    assert!(
        // A task outlasts what its caller declared.
        offered && allowed && (given.task.is_some() || declared.is_none_or(|own| own.contains(&name))),
        "only_authorised_targets: {} got {name} from {}",
        target.name,
        given.caller
    );
}

/// Nothing new goes to an agent that is out of routing: silent, draining by its own word or an operator's, or unhealthy.
pub(super) fn nothing_new_to_who_is_out_of_routing(
    sim: &Sim,
    conn: &Conn,
    given: &Given,
    kind: Try,
    since: Now,
) {
    if kind == Try::Resumed {
        return;
    }
    let drained = sim.players[conn.agent].drained.map(|(_, at)| at);
    let out = [conn.out.suspect, conn.out.status, conn.out.health, drained];
    assert!(
        out.iter().flatten().all(|at| *at >= since),
        "nothing_new_to_who_is_out_of_routing: {:?} {:?} {drained:?}",
        conn.id,
        conn.out
    );
    // What was asked before it began may still wait then.
    let first = sim.intent(given.number).and_then(|intent| intent.first).map_or(sim.now, |(at, _)| at);
    let drained = sim.drained.is_some_and(|at| at < since && at < first);
    assert!(!drained, "nothing_new_after_a_drain_began: {:?}", conn.id);
}

/// What a caller says of its targets binds the choice, and what it sends comes as it was sent.
pub(super) fn a_call_keeps_what_its_caller_said(
    intent: &Intent,
    target: &Player,
    given: &Given,
    call: &Dispatch<'_>,
    body: usize,
) {
    let named = intent.agents.is_empty() || intent.agents.contains(&target.name);
    let zone = intent.zone.is_none_or(|zone| zone == target.zone);
    let own = (given.capability == "x.one").then(|| version_of(target.zone));
    let version = intent.terms.version.is_none_or(|asked| own.is_some_and(|own| own[..1] == asked[1..]));
    let same_id = intent.request_id.as_ref().is_none_or(|own| *own == given.request_id);
    let in_budget = call.deadline_ms <= intent.budget_ms;
    // The same request id for something else, once the first is forgotten.
    let retold = intent.times_asked > 1;
    assert!(
        named
            && zone
            && version
            && same_id
            && in_budget
            && (body == intent.body || retold && body == intent.body + 1)
            && intent.stream == call.stream,
        "a_call_keeps_what_its_caller_said: {intent:?} {given:?}, {body} bytes for {target:?}"
    );
}

/// The hub gives a provider no more credit than callers gave it, and callers get no more pieces than they gave
/// credit for.
pub(super) fn no_more_credit_than_was_given(intent: &Intent, given: &Given) {
    assert!(
        given.granted <= intent.granted || !given.stream,
        "no_more_credit_than_was_given: {given:?} of {intent:?}"
    );
}

/// A provider has no more calls, beside cancelled ones, than it has room for.
pub(super) fn slots_never_exceed_max_concurrency(target: &Player, conn: &Conn) {
    let running = conn.given.values().filter(|given| !given.cancelled).count() as u64;
    assert!(
        running <= target.slots,
        "slots_never_exceed_max_concurrency: {} has {running} of {}",
        target.name,
        target.slots
    );
}

/// A capability is not called more often than its `qps_limit`, beside what its full bucket held.
pub(super) fn quotas_hold(now: Now, target: &Player, conn: &Conn) {
    let Some(qps) = target.qps else { return };
    let elapsed = now.ms_since(conn.registered) + 1;
    let most = qps * (conn.buckets as f64 + elapsed as f64 / 1000.0);
    assert!(conn.taken as f64 <= most, "quotas_hold: {} of {most} at {}", conn.taken, target.name);
}

/// No agent registers more often than the storm limit allows.
pub(super) fn registrations_stay_within_their_share(now: Now, player: &mut Player) {
    player.registered.push_back(now);
    while player.registered.front().is_some_and(|at| now.ms_since(*at) >= 10_000) {
        player.registered.pop_front();
    }
    assert!(
        player.registered.len() <= REGISTRATIONS,
        "registrations_stay_within_their_share: {} {:?}",
        player.name,
        player.registered
    );
}

/// Taking from a queue lowers the gauge by exactly what was taken.
pub(super) fn queue_bytes_equal_the_gauge(before: usize, after: usize, batch: &[Outgoing]) {
    let cost =
        |outgoing: &Outgoing| size_of::<Outgoing>() + outgoing.message().map_or(0, |message| message.len());
    let taken: usize = batch.iter().map(cost).sum();
    assert!(before - after == taken, "queue_bytes_equal_the_gauge: {before} - {after} by {taken}");
}

/// Once every queue is empty the gauge is zero.
pub(super) fn empty_queues_have_no_bytes(gauges: &Gauges) {
    let bytes = gauges.outbound_bytes;
    assert!(bytes == 0, "queue_bytes_equal_the_gauge: every queue is empty, but {bytes}");
}

/// Every message fits into what the peer was told it may have.
pub(super) fn no_message_is_over_the_limit(most: usize, batch: &[Outgoing]) {
    for outgoing in batch {
        if let Some(message) = outgoing.message() {
            assert!(message.len() <= most, "no_message_is_over_the_limit: {}: {message:?}", message.len());
        }
    }
}

/// What peers can make grow stays within its bound.
fn nothing_grows_without_bound(sim: &Sim, gauges: &Gauges) {
    let players = sim.players.len();
    let slots: u64 = sim.players.iter().map(|player| player.slots).sum();
    let agents = gauges.agents_ready
        + gauges.agents_degraded
        + gauges.agents_draining
        + gauges.agents_suspect
        + gauges.agents_away;
    let bounds = [
        ("connections", gauges.connections, sim.conns.len()),
        ("agents", agents, players),
        ("calls", gauges.calls, players * IN_FLIGHT + sim.tasks.held()),
        ("in_flight", gauges.in_flight, usize::try_from(slots).unwrap()),
        ("watches", gauges.watches, players * 16),
        // One for each connection, leg and agent, the sweep and the drain.
        // And one for each call that has no leg, and for each line that waits, and one for who waits for the store.
        (
            "timers",
            gauges.timers,
            gauges.connections + gauges.in_flight + 2 * agents + gauges.calls + gauges.waiting + 3,
        ),
        ("outbound_bytes", gauges.outbound_bytes, gauges.connections * (sim.settings.outbound_bytes + 2048)),
        // The last call that had room may have further targets.
        (
            "open_bytes",
            gauges.open_bytes,
            sim.settings.open_bytes + players * 512 + usize::try_from(slots).unwrap() * 512,
        ),
        ("remembered_bytes", gauges.remembered_bytes, sim.settings.dedupe_bytes + (gauges.calls + 1) * 512),
    ];
    for (what, is, most) in bounds {
        assert!(is <= most, "nothing_grows_without_bound: {is} {what}, {most} are allowed");
    }
}

/// Every end is told once as a fact and counted once.
fn counters_agree_with_facts(sim: &Sim) {
    let counters = sim.hub.counters();
    let counted = counters.calls_completed + counters.calls_failed;
    assert!(counted == sim.ends, "counters_agree_with_facts: {counted} and {}", sim.ends);
}

/// Nothing follows a WebSocket close, and nothing is sent to a connection that is closed.
pub(super) fn no_frame_to_a_closed_session(conn: &Conn, batch: &[Outgoing]) {
    let end = batch.iter().position(|outgoing| matches!(outgoing, Outgoing::Close { .. }));
    let after = end.map_or(0, |end| batch.len() - end - 1);
    assert!(
        after == 0 && !conn.closed && (batch.is_empty() || !conn.ended),
        "no_frame_to_a_closed_session: {:?} got {batch:?}",
        conn.id
    );
}

/// ACCEPT comes before the pieces and the end of what it accepts.
pub(super) fn accept_comes_first(asked: &mut Asked, accept: &Accept<'_>) {
    let target = accept.target.unwrap_or_default();
    let begun = asked.next_seq.get(target).is_some_and(|next| *next > 0) || asked.parts.contains(target);
    assert!(
        !begun || asked.shared || accept.attempt != Some(1),
        "accept_comes_first: of {target} behind its pieces: {asked:?}"
    );
}

/// The pieces of a stream come without gaps to its asker, as long as nobody else asks for the same intent, and
/// no more of them than it gave credit for.
pub(super) fn chunks_are_gapless_and_within_credit(asked: &mut Asked, target: &str, seq: u64) {
    let next = asked.next_seq.entry(target.to_owned()).or_default();
    let begins_late = asked.shared && *next == 0;
    assert!(
        seq == *next || begins_late || asked.shared && seq > *next,
        "chunks_are_gapless: {seq} where {next} was due"
    );
    *next = seq + 1;
    assert!(
        asked.shared || seq < asked.granted,
        "no_more_credit_than_was_given: piece {seq} of {}",
        asked.granted
    );
}

/// What comes back is what was made for this very intent, and for this very body.
pub(super) fn an_answer_is_of_its_own_call(said: &str, body: &[u8]) {
    let body = String::from_utf8_lossy(body);
    assert!(body.trim_end() == said, "an_answer_is_of_its_own_call: {body:?} where {said:?} was due");
}

/// A fan-out has one part for each target, and its summary counts them.
pub(super) fn parts_add_up_to_the_summary(asked: &mut Asked, intent: &Intent, result: &CallResult<'_>) {
    if result.more {
        let target = result.target.unwrap_or_default();
        let first = asked.parts.insert(target.to_owned());
        assert!(first || asked.shared, "parts_add_up_to_the_summary: a second part of {target}");
        return;
    }
    let Some(summary) = result.summary else { return };
    let counted = summary.completed + summary.failed;
    assert!(summary.targets == counted, "parts_add_up_to_the_summary: {summary:?}");
    let parts = asked.parts.len() as u64;
    // A cancelled one ends without the parts that were open.
    let exact = !asked.shared && !intent.cancelled && !intent.abandoned && intent.window.is_none();
    assert!(
        if exact { parts == summary.targets } else { asked.shared || parts <= summary.targets },
        "parts_add_up_to_the_summary: {parts} parts, {summary:?}, {asked:?}"
    );
    if let Select::Count(most) = intent.select {
        assert!(summary.targets <= most, "parts_add_up_to_the_summary: more than {most} targets");
    }
}

/// Nobody is given as new what somebody runs already, nor what was completed within the time of memory.
pub(super) fn no_request_id_runs_twice(sim: &Sim, id: ConnectionId, given: &Given, kind: Try) {
    if kind != Try::First || given.task.is_some() {
        return;
    }
    let Some(intent) = sim.intent(given.number) else { return };
    let same = |other: &Given| other.caller == given.caller && other.request_id == given.request_id;
    let runs = sim
        .conns
        .values()
        .filter(|conn| conn.id == id || !(conn.left || conn.pending || conn.unheard || intent.is_fan_out()))
        .flat_map(|conn| conn.given.values())
        // The CANCEL of an older one may be behind it in the queue.
        .any(|other| !other.cancelled && !other.notify && same(other) && other.call < given.call);
    let key = (given.caller.clone(), given.request_id.clone());
    let since = sim.conns.get(&id).map_or(sim.now, |conn| conn.taken_since);
    let ran =
        !intent.is_fan_out() && sim.ran.get(&key).is_some_and(|(at, until)| since > *at && sim.now < *until);
    assert!(!runs && !ran, "no_request_id_runs_twice: {given:?} runs: {runs}, ran: {ran}");
}

/// Control envelopes never wait behind bodies; only what is about a CALL that waited too stays behind it.
/// `bodies` says whether one was before this in the same batch; `None` is a ping.
pub(super) fn control_goes_before_data(conn: &mut Conn, bodies: &mut bool, envelope: Option<&ToAgent<'_>>) {
    match envelope {
        Some(ToAgent::Call(call)) => {
            *bodies = true;
            conn.calls_read.insert(call.id);
        }
        Some(ToAgent::Result(_) | ToAgent::Chunk(_) | ToAgent::Error(_)) => *bodies = true,
        Some(ToAgent::Credit(credit)) => about(conn, *bodies, credit.id),
        Some(ToAgent::Cancel(cancel)) => about(conn, *bodies, cancel.id),
        None | Some(ToAgent::Welcome(_) | ToAgent::Goodbye(_) | ToAgent::Accept(_)) => {
            assert!(!*bodies, "control_goes_before_data: {envelope:?}");
        }
    }
}

fn about(conn: &Conn, bodies: bool, id: u64) {
    assert!(!bodies || conn.calls_read.contains(&id), "control_goes_before_data: about call {id}");
    assert!(
        id <= conn.last_given.max(*conn.calls_read.last().unwrap_or(&0)),
        "control_goes_before_data: about call {id} before its CALL"
    );
}

/// After a Tick nothing that is due is left: the shell that follows `next_timeout` never spins.
pub(super) fn no_timer_of_the_past(now: Now, next: Option<Now>) {
    assert!(next.is_none_or(|next| next > now), "no_timer_of_the_past: {next:?} at {now:?}");
}

/// A connection is woken exactly when it has something to read that it does not know of.
fn nothing_waits_unannounced(sim: &mut Sim) {
    for conn in sim.conns.values().filter(|conn| !conn.pending) {
        let waits = sim.hub.take_outbound(conn.id, 0, 0, &mut Vec::new()).is_some();
        assert!(!waits, "nothing_waits_unannounced: {:?} was not woken", conn.id);
    }
}

/// What comes late of an older connection changes nothing.
pub(super) fn a_newer_generation_is_untouched(effects: &Effects, same: bool) {
    assert!(
        same && effects.wake.is_empty() && effects.facts.is_empty(),
        "a_newer_generation_is_untouched: {effects:?}"
    );
}

impl Sim {
    pub(super) fn intent_mut(&mut self, number: u64) -> Option<&mut Intent> {
        let number = number.checked_sub(1)?;
        let player = self.players.get_mut(usize::try_from(number / PER_AGENT).ok()?)?;
        player.intents.get_mut(usize::try_from(number % PER_AGENT).ok()?)
    }

    /// The intent with this number.
    pub(super) fn intent(&self, number: u64) -> Option<&Intent> {
        let number = number.checked_sub(1)?;
        let player = self.players.get(usize::try_from(number / PER_AGENT).ok()?)?;
        player.intents.get(usize::try_from(number % PER_AGENT).ok()?)
    }
}
