//! The whole SDK but the network, against a hub made of envelopes over an in-memory WebSocket. Time is
//! paused: what waits for a timer gets it at once.

mod tls;

use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::limits::SUBPROTOCOL_MSGPACK;
use agent_reach_protocol::{
    Accept, CallMode, CallResult, Chunk as WireChunk, Credit, Dispatch, Goodbye, Granted, Header, Labels,
    Private, ResultStatus, ToHub, Welcome, decode_to_hub, encode,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{SinkExt, StreamExt};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

use crate::transport::{Dial, Io};
use crate::*;

/// Hands the other end of each new connection to the test.
struct InMemory(mpsc::Sender<DuplexStream>);

impl Dial for InMemory {
    fn dial(&self) -> BoxFuture<'_, Result<Box<dyn Io>, ConnectError>> {
        Box::pin(async {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            self.0.send(theirs).await.map_err(|_| ConnectError::Io("nobody listens".to_owned()))?;
            Ok(Box::new(ours) as Box<dyn Io>)
        })
    }
}

type Connections = mpsc::Receiver<DuplexStream>;

/// The hub's end of one connection.
struct Hub(WebSocketStream<Box<dyn Io>>);

impl Hub {
    async fn accept(connections: &mut Connections) -> Self {
        Self::upgrade(Box::new(connections.recv().await.unwrap())).await
    }

    #[expect(clippy::result_large_err, reason = "the library's callback")]
    async fn upgrade(stream: Box<dyn Io>) -> Self {
        let answer = |request: &Request, mut response: Response| {
            assert_eq!(request.uri().path(), "/v1/connect");
            let protocol = HeaderValue::from_static(SUBPROTOCOL_MSGPACK);
            response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
            Ok(response)
        };
        Self(accept_hdr_async(stream, answer).await.unwrap())
    }

    /// Accepts and welcomes.
    async fn session(connections: &mut Connections) -> Self {
        let mut hub = Self::accept(connections).await;
        hub.welcome().await;
        hub
    }

    async fn welcome(&mut self) {
        let hello = self.read().await;
        assert!(matches!(decode_to_hub(&hello, None).unwrap().0, ToHub::Hello(_)));
        let granted = Granted { provide: vec![], call: vec![] };
        let welcome = Welcome {
            session: "s",
            hub: "h",
            features: vec![],
            keepalive_ms: 5000,
            suspect_ms: 15_000,
            gone_ms: 30_000,
            max_message: 1 << 20,
            max_in_flight: 100,
            granted,
            warnings: vec![],
            replaced: false,
        };
        self.send(&welcome, None).await;
    }

    async fn send<'a, H: Header<'a>>(&mut self, header: &H, body: Option<&[u8]>) {
        self.0.send(Message::Binary(encode(header, body))).await.unwrap();
    }

    /// The next envelope that is no heartbeat.
    async fn read(&mut self) -> Bytes {
        loop {
            if let Message::Binary(bytes) = self.0.next().await.unwrap().unwrap()
                && !matches!(decode_to_hub(&bytes, None).unwrap().0, ToHub::Update(_))
            {
                return bytes;
            }
        }
    }

    async fn end(&mut self, id: u64, body: &[u8]) {
        self.send(&result(id), Some(body)).await;
    }
}

macro_rules! read {
    ($hub:expr, $kind:ident, |$header:ident, $body:ident| $use:expr) => {{
        let message = $hub.read().await;
        match decode_to_hub(&message, None).unwrap() {
            (ToHub::$kind($header), $body) => $use,
            other => panic!("{other:?}"),
        }
    }};
}

fn result(id: u64) -> CallResult<'static> {
    CallResult {
        id: Some(id),
        status: ResultStatus::Completed,
        request_id: None,
        call_id: Some("c"),
        target: Some("p"),
        task_id: None,
        execution_ms: None,
        attempts: vec![],
        route: None,
        cached: false,
        duplicate: false,
        error: None,
        more: false,
        summary: None,
        content_type: None,
        private: Private::default(),
    }
}

