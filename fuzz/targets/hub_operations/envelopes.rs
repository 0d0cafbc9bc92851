//! Envelopes as an agent writes them, by hand: the typed headers could not say half of what is wrong.

use agent_reach_protocol::Kind;
use agent_reach_protocol::codec::Writer;
use bytes::Bytes;

use super::script::Script;

pub(crate) const CAPABILITIES: [&str; 6] = ["a", "a.b", "b", "c", "Shouted_Name", "hub.mine"];
const ASKED: [&str; 17] = [
    "a",
    "a.b",
    "b",
    "also-a",
    "c",
    "Shouted_Name",
    "",
    "nobody",
    "hub.agents.list",
    "hub.capabilities.list",
    "hub.calls.list",
    "hub.events.watch",
    "hub.traces.get",
    "hub.stats",
    "hub.agents.disconnect",
    "hub.agents.drain",
    "hub.config.reload",
];
pub(crate) const AGENTS: [&str; 3] = ["one", "two", "three"];
const REQUESTS: [&str; 3] = ["r1", "r2", "r3"];
const TIMES: [u64; 7] = [0, 1, 100, 1000, 5000, 60_000, u64::MAX];
const BODIES: [usize; 5] = [0, 3, 300, 5000, 40_000];

/// A header, key by key.
pub(crate) struct Keys {
    out: Writer,
    count: usize,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self { out: Writer::with_capacity(64), count: 0 }
    }

    fn key(&mut self, key: &str) -> &mut Writer {
        self.count += 1;
        self.out.str(key);
        &mut self.out
    }

    pub(crate) fn uint(&mut self, key: &str, value: u64) {
        self.key(key).uint(value);
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.key(key).str(value);
    }

    fn flag(&mut self, key: &str) {
        self.key(key).bool(true);
    }

    fn list(&mut self, key: &str, items: &[&str]) {
        let out = self.key(key);
        out.array(items.len());
        items.iter().for_each(|item| out.str(item));
    }

    fn maps(&mut self, key: &str, items: Vec<Self>) {
        let out = self.key(key);
        out.array(items.len());
        items.into_iter().for_each(|item| out.raw(&item.map()));
    }

    fn map(self) -> Vec<u8> {
        let mut whole = Writer::with_capacity(64);
        whole.map(self.count);
        whole.raw(&self.out.into_bytes());
        whole.into_bytes()
    }

    /// The whole message.
    pub(crate) fn message(self, kind: Kind, body: Option<&[u8]>) -> Bytes {
        let mut whole = Writer::with_capacity(128);
        whole.array(3);
        whole.uint(kind.number());
        whole.raw(&self.map());
        match body {
            Some(body) => whole.bin(body),
            None => whole.nil(),
        }
        whole.into_bytes().into()
    }
}

fn body(script: &mut Script<'_>) -> Option<Vec<u8>> {
    let length = script.maybe(&BODIES)?;
    Some(vec![script.byte(); length])
}

fn capability(script: &mut Script<'_>, name: &str) -> Keys {
    let mut keys = Keys::new();
    keys.text("name", name);
    let choices = script.byte();
    if choices & 1 != 0 {
        keys.uint("timeout_ms", script.pick(&TIMES));
    }
    if choices & 2 != 0 {
        keys.flag("idempotent");
    }
    if choices & 4 != 0 {
        keys.list("aliases", &[script.pick(&ASKED), script.pick(&CAPABILITIES)]);
    }
    if choices & 8 != 0 {
        keys.uint("qps_limit", script.pick(&[0, 1, 100]));
    }
    if choices & 16 != 0 {
        keys.text("version", script.pick(&["1.0.0", "2.1.0", "no version"]));
    }
    keys
}

fn capabilities(script: &mut Script<'_>) -> Vec<Keys> {
    let chosen = script.byte();
    let names = CAPABILITIES.iter().enumerate().filter(|(at, _)| chosen & (1 << at) != 0);
    names.map(|(_, name)| capability(script, name)).collect()
}

fn load(script: &mut Script<'_>) -> Keys {
    let mut keys = Keys::new();
    for key in ["in_flight", "queued", "cpu", "health"] {
        if let Some(value) = script.maybe(&[0, 1, 50, 100, 101]) {
            keys.uint(key, value);
        }
    }
    keys
}

fn status_and_load(script: &mut Script<'_>, keys: &mut Keys) {
    if let Some(status) = script.maybe(&["ready", "degraded", "draining"]) {
        keys.text("status", status);
    }
    if script.maybe(&[()]).is_some() {
        let load = load(script).map();
        keys.key("load").raw(&load);
    }
}

pub(crate) fn hello(script: &mut Script<'_>, own: &str) -> Bytes {
    let mut keys = Keys::new();
    keys.uint("v", script.pick(&[1, 1, 1, 1, 1, 1, 1, 2]));
    keys.text("agent_id", script.maybe(&AGENTS).filter(|_| script.byte() > 200).unwrap_or(own));
    keys.text("instance", script.pick(&["life-1", "life-2"]));
    let offered = capabilities(script);
    keys.maps("capabilities", offered);
    if let Some(slots) = script.maybe(&[0, 1, 2, 50, u64::MAX]) {
        keys.uint("max_concurrency", slots);
    }
    if let Some(calls) = script.maybe(&["*", "a", "a.*", "hub.*", "*.wrong"]) {
        keys.list("calls", &[calls]);
    }
    status_and_load(script, &mut keys);
    keys.message(Kind::Hello, None)
}

