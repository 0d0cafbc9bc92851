//! CALL, as a provider reads it and takes it.

use std::time::Duration;

use agent_reach_protocol::{Accept, Dispatch, Labels, Private, encode, limits::CREDIT_DEFAULT};
use bytes::Bytes;

use super::ends::refusal;
use super::room::Outlook;
use super::run::Run;
use crate::payload::Payload;
use crate::session::Context;
use crate::session::time::millis;
use crate::session::types::{Failure, Invocation, RunKey, owned};

pub(super) fn refuse(cx: &mut Context<'_>, header: &Dispatch<'_>, failure: &Failure) {
    cx.outbound.body(refusal(header.id, Some((header.request_id, header.call_id)), failure));
}

/// ACCEPT. It says when the caller's wish will be missed.
pub(super) fn accept(cx: &mut Context<'_>, run: &mut Run, outlook: Outlook) {
    let Some(id) = run.id.filter(|_| cx.open) else { return };
    run.accepted = true;
    // Of a task 0 says that its handler has begun, and nothing that it has not.
    let queue_depth = match (run.task, outlook.before) {
        (true, None) => run.waiting.is_none().then_some(0),
        (true, before) => before.filter(|before| *before > 0),
        (false, before) => before,
    };
    let late = outlook.time.filter(|time| run.preferred.is_some_and(|preferred| *time > preferred));
    let header = Accept {
        id,
        queue_depth,
        would_timeout: late.is_some(),
        wait_ms: late.map(millis),
        request_id: None,
        call_id: None,
        target: None,
        attempt: None,
        task_id: None,
        private: Private::default(),
    };
    cx.outbound.control(encode(&header, None));
}

pub(super) fn invocation(run: RunKey, header: &Dispatch<'_>, body: Option<Bytes>) -> Invocation {
    let text = |word: Option<&str>| word.map(str::to_owned);
    Invocation {
        run,
        request_id: header.request_id.to_owned(),
        call_id: header.call_id.to_owned(),
        capability: header.capability.to_owned(),
        caller: header.caller.to_owned(),
        attempt: header.attempt,
        deadline: Duration::from_millis(header.deadline_ms),
        preferred_timeout: header.preferred_timeout_ms.map(Duration::from_millis),
        stream: header.stream,
        credit: header.credit.unwrap_or(CREDIT_DEFAULT),
        mode: header.mode,
        priority: header.priority,
        labels: owned(&header.labels.0),
        traceparent: text(header.traceparent),
        tracestate: text(header.tracestate),
        task_id: text(header.task_id),
        private: header
            .private
            .0
            .iter()
            .map(|(k, v)| ((*k).to_owned(), Bytes::copy_from_slice(v.0)))
            .collect(),
        payload: Payload { body: body.unwrap_or_default(), content_type: text(header.content_type) },
    }
}

/// The header of a CALL that was put aside: what a run needs of it.
pub(super) fn as_it_came(call: &Invocation, id: u64) -> Dispatch<'_> {
    Dispatch {
        id,
        request_id: &call.request_id,
        call_id: &call.call_id,
        capability: &call.capability,
        caller: &call.caller,
        attempt: call.attempt,
        deadline_ms: millis(call.deadline),
        preferred_timeout_ms: call.preferred_timeout.map(millis),
        stream: call.stream,
        credit: Some(call.credit),
        mode: call.mode,
        priority: call.priority,
        labels: Labels::default(),
        traceparent: None,
        tracestate: None,
        content_type: None,
        task_id: None,
        private: Private::default(),
    }
}
