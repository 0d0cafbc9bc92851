//! Spans of calls as a collector gets them: the real binary, and a receiver of OTLP over HTTP.
#![cfg(test)]

#[macro_use]
mod raw;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use raw::client::RawClient;
use raw::peer::canary;
use raw::{Envelope, Hub, kind};
use rmpv::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A request as it came.
struct Received {
    head: String,
    request: ExportTraceServiceRequest,
}

impl Received {
    fn spans(&self) -> Vec<Span> {
        let scopes = self.request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }
}

/// A collector that answers its requests with these heads, the last one for ever; an empty one: it never answers.
struct Collector {
    address: SocketAddr,
    requests: mpsc::Receiver<Received>,
}

impl Collector {
    async fn new(heads: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, requests) = mpsc::channel(100);
        tokio::spawn(async move {
            let mut silent = Vec::new();
            for turn in 0_usize.. {
                let (mut socket, _) = listener.accept().await.unwrap();
                let Some(received) = received(&mut socket).await else { continue };
                match heads[turn.min(heads.len() - 1)] {
                    "" => silent.push(socket),
                    head => {
                        let answer =
                            format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                        // A hub that has ended needs no answer.
                        let (Ok(()) | Err(_)) = socket.write_all(answer.as_bytes()).await;
                    }
                }
                if tell.send(received).await.is_err() {
                    return;
                }
            }
        });
        Self { address, requests }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A hub that exports to it, and traces what its callers want traced.
    fn hub(&self) -> Hub {
        Hub::dev_with(&[("TRACING__OTLP_ENDPOINT", &self.url()), ("TRACING__SAMPLE_RATIO", "0.0")])
    }

    async fn next(&mut self) -> Received {
        raw::within("a request", self.requests.recv()).await.expect("the collector is there")
    }

    /// Spans, until a call has all of its own: the last of a call is always `result`.
    async fn call(&mut self) -> Vec<Span> {
        let mut spans = Vec::new();
        while !spans.iter().any(|span: &Span| span.name == "result") {
            spans.extend(self.next().await.spans());
        }
        spans
    }
}

/// `None`: the connection ended before a whole request.
async fn received(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length: usize = raw::http::field(&head, "content-length").unwrap().parse().unwrap();
            if bytes.len() >= end + 4 + length {
                let request = ExportTraceServiceRequest::decode(&bytes[end + 4..]).unwrap();
                return Some(Received { head, request });
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "one {name} in {spans:?}");
    found[0]
}

fn attributes(all: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |attribute: &KeyValue| {
        let value = attribute.value.clone().and_then(|value| value.value);
        if let Some(Attribute::StringValue(text)) = value {
            text
        } else if let Some(Attribute::IntValue(number)) = value {
            number.to_string()
        } else if let Some(Attribute::ArrayValue(row)) = value {
            format!("{} of them", row.values.len())
        } else {
            panic!("{attribute:?}")
        }
    };
    all.iter().map(|attribute| (&*attribute.key, text(attribute))).collect()
}

/// Whether the hub's page says this.
async fn counted(hub: &Hub, line: &str) -> bool {
    raw::http::get(hub.metrics(), "/metrics").await.body.lines().any(|own| own == line)
}

/// A provider of `echo` and a caller.
async fn pair(hub: &Hub) -> (RawClient, RawClient) {
    (hub.agent("p", &["echo"]).await, hub.agent("c", &[]).await)
}

/// One call that is accepted and completed; the CALL that its provider got.
async fn traced(caller: &mut RawClient, provider: &mut RawClient, extra: Value) -> Envelope {
    let id = caller.call("echo", extra, Value::from("x")).await;
    let call = provider.taken().await;
    provider.accept(&call).await;
    caller.accepted(id).await;
    provider.complete(&call, call.body.clone()).await;
    caller.completed(id).await;
    call
}

