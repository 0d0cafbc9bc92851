//! What agents say, in words: HELLO and CALL as callers do, ACCEPT, CHUNK and RESULT as providers do.

use std::sync::atomic::{AtomicU64, Ordering};

use rmpv::Value;

use super::client::RawClient;
use super::kind;
use super::value::{Envelope, merged};

static INSTANCES: AtomicU64 = AtomicU64::new(1);

/// An `instance` that no other agent of this test run has.
pub(crate) fn instance() -> String {
    format!("instance-{}-{}", std::process::id(), INSTANCES.fetch_add(1, Ordering::Relaxed))
}

impl RawClient {
    /// Sends HELLO under the own name, with `extra` keys in place of the usual ones.
    pub(crate) async fn hello(&mut self, capabilities: &[&str], extra: Value) {
        let capabilities = capabilities.iter().map(|name| map! {"name" => *name}).collect::<Vec<_>>();
        let hello = map! {
            "v" => 1,
            "agent_id" => self.name.as_str(),
            "instance" => instance(),
            "capabilities" => capabilities,
        };
        self.send(kind::HELLO, merged(hello, extra), Value::Nil).await;
    }

    /// The WELCOME that must come next.
    pub(crate) async fn welcome(&mut self) -> Envelope {
        self.expect(kind::WELCOME, "WELCOME").await
    }

    /// Sends UPDATE.
    pub(crate) async fn update(&mut self, header: Value) {
        self.send(kind::UPDATE, header, Value::Nil).await;
    }

    /// The next id for a CALL of this side.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Sends a CALL without retries and with `extra` keys; its id.
    pub(crate) async fn call(&mut self, capability: &str, extra: Value, body: Value) -> u64 {
        let id = self.next_id();
        let header = map! {"id" => id, "capability" => capability, "retries" => 0};
        self.send(kind::CALL, merged(header, extra), body).await;
        id
    }

    /// Cancels a call of this side.
    pub(crate) async fn cancel(&mut self, id: u64) {
        self.send(kind::CANCEL, map! {"id" => id, "reason" => "changed my mind"}, Value::Nil).await;
    }

    /// Grants `n` more chunks.
    pub(crate) async fn credit(&mut self, id: u64, n: u64) {
        self.send(kind::CREDIT, map! {"id" => id, "n" => n}, Value::Nil).await;
    }

    /// The RESULT of `id`, which must come next.
    pub(crate) async fn result(&mut self, id: u64) -> Envelope {
        let result = self.expect(kind::RESULT, &format!("RESULT of {id}")).await;
        assert_eq!(result.uint("id"), id, "{result:?}");
        result
    }

    /// The RESULT of `id` with `status: "completed"`, which must come next.
    pub(crate) async fn completed(&mut self, id: u64) -> Envelope {
        let result = self.result(id).await;
        assert_eq!(result.text("status"), "completed", "{result:?}");
        result
    }

    /// The RESULT of `id` that failed with `code`, which must come next.
    pub(crate) async fn failed(&mut self, id: u64, code: &str) -> Envelope {
        let result = self.result(id).await;
        let status = if code == "no_instance" { "no_instance" } else { "failed" };
        assert_eq!((result.text("status"), result.code()), (status, code), "{result:?}");
        assert!(result.get("error")["message"].is_str(), "an error has a message: {result:?}");
        result
    }

    /// The RESULT that answers `id` with `invalid_request` about `field`, which must come next.
    pub(crate) async fn invalid(&mut self, id: u64, field: &str) {
        let result = self.failed(id, "invalid_request").await;
        assert_eq!(result.details()["field"].as_str(), Some(field), "{result:?}");
        assert!(!result.retryable(), "{result:?}");
    }

    /// The ACCEPT of `id`, which must come next.
    pub(crate) async fn accepted(&mut self, id: u64) -> Envelope {
        let accept = self.expect(kind::ACCEPT, &format!("ACCEPT of {id}")).await;
        assert_eq!(accept.uint("id"), id, "{accept:?}");
        accept
    }