pub(crate) fn update(script: &mut Script<'_>) -> Bytes {
    let mut keys = Keys::new();
    status_and_load(script, &mut keys);
    if script.maybe(&[()]).is_some() {
        let added = capabilities(script);
        keys.maps("add", added);
    }
    if script.maybe(&[()]).is_some() {
        keys.list("remove", &[script.pick(&CAPABILITIES)]);
    }
    keys.message(Kind::Update, None)
}

pub(crate) fn call(script: &mut Script<'_>) -> Bytes {
    let mut keys = Keys::new();
    keys.uint("id", script.pick(&[1, 2, 3, 4, 5, 6, 7, 8, u64::MAX]));
    keys.text("capability", script.pick(&ASKED));
    let choices = script.byte();
    if choices & 1 != 0 {
        keys.text("request_id", script.pick(&REQUESTS));
    }
    if choices & 2 != 0 {
        keys.text("mode", script.pick(&["notify", "call", "task"]));
    }
    if choices & 4 != 0 {
        keys.flag("stream");
        keys.uint("credit", script.pick(&[0, 1, 3, 1000, u64::MAX]));
    }
    match script.pick(&[0, 1, 2, 3]) {
        1 => keys.text("select", "all"),
        2 => keys.uint("select", script.pick(&[1, 2, 3])),
        _ => {}
    }
    if choices & 8 != 0 {
        keys.list("agents", &[script.pick(&AGENTS), script.pick(&AGENTS)]);
    }
    if choices & 16 != 0 {
        for key in ["accept_timeout_ms", "timeout_ms", "budget_ms", "wait_ms", "keep_ms"] {
            if let Some(value) = script.maybe(&TIMES) {
                keys.uint(key, value);
            }
        }
    }
    if choices & 32 != 0 {
        keys.text("policy", script.pick(&["random", "round_robin", "least_loaded"]));
        keys.text("affinity_key", script.pick(&["k1", "k2"]));
    }
    if choices & 64 != 0 {
        keys.uint("retries", script.pick(&[0, 1, 3]));
        keys.flag("allow_fallback");
        keys.text("x-own", script.pick(&["v", ""]));
    }
    if choices & 128 != 0 {
        keys.text("version", script.pick(&["^1", ">=2", "what"]));
    }
    // What waits, and for how long: of the bits above, so that what was found keeps its meaning.
    match choices & 12 {
        0 => {}
        4 => keys.text("priority", "low"),
        8 => keys.text("priority", "high"),
        _ => keys.text("priority", "normal"),
    }
    if choices & 3 == 3 {
        keys.key("queue").bool(false);
    }
    if choices & 65 == 65 {
        keys.uint("allow_cached_ms", 5000);
    }
    let body = body(script);
    keys.message(Kind::Call, body.as_deref())
}

pub(crate) fn accept(script: &mut Script<'_>, id: u64) -> Bytes {
    let mut keys = Keys::new();
    keys.uint("id", id);
    if let Some(wait) = script.maybe(&TIMES) {
        keys.flag("would_timeout");
        keys.uint("wait_ms", wait);
    }
    keys.message(Kind::Accept, None)
}

pub(crate) fn chunk(script: &mut Script<'_>, id: u64) -> Bytes {
    let mut keys = Keys::new();
    keys.uint("id", id);
    keys.uint("seq", script.pick(&[0, 1, 2, 3, 4, u64::MAX]));
    let body = body(script);
    keys.message(Kind::Chunk, body.as_deref())
}

pub(crate) fn result(script: &mut Script<'_>, id: u64) -> Bytes {
    let mut keys = Keys::new();
    keys.uint("id", id);
    let status = script.pick(&["completed", "failed", "no_instance"]);
    keys.text("status", status);
    if status != "completed" {
        let mut error = Keys::new();
        error.text(
            "code",
            script.pick(&["handler_error", "overloaded", "cancelled", "unsupported", "own_code"]),
        );
        error.text("message", "it went wrong");
        if script.maybe(&[()]).is_some() {
            error.flag("retryable");
        }
        let error = error.map();
        keys.key("error").raw(&error);
    }
    if script.maybe(&[()]).is_some() {
        keys.text("x-own", "carried");
    }
    let body = body(script);
    keys.message(Kind::Result, body.as_deref())
}

pub(crate) fn cancel(script: &mut Script<'_>, id: u64) -> Bytes {
    let mut keys = Keys::new();
    keys.uint("id", id);
    if script.maybe(&[()]).is_some() {
        keys.flag("wait");
    }
    keys.message(Kind::Cancel, None)
}

pub(crate) fn credit(script: &mut Script<'_>, id: u64) -> Bytes {
    let mut keys = Keys::new();
    keys.uint("id", id);
    keys.uint("n", script.pick(&[1, 0, 16, u64::MAX]));
    if let Some(target) = script.maybe(&AGENTS) {
        keys.text("target", target);
    }
    keys.message(Kind::Credit, None)
}

pub(crate) fn goodbye() -> Bytes {
    let mut keys = Keys::new();
    keys.text("code", "normal");
    keys.message(Kind::Goodbye, None)
}

pub(crate) fn receipt() -> Bytes {
    let mut keys = Keys::new();
    keys.text("task_id", "t1");
    keys.message(Kind::Receipt, None)
}
