//! An agent as the protocol wants it: reconnects, asks again what is open, and never runs a request twice.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::limits::{CONNECT_PATH, SUBPROTOCOL_MSGPACK};
use futures_util::{SinkExt, StreamExt};
use rmpv::Value;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::{WebSocketStream, client_async};
use turmoil::net::TcpStream;

use crate::envelope::{ACCEPT, CALL, CHUNK, ERROR, Envelope, GOODBYE, HELLO, RESULT, WELCOME, map};
use crate::world::{HUB, KEEP_MS, PORT, settings};

type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// How often an agent looks at what is to be done.
const LOOK: Duration = Duration::from_millis(20);
/// How long a connection may take to come about.
const DIAL: Duration = Duration::from_secs(3);
/// The least time from one connection to the next.
const AGAIN: Duration = Duration::from_millis(150);
/// Pieces of a streamed result.
pub(crate) const CHUNKS: u64 = 5;

/// One agent.
#[derive(Debug)]
pub(crate) struct Agent {
    name: &'static str,
    tls: Tls,
    provides: Option<Provided>,
    state: RefCell<State>,
}

struct Tls(Arc<ClientConfig>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}

#[derive(Clone, Copy, Debug)]
struct Provided {
    capability: &'static str,
    takes: Duration,
}

/// What an agent remembers, whatever becomes of its connections.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// How many sessions it has had.
    pub(crate) sessions: u64,
    /// Whether it has one, as far as it knows.
    in_session: bool,
    /// What it asked for, in order.
    pub(crate) asked: Vec<Asked>,
    /// What it was asked for, by request id.
    works: BTreeMap<String, Work>,
    /// Codes of the GOODBYEs it heard.
    pub(crate) goodbyes: Vec<String>,
    /// What must not be.
    faults: Vec<String>,
    last_id: u64,
}

/// A call of this agent's.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    keys: Vec<(Value, Value)>,
    /// Its id in this session, once it was sent there.
    id: Option<u64>,
    times: u64,
    pub(crate) accepted: bool,
    chunks: u64,
    at: Option<Instant>,
    pub(crate) end: Option<End>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// `completed`, or the code of the error.
    pub(crate) outcome: String,
    /// Since it was first asked for.
    pub(crate) after: Duration,
}

/// What a provider does, or has done. It takes no notice of a CANCEL: what has begun is done once, to its end.
#[derive(Debug)]
struct Work {
    /// The hub's id of the call that it was begun for.
    call_id: String,
    /// The hub's id for it in this session.
    id: Option<u64>,
    due: Instant,
    stream: bool,
    answered: bool,
}

/// A connection that is no good any more.
#[derive(Debug)]
struct Lost;

impl Agent {
    pub(crate) fn new(name: &'static str, tls: Arc<ClientConfig>) -> Self {
        Self { name, tls: Tls(tls), provides: None, state: RefCell::default() }
    }

    /// Offers a capability that is not idempotent, and works on each call for so long.
    pub(crate) fn providing(mut self, capability: &'static str, takes: Duration) -> Self {
        self.provides = Some(Provided { capability, takes });
        self
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn state(&self) -> Ref<'_, State> {
        self.state.borrow()
    }

    pub(crate) fn has_session(&self) -> bool {
        self.state().in_session
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.state().faults.clone()
    }

    /// Asks for something as soon as there is a session. Gives the call's number.
    pub(crate) fn ask<const N: usize>(&self, capability: &str, keys: [(&str, Value); N]) -> usize {
        let mut state = self.state.borrow_mut();
        let number = state.asked.len();
        let mut all = vec![("capability".into(), capability.into()), ("keep_ms".into(), KEEP_MS.into())];
        all.extend(keys.into_iter().map(|(key, value)| (key.into(), value)));
        all.push(("request_id".into(), format!("{}-{number}", self.name).into()));
        state.asked.push(Asked { keys: all, ..Asked::default() });
        number
    }

    /// How a call ended.
    pub(crate) fn end(&self, number: usize) -> Option<End> {
        self.state().asked.get(number).and_then(|asked| asked.end.clone())
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.state().asked.iter().all(|asked| asked.end.is_some())
    }