#[tokio::test]
async fn a_collector_gets_each_hop_once_joined_to_the_trace_of_the_caller() {
    let mut collector = Collector::new(&["200 OK"]).await;
    let hub = collector.hub();
    let (mut provider, mut caller) = pair(&hub).await;
    let extra = map! {"traceparent" => SAMPLED, "tracestate" => "k=v", "request_id" => "r-1"};
    let call = traced(&mut caller, &mut provider, extra).await;
    let received = collector.next().await;
    assert!(received.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", received.head);
    assert_eq!(raw::http::field(&received.head, "content-type"), Some("application/x-protobuf"));
    let resource = received.request.resource_spans[0].resource.clone().unwrap();
    let resource = attributes(&resource.attributes);
    assert_eq!(resource["service.name"], "agent-reach");
    assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(resource["service.instance.id"].len(), 36, "a UUID");
    let spans = received.spans();
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE && span.trace_state == "k=v"));
    let receive = named(&spans, "receive echo");
    let deliver = named(&spans, "deliver echo");
    assert_eq!(hex(&receive.parent_span_id), PARENT);
    assert_eq!((receive.kind, deliver.kind), (SpanKind::Server.into(), SpanKind::Client.into()));
    // Of all parents only the caller's span is remote.
    assert_eq!((receive.flags, deliver.flags), (0x301, 0x101));
    for name in ["route", "deliver echo", "result"] {
        assert_eq!(named(&spans, name).parent_span_id, receive.span_id, "{name}");
    }
    for name in ["accept", "process"] {
        assert_eq!(named(&spans, name).parent_span_id, deliver.span_id, "{name}");
    }
    assert_eq!(spans.len(), 6, "{spans:?}");
    for span in &spans {
        assert!(receive.start_time_unix_nano <= span.start_time_unix_nano, "{span:?}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        assert!(span.end_time_unix_nano <= receive.end_time_unix_nano, "{span:?}");
    }
    let told = (call.text("traceparent"), call.text("tracestate"));
    assert_eq!(told, (&*format!("00-{TRACE}-{}-01", hex(&deliver.span_id)), "k=v"));
}

#[tokio::test]
async fn spans_say_who_called_whom_and_how_it_ended() {
    let mut collector = Collector::new(&["200 OK"]).await;
    let hub = collector.hub();
    let (mut provider, mut caller) = pair(&hub).await;
    let id =
        caller.call("echo", map! {"traceparent" => SAMPLED, "request_id" => "r-1"}, "secret".into()).await;
    let call = provider.taken().await;
    provider.fail(&call, map! {"code" => "unsupported", "message" => "not today"}).await;
    let result = caller.failed(id, "unsupported").await;
    let received = collector.next().await;
    let spans = received.spans();
    let receive = named(&spans, "receive echo");
    let of_call = attributes(&receive.attributes);
    let expected = [
        ("rpc.system", "agent-reach"),
        ("rpc.method", "echo"),
        ("agent_reach.caller", "c"),
        ("agent_reach.request_id", "r-1"),
        ("agent_reach.call_id", result.text("call_id")),
        ("agent_reach.mode", "call"),
        ("agent_reach.outcome", "unsupported"),
        ("error.type", "unsupported"),
    ];
    assert_eq!(of_call, expected.map(|(key, value)| (key, value.to_owned())).into());
    let status = receive.status.clone().unwrap();
    assert_eq!((status.code, &*status.message), (StatusCode::Error.into(), "unsupported"));
    let deliver = attributes(&named(&spans, "deliver echo").attributes);
    assert_eq!((&*deliver["agent_reach.target"], &*deliver["agent_reach.attempt"]), ("p", "1"));
    let route = attributes(&named(&spans, "route").attributes);
    assert_eq!((&*route["agent_reach.candidates"], &*route["agent_reach.chosen"]), ("1", "1 of them"));
    assert!(route["agent_reach.reason"].starts_with("least_loaded: 1 of 1 able"), "{route:?}");
    let text = format!("{:?}", received.request);
    assert!(
        !text.contains("secret") && !text.contains("not today"),
        "what agents say to each other is theirs"
    );
}

#[tokio::test]
async fn what_a_caller_does_not_want_traced_is_not_exported() {
    let mut collector = Collector::new(&["200 OK"]).await;
    let hub = collector.hub();
    let (mut provider, mut caller) = pair(&hub).await;
    let unsampled = SAMPLED.replace("-01", "-00");
    let call = traced(&mut caller, &mut provider, map! {"traceparent" => unsampled.as_str()}).await;
    assert_eq!(call.text("traceparent"), unsampled);
    let call = traced(&mut caller, &mut provider, map! {}).await;
    assert!(call.get("traceparent").is_nil());
    traced(&mut caller, &mut provider, map! {"traceparent" => SAMPLED}).await;
    assert_eq!(collector.next().await.spans().len(), 6, "of the last one alone");
}

#[tokio::test]
async fn without_a_word_of_the_caller_the_configuration_decides_and_by_default_for_all() {
    let mut collector = Collector::new(&["200 OK"]).await;
    let hub = Hub::dev_with(&[("TRACING__OTLP_ENDPOINT", &collector.url())]);
    let (mut provider, mut caller) = pair(&hub).await;
    let call = traced(&mut caller, &mut provider, map! {}).await;
    let spans = collector.next().await.spans();
    let receive = named(&spans, "receive echo");
    assert!(receive.parent_span_id.is_empty(), "{receive:?}");
    let deliver = hex(&named(&spans, "deliver echo").span_id);
    assert_eq!(call.text("traceparent"), format!("00-{}-{deliver}-01", hex(&receive.trace_id)));
}