    /// The chunk `seq` of `id`, which must come next.
    pub(crate) async fn chunk_of(&mut self, id: u64, seq: u64) -> Envelope {
        let chunk = self.expect(kind::CHUNK, &format!("CHUNK {seq} of {id}")).await;
        assert_eq!((chunk.uint("id"), chunk.uint("seq")), (id, seq), "{chunk:?}");
        chunk
    }

    /// As a provider: the CALL that must come next.
    pub(crate) async fn taken(&mut self) -> Envelope {
        self.expect(kind::CALL, "a CALL to provide").await
    }

    /// As a provider: the CANCEL of `call`, which must come next.
    pub(crate) async fn cancelled(&mut self, call: &Envelope) {
        let cancel = self.expect(kind::CANCEL, "CANCEL").await;
        assert_eq!(cancel.uint("id"), call.uint("id"), "{cancel:?}");
    }

    /// As a provider: accepts `call`.
    pub(crate) async fn accept(&mut self, call: &Envelope) {
        self.accept_with(call, map! {}).await;
    }

    /// As a provider: accepts `call` with these further keys.
    pub(crate) async fn accept_with(&mut self, call: &Envelope, extra: Value) {
        self.send(kind::ACCEPT, merged(map! {"id" => call.uint("id")}, extra), Value::Nil).await;
    }

    /// As a provider: sends one chunk of `call`.
    pub(crate) async fn chunk(&mut self, call: &Envelope, seq: u64, body: Value) {
        self.send(kind::CHUNK, map! {"id" => call.uint("id"), "seq" => seq}, body).await;
    }

    /// As a provider: completes `call`.
    pub(crate) async fn complete(&mut self, call: &Envelope, body: Value) {
        self.send(kind::RESULT, map! {"id" => call.uint("id"), "status" => "completed"}, body).await;
    }

    /// As a provider: fails `call` with this error.
    pub(crate) async fn fail(&mut self, call: &Envelope, error: Value) {
        let header = map! {"id" => call.uint("id"), "status" => "failed", "error" => error};
        self.send(kind::RESULT, header, Value::Nil).await;
    }

    /// As a provider: takes the next CALL and answers it with its own body.
    pub(crate) async fn echo(&mut self) -> Envelope {
        let call = self.taken().await;
        self.complete(&call, call.body.clone()).await;
        call
    }

    /// Everything that this side has sent is handled, and the hub had nothing to say to it before: the answer to a
    /// call that the hub answers itself is the next envelope.
    pub(crate) async fn fence(&mut self) {
        let before = self.until_fence().await;
        assert!(before.is_empty(), "{} was sent {before:?}", self.name);
    }

    /// The envelopes that come before the answer to a call that the hub answers itself.
    pub(crate) async fn until_fence(&mut self) -> Vec<Envelope> {
        let id = self.call("hub.stats", map! {}, Value::Nil).await;
        let mut before = Vec::new();
        loop {
            let envelope = self.envelope("the answer of hub.stats").await;
            if envelope.kind == kind::RESULT && envelope.uint("id") == id {
                assert_eq!(envelope.text("status"), "completed", "{envelope:?}");
                return before;
            }
            before.push(envelope);
        }
    }

    /// Lets the time of the hub pass: a call to a provider that never accepts ends after `ms`. The provider reads
    /// nothing, so that its slots must not run out.
    pub(crate) async fn hub_time(&mut self, silent: &str, ms: u64) {
        let id = self.call(silent, map! {"accept_timeout_ms" => ms}, Value::Nil).await;
        self.failed(id, "accept_timeout").await;
    }
}

/// One call from `caller` that `provider` echoes: both connections and the hub between them are sound.
pub(crate) async fn canary(caller: &mut RawClient, provider: &mut RawClient, capability: &str) {
    let id = caller.call(capability, map! {}, Value::from("canary")).await;
    provider.echo().await;
    assert_eq!(caller.completed(id).await.content(), Value::from("canary"));
}