    /// How its calls ended, in the order in which they were asked for.
    pub(crate) fn outcomes(&self) -> Vec<String> {
        let outcome = |asked: &Asked| asked.end.as_ref().map_or("open", |end| &end.outcome).to_owned();
        self.state().asked.iter().map(outcome).collect()
    }

    /// Every request that was run here, and the call that it was run for.
    pub(crate) fn runs(&self) -> Vec<(String, String)> {
        self.state()
            .works
            .iter()
            .map(|(request_id, work)| (request_id.clone(), work.call_id.clone()))
            .collect()
    }

    /// How often it asked for a request.
    pub(crate) fn times_asked(&self, request_id: &str) -> Option<u64> {
        let state = self.state();
        let number = request_id.strip_prefix(self.name)?.strip_prefix('-')?.parse::<usize>().ok()?;
        state.asked.get(number).map(|asked| asked.times)
    }

    /// Lives as long as its host.
    pub(crate) async fn run(self: Rc<Self>) -> turmoil::Result {
        let mut again = interval(AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            again.tick().await;
            if let Ok(Ok(socket)) = timeout(DIAL, self.dial()).await {
                let Err(Lost) = self.converse(socket).await;
            }
            let mut state = self.state.borrow_mut();
            state.in_session = false;
            state.asked.iter_mut().for_each(|asked| asked.id = None);
            state.works.values_mut().for_each(|work| work.id = None);
        }
    }

    async fn dial(&self) -> Result<Socket, Lost> {
        let tcp = TcpStream::connect((HUB, PORT)).await.map_err(|_| Lost)?;
        let name = ServerName::try_from(HUB).expect("a name");
        let stream =
            TlsConnector::from(Arc::clone(&self.tls.0)).connect(name, tcp).await.map_err(|_| Lost)?;
        let mut request = format!("wss://{HUB}:{PORT}{CONNECT_PATH}").into_client_request().expect("a URL");
        let subprotocol = HeaderValue::from_static(SUBPROTOCOL_MSGPACK);
        request.headers_mut().insert("sec-websocket-protocol", subprotocol);
        client_async(request, stream).await.map(|(socket, _)| socket).map_err(|_| Lost)
    }