fn dispatch(id: u64, request_id: &'static str, stream: Option<u64>) -> Dispatch<'static> {
    Dispatch {
        id,
        request_id,
        call_id: "c",
        capability: "x",
        caller: "them",
        attempt: 1,
        deadline_ms: 60_000,
        preferred_timeout_ms: None,
        stream: stream.is_some(),
        credit: stream,
        mode: CallMode::Call,
        priority: Priority::Normal,
        labels: Labels::default(),
        traceparent: None,
        tracestate: None,
        content_type: None,
        task_id: None,
        private: Private::default(),
    }
}

fn msgpack(value: impl serde::Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(&value).unwrap()
}

fn builder() -> (AgentBuilder, Connections) {
    let (sender, connections) = mpsc::channel(1);
    // One runtime for all: paused time would run ahead of a thread that it does not know.
    let runtime = tokio::runtime::Handle::current();
    let builder = Agent::builder("ws://hub", "a").connection_runtime(runtime);
    (builder.dial(Arc::new(InMemory(sender))), connections)
}

async fn connected(builder: AgentBuilder, connections: &mut Connections) -> (Agent, Hub) {
    let (agent, hub) = tokio::join!(builder.connect(), Hub::session(connections));
    (agent.unwrap(), hub)
}

#[tokio::test(start_paused = true)]
async fn a_call_shows_phase_one_and_then_its_typed_result() {
    let (builder, mut connections) = builder();
    let (agent, mut hub) = connected(builder, &mut connections).await;
    let mut pending = agent.call::<String>("text_Upper", "hello").start().await.unwrap();
    let id = read!(hub, Call, |call, body| {
        assert_eq!((call.capability, body.as_deref()), ("text-upper", Some(&msgpack("hello")[..])));
        call.id
    });
    let accept = Accept {
        id,
        queue_depth: Some(3),
        would_timeout: false,
        wait_ms: None,
        request_id: None,
        call_id: Some("c"),
        target: Some("p"),
        attempt: Some(1),
        task_id: None,
        private: Private::default(),
    };
    hub.send(&accept, None).await;
    let acceptance = pending.accepted().await.unwrap().unwrap();
    assert_eq!((acceptance.target.as_deref(), acceptance.queue_depth), (Some("p"), Some(3)));
    hub.end(id, &msgpack("HELLO")).await;
    assert_eq!(pending.result().await.unwrap(), "HELLO");
}

#[tokio::test(start_paused = true)]
async fn dropping_a_pending_call_cancels_it() {
    let (builder, mut connections) = builder();
    let (agent, mut hub) = connected(builder, &mut connections).await;
    let pending = agent.call::<()>("y", ()).start().await.unwrap();
    let id = read!(hub, Call, |call, _body| call.id);
    drop(pending);
    read!(hub, Cancel, |cancel, _body| assert_eq!(cancel.id, id));
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_the_connection_took_it_is_never_made() {
    let (builder, mut connections) = builder();
    let (agent, mut hub) = connected(builder, &mut connections).await;
    drop(agent.call::<()>("dropped", ()).start().await.unwrap());
    let _kept = agent.call::<()>("kept", ()).start().await.unwrap();
    read!(hub, Call, |call, _body| assert_eq!(call.capability, "kept"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_grants_half_a_window_as_it_is_read_and_has_its_end() {
    let (builder, mut connections) = builder();
    let (agent, mut hub) = connected(builder, &mut connections).await;
    let mut stream = agent.call::<String>("y", ()).window(4).stream::<u64>().await.unwrap();
    let id = read!(hub, Call, |call, _body| {
        assert_eq!((call.stream, call.credit), (true, Some(4)));
        call.id
    });
    for seq in 0..4 {
        let header = WireChunk { id, seq, target: None, content_type: None, private: Private::default() };
        hub.send(&header, Some(&msgpack(seq))).await;
    }
    for seq in 0..2 {
        assert_eq!(stream.next().await.unwrap().unwrap().body, seq);
    }
    read!(hub, Credit, |credit, _body| assert_eq!((credit.id, credit.n), (id, 2)));
    hub.end(id, &msgpack("end")).await;
    for seq in 2..4 {
        assert_eq!(stream.next().await.unwrap().unwrap().body, seq);
    }
    assert_eq!(stream.next().await, None);
    assert_eq!(stream.end().await.unwrap().body, "end");
}

#[tokio::test(start_paused = true)]
async fn open_calls_survive_a_lost_connection_under_the_same_request_id() {
    let (builder, mut connections) = builder();
    let (agent, mut hub) = connected(builder, &mut connections).await;
    let pending = agent.call::<u8>("y", ()).start().await.unwrap();
    let first = read!(hub, Call, |call, _body| call.request_id.unwrap().to_owned());
    drop(hub);
    let mut hub = Hub::session(&mut connections).await;
    let (id, again) = read!(hub, Call, |call, _body| (call.id, call.request_id.unwrap().to_owned()));
    assert_eq!(first, again);
    hub.end(id, &msgpack(7)).await;
    assert_eq!(pending.result().await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_handler_answers_with_its_type_and_a_wrong_body_fails_that_call_only() {
    let (builder, mut connections) = builder();
    let builder = builder.capability("x", |_: Context, n: u64| async move { Ok(n + 1) });
    let (_agent, mut hub) = connected(builder, &mut connections).await;
    hub.send(&dispatch(1, "bad", None), Some(&msgpack("text"))).await;
    read!(hub, Result, |header, _body| {
        assert_eq!((header.id, header.error.unwrap().code), (Some(1), "invalid_request"));
    });
    hub.send(&dispatch(2, "good", None), Some(&msgpack(1))).await;
    read!(hub, Result, |header, body| {
        assert_eq!((header.id, body.as_deref()), (Some(2), Some(&msgpack(2)[..])));
    });
}

#[tokio::test(start_paused = true)]
async fn a_handlers_failure_and_panic_become_handler_errors() {
    let (builder, mut connections) = builder();
    let builder = builder.capability("x", |_: Context, panic: bool| async move {
        assert!(!panic, "as asked");
        Err::<(), _>(HandlerError::new("no-stock", "sold out").retryable())
    });
    let (_agent, mut hub) = connected(builder, &mut connections).await;
    hub.send(&dispatch(1, "a", None), Some(&msgpack(false))).await;
    read!(hub, Result, |header, _body| {
        let error = header.error.unwrap();
        assert_eq!((error.code, error.message, error.retryable), ("handler_error", "sold out", true));
        let details: std::collections::BTreeMap<String, String> =
            rmp_serde::from_slice(error.details.unwrap().0).unwrap();
        assert_eq!(details["code"], "no-stock");
    });
    hub.send(&dispatch(2, "b", None), Some(&msgpack(true))).await;
    read!(hub, Result, |header, _body| assert_eq!(header.error.unwrap().message, "the handler panicked"));
}

#[tokio::test(start_paused = true)]
async fn emit_waits_for_credit_and_the_end_comes_last() {
    let (builder, mut connections) = builder();
    let builder = builder.capability("x", |ctx: Context, (): ()| async move {
        for n in 0..3_u64 {
            ctx.emit(n).await?;
        }
        Ok("end")
    });
    let (_agent, mut hub) = connected(builder, &mut connections).await;
    hub.send(&dispatch(1, "r", Some(2)), None).await;
    for seq in 0..2 {
        read!(hub, Chunk, |chunk, _body| assert_eq!(chunk.seq, seq));
    }
    hub.send(&Credit { id: 1, n: 1, target: None }, None).await;
    read!(hub, Chunk, |chunk, _body| assert_eq!(chunk.seq, 2));
    read!(hub, Result, |header, body| {
        assert_eq!((header.status, body.as_deref()), (ResultStatus::Completed, Some(&msgpack("end")[..])));
    });
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_handler_is_told_and_the_hub_learns_of_its_end() {
    let (builder, mut connections) = builder();
    let builder = builder.capability("x", |ctx: Context, (): ()| async move {
        ctx.cancelled().await;
        Err::<(), _>(HandlerError::new("stopped", "stopped"))
    });
    let (_agent, mut hub) = connected(builder, &mut connections).await;
    hub.send(&dispatch(1, "r", None), None).await;
    read!(hub, Accept, |accept, _body| assert_eq!(accept.id, 1));
    hub.send(&agent_reach_protocol::Cancel { id: 1, reason: None, wait: false }, None).await;
    read!(hub, Result, |header, _body| assert_eq!(header.error.unwrap().code, "cancelled"));
}

#[tokio::test(start_paused = true)]
async fn a_final_refusal_fails_connect_and_says_why() {
    let (builder, mut connections) = builder();
    let refuse = async {
        let mut hub = Hub::accept(&mut connections).await;
        hub.read().await;
        let goodbye = Goodbye { code: "unauthorized", reason: Some("not you"), reconnect_after_ms: None };
        hub.send(&goodbye, None).await;
        hub
    };
    let (agent, _hub) = tokio::join!(builder.connect(), refuse);
    let expected = ConnectError::Refused { code: "unauthorized".to_owned(), reason: "not you".to_owned() };
    assert_eq!(agent.unwrap_err(), expected);
}

#[tokio::test(start_paused = true)]
async fn connect_gives_up_after_its_time_and_names_the_last_failure() {
    let (builder, connections) = builder();
    drop(connections);
    let error = builder.connect_timeout(Duration::from_secs(20)).connect().await.unwrap_err();
    assert_eq!(error, ConnectError::Timeout { last: "io: nobody listens".to_owned() });
}

#[tokio::test(start_paused = true)]
async fn every_open_call_ends_when_the_agent_is_replaced() {
    let (builder, mut connections) = builder();
    let (agent, mut hub) = connected(builder, &mut connections).await;
    let mut pending = Vec::new();
    for _ in 0..50 {
        pending.push(agent.call::<()>("y", ()).start().await.unwrap());
    }
    let goodbye = Goodbye { code: "replaced", reason: None, reconnect_after_ms: None };
    hub.send(&goodbye, None).await;
    for call in pending {
        assert_eq!(call.result().await.unwrap_err().code, Code::Closed);
    }
    assert!(matches!(agent.closed().await, CloseReason::Goodbye { .. }));
    assert_eq!(agent.call::<()>("y", ()).await.unwrap_err().accepted, Accepted::No);
}

#[tokio::test(start_paused = true)]
async fn close_lets_a_handler_end_and_says_goodbye() {
    let (builder, mut connections) = builder();
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = Arc::clone(&gate);
    let builder = builder.capability("x", move |_: Context, (): ()| {
        let gate = Arc::clone(&opened);
        async move {
            gate.notified().await;
            Ok(())
        }
    });
    let (agent, mut hub) = connected(builder, &mut connections).await;
    hub.send(&dispatch(1, "r", None), None).await;
    read!(hub, Accept, |accept, _body| assert_eq!(accept.id, 1));
    let closing = agent.clone();
    let closed = tokio::spawn(async move { closing.close().await });
    gate.notify_one();
    read!(hub, Result, |header, _body| assert_eq!(header.status, ResultStatus::Completed));
    read!(hub, Goodbye, |goodbye, _body| assert_eq!(goodbye.code, "normal"));
    assert!(
        matches!(hub.0.next().await, Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) == 1000)
    );
    drop(hub);
    assert_eq!(closed.await.unwrap(), CloseReason::Closed);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_closes_the_agent() {
    let (builder, mut connections) = builder();
    let (agent, mut hub) = connected(builder, &mut connections).await;
    drop(agent);
    read!(hub, Goodbye, |goodbye, _body| assert_eq!(goodbye.code, "normal"));
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_answers_a_ping_at_once() {
    let (builder, mut connections) = builder();
    let (_agent, mut hub) = connected(builder, &mut connections).await;
    hub.0.send(Message::Ping(Bytes::from_static(b"ping"))).await.unwrap();
    let before = tokio::time::Instant::now();
    assert_eq!(hub.0.next().await.unwrap().unwrap(), Message::Pong(Bytes::from_static(b"ping")));
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_never_yields_its_call_does_not_hold_up_heartbeats() {
    let (builder, mut connections) = builder();
    let builder = builder.capability("x", |_: Context, (): ()| std::future::pending::<Result<(), _>>());
    let (_agent, mut hub) = connected(builder, &mut connections).await;
    hub.send(&dispatch(1, "r", None), None).await;
    let mut updates = 0;
    while updates < 10 {
        let Message::Binary(bytes) = hub.0.next().await.unwrap().unwrap() else { continue };
        if let ToHub::Update(update) = decode_to_hub(&bytes, None).unwrap().0 {
            assert_eq!(update.load.unwrap().in_flight, Some(1));
            updates += 1;
            hub.0.send(Message::Ping(Bytes::new())).await.unwrap();
        }
    }
}

#[tokio::test]
async fn mistakes_in_the_configuration_are_found_before_dialling() {
    let config =
        |builder: AgentBuilder| async { matches!(builder.connect().await, Err(ConnectError::Config(_))) };
    assert!(config(Agent::builder("https://hub", "a")).await);
    assert!(config(Agent::builder("wss://hub", "a")).await);
    assert!(config(Agent::builder("ws://hub", "a b")).await);
    assert!(config(Agent::builder("ws://hub", "a").calls(["text-*"])).await);
    let nothing = |_: Context, (): ()| async { Ok(()) };
    assert!(config(Agent::builder("ws://hub", "a").capability("hub.x", nothing)).await);
    assert!(config(Agent::builder("ws://hub", "a").capability("a..b", nothing)).await);
}
