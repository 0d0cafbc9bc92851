//! Spans as OTLP has them. Names follow the semantic conventions of OpenTelemetry where those have one.

use agent_reach_core::{CallTrace, Hop, Now, Outcome, Span, SpanEvent};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{self as otlp, ResourceSpans, ScopeSpans, SpanFlags, Status};

/// What all spans of a hub have in common.
pub(super) fn resource(instance: &str) -> Resource {
    let attributes = vec![
        text("service.name", "agent-reach"),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", instance),
    ];
    Resource { attributes, ..Resource::default() }
}

/// A request to a collector.
pub(super) fn request(resource: Resource, spans: Vec<otlp::Span>) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope {
        name: "agent-reach".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_spans = ScopeSpans { scope: Some(scope), spans, schema_url: String::new() };
    let spans =
        ResourceSpans { resource: Some(resource), scope_spans: vec![scope_spans], schema_url: String::new() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }
}

/// The spans of a call that ended at this moment, in nanoseconds since the Unix epoch.
pub(super) fn spans(trace: &CallTrace, ended_unix_nanos: u64) -> Vec<otlp::Span> {
    let nanos = |at: Now| ended_unix_nanos.saturating_sub(trace.ended.micros_since(at).saturating_mul(1000));
    trace.spans().into_iter().map(|span| one(trace, span, &nanos)).collect()
}

fn one(trace: &CallTrace, span: Span<'_>, nanos: &impl Fn(Now) -> u64) -> otlp::Span {
    let whole = span.hop == Hop::Receive;
    // Of the parents only the caller's span is of another process.
    let remote = if whole && span.parent.is_some() { SpanFlags::ContextIsRemoteMask as u32 } else { 0 };
    let kind = match span.hop {
        Hop::Receive => SpanKind::Server,
        Hop::Deliver { .. } => SpanKind::Client,
        Hop::Route { .. } | Hop::Queue { .. } | Hop::Accept | Hop::Process | Hop::Result => {
            SpanKind::Internal
        }
    };
    otlp::Span {
        trace_id: trace.trace_id().to_bytes().to_vec(),
        span_id: span.id.to_bytes().to_vec(),
        trace_state: trace.tracestate().unwrap_or_default().to_owned(),
        parent_span_id: span.parent.map(|parent| parent.to_bytes().to_vec()).unwrap_or_default(),
        flags: u32::from(trace.flags()) | SpanFlags::ContextHasIsRemoteMask as u32 | remote,
        name: name(trace, &span.hop),
        kind: kind.into(),
        start_time_unix_nano: nanos(span.start),
        end_time_unix_nano: nanos(span.end),
        attributes: attributes(trace, &span),
        events: span.events.into_iter().map(|said| event(said, nanos)).collect(),
        status: span.outcome.and_then(status),
        ..otlp::Span::default()
    }
}

/// A name of few variants: capabilities that agents offer are few, and what callers make up is left out.
fn name(trace: &CallTrace, hop: &Hop<'_>) -> String {
    let of_capability = |what: &str| match trace.known {
        true => format!("{what} {}", trace.capability),
        false => what.to_owned(),
    };
    match hop {
        Hop::Receive => of_capability("receive"),
        Hop::Deliver { .. } => of_capability("deliver"),
        Hop::Route { .. } => "route".to_owned(),
        Hop::Queue { .. } => "queue".to_owned(),
        Hop::Accept => "accept".to_owned(),
        Hop::Process => "process".to_owned(),
        Hop::Result => "result".to_owned(),
    }
}

fn attributes(trace: &CallTrace, span: &Span<'_>) -> Vec<KeyValue> {
    let mut all = Vec::new();
    match &span.hop {
        Hop::Receive => {
            all.extend(rpc(trace));
            all.extend([
                text("agent_reach.caller", &trace.caller),
                text("agent_reach.request_id", &trace.request_id),
                text("agent_reach.call_id", &trace.call_id),
                text("agent_reach.mode", trace.mode.as_str()),
            ]);
            all.extend(trace.task.map(|task| text("agent_reach.task_id", &task.to_string())));
        }
        Hop::Route { policy, offering, able, excluded, chosen, reason } => {
            all.extend([
                text("agent_reach.policy", policy),
                number("agent_reach.candidates", *offering),
                number("agent_reach.able", *able),
                texts("agent_reach.chosen", chosen),
                text("agent_reach.reason", reason),
            ]);
            all.extend(
                excluded.iter().map(|(why, count)| number(&format!("agent_reach.excluded.{why}"), *count)),
            );
        }
        Hop::Queue { before } => all.push(number("agent_reach.queue.before", *before)),
        Hop::Deliver { target, attempt, load: (taken, slots) } => {
            all.extend(rpc(trace));
            all.extend([
                text("agent_reach.target", target),
                number("agent_reach.attempt", *attempt),
                number("agent_reach.slots.taken", *taken),
                number("agent_reach.slots", *slots),
            ]);
        }
        Hop::Accept | Hop::Process | Hop::Result => {}
    }
    if let Some(outcome) = span.outcome {
        all.push(text("agent_reach.outcome", outcome.as_str()));
        all.extend(failure(outcome).map(|code| text("error.type", code)));
    }
    all
}

fn rpc(trace: &CallTrace) -> [KeyValue; 2] {
    [text("rpc.system", "agent-reach"), text("rpc.method", &trace.capability)]
}

fn event(said: SpanEvent<'_>, nanos: &impl Fn(Now) -> u64) -> Event {
    let target = said.target.map(|target| text("agent_reach.target", target));
    let reason = said.reason.as_deref().map(|reason| text("agent_reach.reason", reason));
    Event {
        time_unix_nano: nanos(said.at),
        name: said.name.to_owned(),
        attributes: target.into_iter().chain(reason).collect(),
        ..Event::default()
    }
}

const fn failure(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Completed => None,
        Outcome::Failed(code) => Some(code.as_str()),
    }
}

fn status(outcome: Outcome) -> Option<Status> {
    failure(outcome).map(|code| Status { message: code.to_owned(), code: StatusCode::Error.into() })
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, string(value))
}

fn texts(key: &str, values: &[&str]) -> KeyValue {
    let values = values.iter().map(|value| AnyValue { value: Some(string(value)) }).collect();
    attribute(key, Value::ArrayValue(ArrayValue { values }))
}

fn number(key: &str, value: u32) -> KeyValue {
    attribute(key, Value::IntValue(value.into()))
}

fn string(value: &str) -> Value {
    Value::StringValue(value.to_owned())
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