    /// Talks until the connection is lost, which a silence of the hub's is as well.
    async fn converse(&self, mut socket: Socket) -> Result<std::convert::Infallible, Lost> {
        // Earlier than the hub, which settles the calls of whoever is silent for `gone_ms`: the way back takes time.
        let silence = Duration::from_millis(settings().suspect_ms.midpoint(settings().gone_ms));
        let keepalive = Duration::from_millis(settings().keepalive_ms);
        let mut outbox = vec![Message::Binary(self.hello().bytes().into())];
        let mut heard = Instant::now();
        let mut spoke = heard;
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if !outbox.is_empty() {
                spoke = Instant::now();
                let all = async {
                    for message in outbox.drain(..) {
                        socket.feed(message).await?;
                    }
                    socket.flush().await
                };
                timeout(silence, all).await.map_err(|_| Lost)?.map_err(|_| Lost)?;
            }
            tokio::select! {
                biased;
                message = timeout_at(heard + silence, socket.next()) => {
                    heard = Instant::now();
                    match message {
                        Ok(Some(Ok(Message::Binary(bytes)))) => {
                            let answer = self.hear(&Envelope::read(&bytes))?;
                            outbox.extend(answer.map(|answer| Message::Binary(answer.bytes().into())));
                        }
                        Ok(Some(Ok(_))) => {}
                        _ => return Err(Lost),
                    }
                }
                _ = look.tick() => {
                    let due = self.due();
                    outbox.extend(due.iter().map(|envelope| Message::Binary(envelope.bytes().into())));
                    // Half of it, so that what is on its way makes no silence.
                    if outbox.is_empty() && spoke.elapsed() > keepalive / 2 {
                        outbox.push(Message::Ping(Vec::new().into()));
                    }
                }
            }
        }
    }

    fn hello(&self) -> Envelope {
        let capabilities = self.provides.map(|it| map([("name", it.capability.into())]));
        Envelope::new(
            HELLO,
            [
                ("v", 1.into()),
                ("agent_id", self.name.into()),
                ("instance", format!("{}'s only life", self.name).into()),
                ("capabilities", Value::Array(capabilities.into_iter().collect())),
            ],
        )
    }

    fn hear(&self, envelope: &Envelope) -> Result<Option<Envelope>, Lost> {
        let mut state = self.state.borrow_mut();
        match envelope.kind {
            WELCOME => {
                state.sessions += 1;
                state.in_session = true;
            }
            GOODBYE => {
                state.goodbyes.push(envelope.text("code"));
                return Err(Lost);
            }
            CALL => return Ok(self.provides.map(|provided| state.take(provided, envelope))),
            ACCEPT | CHUNK | RESULT => state.answered(envelope),
            ERROR => state.faults.push(format!("{envelope:?}")),
            _ => {}
        }
        Ok(None)
    }

    /// What is to be sent now: calls that this session has not seen, and work that is done.
    fn due(&self) -> Vec<Envelope> {
        let mut state = self.state.borrow_mut();
        if !state.in_session {
            return Vec::new();
        }
        let State { asked, works, last_id, .. } = &mut *state;
        let mut due = Vec::new();
        for call in asked.iter_mut().filter(|call| call.end.is_none() && call.id.is_none()) {
            *last_id += 1;
            call.id = Some(*last_id);
            call.times += 1;
            call.at.get_or_insert_with(Instant::now);
            let mut keys = call.keys.clone();
            keys.push(("id".into(), (*last_id).into()));
            due.push(Envelope { kind: CALL, header: Value::Map(keys) });
        }
        for work in works.values_mut().filter(|work| !work.answered && work.due <= Instant::now()) {
            let Some(id) = work.id else { continue };
            work.answered = true;
            let chunks = if work.stream { CHUNKS } else { 0 };
            let chunk = |seq: u64| Envelope::new(CHUNK, [("id", id.into()), ("seq", seq.into())]);
            due.extend((0..chunks).map(chunk));
            due.push(Envelope::new(RESULT, [("id", id.into()), ("status", "completed".into())]));
        }
        due
    }
}

impl State {
    fn take(&mut self, provided: Provided, call: &Envelope) -> Envelope {
        let id = call.number("id").expect("an id");
        let work = self.works.entry(call.text("request_id")).or_insert_with(|| Work {
            call_id: call.text("call_id"),
            id: None,
            due: Instant::now() + provided.takes,
            stream: call.get("stream").and_then(Value::as_bool).unwrap_or_default(),
            answered: false,
        });
        work.id = Some(id);
        // The hub asks again because it has not heard the end, if there was one.
        work.answered = false;
        Envelope::new(ACCEPT, [("id", id.into())])
    }

    fn answered(&mut self, answer: &Envelope) {
        let Some(id) = answer.number("id") else {
            self.faults.push(format!("an answer without id: {answer:?}"));
            return;
        };
        let Some(call) = self.asked.iter_mut().find(|call| call.id == Some(id)) else {
            self.faults.push(format!("an answer to nothing: {answer:?}"));
            return;
        };
        if call.end.is_some() {
            self.faults.push(format!("an answer behind the end: {answer:?}"));
            return;
        }
        match answer.kind {
            ACCEPT => call.accepted = true,
            CHUNK => {
                if answer.number("seq") != Some(call.chunks) {
                    self.faults.push(format!("a chunk out of order: {answer:?}"));
                }
                call.chunks += 1;
            }
            _ => {
                let outcome = answer.error().unwrap_or_else(|| answer.text("status"));
                let streamed = call.keys.iter().any(|(key, _)| key.as_str() == Some("stream"));
                if outcome == "completed" && streamed && call.chunks != CHUNKS {
                    self.faults.push(format!("{} of {CHUNKS} chunks: {answer:?}", call.chunks));
                }
                let after = call.at.map(|at| at.elapsed()).unwrap_or_default();
                call.end = Some(End { outcome, after });
            }
        }
    }
}