#[tokio::test]
async fn every_try_of_a_call_is_a_delivery_with_a_parent_of_its_own() {
    let mut collector = Collector::new(&["200 OK"]).await;
    let hub = Hub::dev_with(&[
        ("TRACING__OTLP_ENDPOINT", &collector.url()),
        ("CALLS__RETRY_BASE_MS", "1"),
        ("CALLS__RETRY_JITTER_MS", "0"),
    ]);
    let (mut provider, mut caller) = pair(&hub).await;
    let id = caller.call("echo", map! {"traceparent" => SAMPLED, "retries" => 1}, Value::Nil).await;
    let mut parents = Vec::new();
    let first = provider.taken().await;
    parents.push(first.text("traceparent").to_owned());
    provider.fail(&first, map! {"code" => "handler_error", "message" => "again", "retryable" => true}).await;
    let second = provider.echo().await;
    parents.push(second.text("traceparent").to_owned());
    caller.completed(id).await;
    let spans = collector.call().await;
    let deliveries = spans.iter().filter(|span| span.name == "deliver echo");
    let ids: Vec<String> = deliveries.map(|span| format!("00-{TRACE}-{}-01", hex(&span.span_id))).collect();
    assert_eq!(parents, ids);
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_collector_that_is_busy_gets_the_same_again() {
    let mut collector = Collector::new(&["503 Busy\r\nretry-after: 0", "200 OK"]).await;
    let hub = collector.hub();
    let (mut provider, mut caller) = pair(&hub).await;
    traced(&mut caller, &mut provider, map! {"traceparent" => SAMPLED}).await;
    let (first, second) = (collector.next().await, collector.next().await);
    assert_eq!(first.request, second.request);
    // What comes after it is sent when the hub knows that this was taken.
    traced(&mut caller, &mut provider, map! {"traceparent" => SAMPLED}).await;
    collector.next().await;
    assert!(counted(&hub, "agent_reach_spans_exported_total{outcome=\"overloaded\"} 0").await);
    let log = hub.log();
    assert_eq!(log.matches("traces cannot be exported").count(), 1, "{log}");
    assert_eq!(log.matches("traces are exported again").count(), 1, "{log}");
}

#[tokio::test]
async fn calls_go_on_while_a_collector_never_answers() {
    let mut collector = Collector::new(&[""]).await;
    let mut hub = Hub::dev_with(&[("TRACING__OTLP_ENDPOINT", &collector.url()), ("AGENTS__DRAIN_MS", "0")]);
    let (mut provider, mut caller) = pair(&hub).await;
    canary(&mut caller, &mut provider, "echo").await;
    collector.next().await;
    for _ in 0..200 {
        canary(&mut caller, &mut provider, "echo").await;
    }
    assert!(counted(&hub, "agent_reach_spans_dropped_total 0").await, "two hundred calls have room");
    drop((caller, provider));
    hub.terminate();
    assert!(hub.exited().success(), "and the end does not wait for it either");
    assert!(hub.log().contains("not all traces could be exported"), "{}", hub.log());
}

#[tokio::test]
async fn what_waits_for_its_export_is_sent_before_the_hub_ends() {
    let mut collector = Collector::new(&["200 OK"]).await;
    let mut hub = collector.hub();
    let (mut provider, mut caller) = pair(&hub).await;
    traced(&mut caller, &mut provider, map! {"traceparent" => SAMPLED}).await;
    hub.terminate();
    assert_eq!(collector.next().await.spans().len(), 6);
    caller.expect(kind::GOODBYE, "the drain").await;
    drop((caller, provider));
    assert!(hub.exited().success());
}

#[tokio::test]
async fn without_an_endpoint_nothing_is_traced_and_texts_go_through() {
    let hub = Hub::dev();
    let (mut provider, mut caller) = pair(&hub).await;
    let call =
        traced(&mut caller, &mut provider, map! {"traceparent" => SAMPLED, "tracestate" => "k=v"}).await;
    assert_eq!((call.text("traceparent"), call.text("tracestate")), (SAMPLED, "k=v"));
    assert!(counted(&hub, "agent_reach_spans_exported_total{outcome=\"completed\"} 0").await);
    assert!(counted(&hub, "agent_reach_spans_dropped_total 0").await);
}
