//! Where results of tasks go beside their caller, and what becomes of tasks while the disk is ill: the whole hub, with a
//! real receiver and a real database.
#![cfg(test)]

#[macro_use]
mod raw;

use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use raw::client::RawClient;
use raw::{Hub, hub, kind};
use rmpv::Value;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

/// A webhook as it came.
#[derive(Debug)]
struct Received {
    head: String,
    body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        raw::http::field(&self.head, name).unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }

    /// What a receiver does: recomputes the signature.
    fn is_signed(&self) -> bool {
        let secret = BASE64.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
        let mut signed =
            format!("{}.{}.", self.header("webhook-id"), self.header("webhook-timestamp")).into_bytes();
        signed.extend_from_slice(&self.body);
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), &signed);
        self.header("webhook-signature") == format!("v1,{}", BASE64.encode(tag))
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// An HTTPS server that answers its requests with these statuses, the last one for ever.
struct Receiver {
    address: SocketAddr,
    ca: String,
    requests: mpsc::Receiver<Received>,
}

impl Receiver {
    async fn new(statuses: &'static [u16]) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config =
            config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, requests) = mpsc::channel(100);
        tokio::spawn(async move {
            for turn in 0_usize.. {
                let (socket, _) = listener.accept().await.unwrap();
                let mut stream = acceptor.accept(socket).await.unwrap();
                let received = request(&mut stream).await;
                let status = statuses[turn.min(statuses.len() - 1)];
                let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                let (Ok(()) | Err(_)) = stream.shutdown().await;
                if tell.send(received).await.is_err() {
                    return;
                }
            }
        });
        Self { address, ca: made.cert.pem(), requests }
    }

    async fn next(&mut self) -> Received {
        raw::within("a webhook", self.requests.recv()).await.expect("the receiver is there")
    }
}

async fn request(stream: &mut (impl AsyncReadExt + Unpin)) -> Received {
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length: usize = raw::http::field(&head, "content-length").unwrap().parse().unwrap();
            if bytes.len() >= end + 4 + length {
                return Received { head, body: bytes[end + 4..].to_vec() };
            }
        }
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "a whole request");
    }
}

/// A hub that may call 127.0.0.1, and tries again after these pauses in milliseconds.
fn hub_that_calls(receiver: &Receiver, schedule_ms: &str) -> (Hub, tempfile::TempDir) {
    let files = tempfile::tempdir().unwrap();
    let at = |name: &str| files.path().join(name);
    std::fs::write(at("secret"), format!("{SECRET}\n")).unwrap();
    std::fs::write(at("ca.pem"), &receiver.ca).unwrap();
    let config = format!(
        "[callbacks]\nallowed_hosts = [\"127.0.0.1\"]\nsecret_file = {:?}\nca = {:?}\nschedule_ms = {schedule_ms}\n",
        at("secret"),
        at("ca.pem"),
    );
    (Hub::serve(hub::OPEN, &config), files)
}

/// Submits a task whose result goes to the receiver; its name.
async fn submit(caller: &mut RawClient, receiver: &Receiver, request_id: &str) -> String {
    let url = format!("https://127.0.0.1:{}/hook", receiver.address.port());
    let extra = map! {"mode" => "task", "request_id" => request_id, "callback_url" => url.as_str()};
    let id = caller.call("work", extra, Value::from(7)).await;
    caller.accepted(id).await.text("task_id").to_owned()
}

async fn work(worker: &mut RawClient) {
    let call = worker.taken().await;
    worker.complete(&call, map! {"answer" => 42}).await;
}

#[tokio::test]
async fn a_result_is_posted_signed_and_again_until_the_receiver_takes_it() {
    let mut receiver = Receiver::new(&[500, 204]).await;
    let (hub, _files) = hub_that_calls(&receiver, "[20, 20, 20, 20]");
    let mut caller = hub.agent("caller", &[]).await;
    let mut worker = hub.agent("worker", &["work"]).await;
    let task_id = submit(&mut caller, &receiver, "r").await;
    work(&mut worker).await;
    let (first, second) = (receiver.next().await, receiver.next().await);
    for received in [&first, &second] {
        assert!(received.head.starts_with("POST /hook HTTP/1.1\r\n"), "{}", received.head);
        assert!(received.is_signed(), "{received:?}");
        assert_eq!(received.header("webhook-id"), task_id);
        let json = received.json();
        assert_eq!((&json["task_id"], &json["status"]), (&task_id.as_str().into(), &"completed".into()));
        assert_eq!(json["result"], serde_json::json!({"answer": 42}));
    }
    assert_eq!(caller.expect(kind::RESULT, "the result").await.text("task_id"), task_id);
    // The next task's webhook is the next one there is: the first was taken.
    let other = submit(&mut caller, &receiver, "s").await;
    work(&mut worker).await;
    assert_eq!(receiver.next().await.header("webhook-id"), other);
}

#[tokio::test]
async fn a_webhook_that_failed_is_tried_again_after_a_restart_of_the_hub() {
    let mut receiver = Receiver::new(&[503, 200]).await;
    let (mut hub, _files) = hub_that_calls(&receiver, "[1500, 1500, 1500, 1500]");
    let mut caller = hub.agent("caller", &[]).await;
    let mut worker = hub.agent("worker", &["work"]).await;
    let task_id = submit(&mut caller, &receiver, "r").await;
    work(&mut worker).await;
    assert_eq!(receiver.next().await.header("webhook-id"), task_id);
    hub.kill_and_start_again();
    let again = receiver.next().await;
    assert_eq!(again.header("webhook-id"), task_id);
    assert!(again.is_signed());
}

#[tokio::test]
async fn while_the_store_is_locked_calls_go_on_tasks_are_refused_and_the_hub_says_so() {
    let hub = Hub::dev();
    let mut caller = hub.agent("caller", &[]).await;
    let mut worker = hub.agent("worker", &["work"]).await;
    let store = rusqlite::Connection::open(hub.dir().join("agent-reach.db")).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The first is refused when the wait for the lock is over, and the next at once.
    for request_id in ["a", "b"] {
        let extra = map! {"mode" => "task", "request_id" => request_id};
        let id = caller.call("work", extra, Value::Nil).await;
        let refused = caller.failed(id, "overloaded").await;
        assert!(refused.retryable() && refused.details()["retry_after_ms"].is_u64(), "{refused:?}");
    }
    assert_eq!(raw::http::get(hub.http(), "/readyz").await.status, 503);
    let page = raw::http::get(hub.metrics(), "/metrics").await.body;
    assert!(page.contains("agent_reach_store_writable 0\n"), "{page}");
    assert!(hub.log().contains("the store cannot be written"));
    raw::peer::canary(&mut caller, &mut worker, "work").await;
    store.execute_batch("ROLLBACK").unwrap();
    // Refusals are retryable: a caller comes again until the hub has found out.
    let accepted = raw::within("a task that is accepted", async {
        loop {
            let id = caller.call("work", map! {"mode" => "task", "request_id" => "a"}, Value::Nil).await;
            let answer = caller.envelope("ACCEPT or a refusal").await;
            assert_eq!(answer.uint("id"), id);
            if answer.kind == kind::ACCEPT {
                return answer;
            }
        }
    });
    assert!(!accepted.await.text("task_id").is_empty());
    assert_eq!(raw::http::get(hub.http(), "/readyz").await.status, 200);
}

#[tokio::test]
async fn every_call_task_and_refusal_leaves_a_record() {
    let mut hub = Hub::dev();
    let mut caller = hub.agent("caller", &[]).await;
    let mut worker = hub.agent("worker", &["work"]).await;
    let id = caller.call("work", map! {"request_id" => "a call"}, Value::Nil).await;
    worker.echo().await;
    caller.completed(id).await;
    let extra = map! {"mode" => "task", "request_id" => "a task"};
    let id = caller.call("work", extra, Value::Nil).await;
    let task_id = caller.accepted(id).await.text("task_id").to_owned();
    work(&mut worker).await;
    caller.completed(id).await;
    let id = caller.call("nothing", map! {"request_id" => "refused"}, Value::Nil).await;
    caller.failed(id, "no_capability").await;
    hub.terminate();
    assert!(hub.exited().success());
    let path = hub.dir().join("agent-reach.db").display().to_string();
    let export = raw::certs::run(&["store", "export", "--path", &path]);
    let records: Vec<serde_json::Value> = export
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|line| line.get("record").cloned())
        .collect();
    let of = |request_id: &str| {
        let found = records.iter().find(|record| record["request_id"] == request_id);
        found.unwrap_or_else(|| panic!("no record of {request_id:?} in {records:?}"))
    };
    let words = |record: &serde_json::Value| {
        ["caller", "target", "capability", "mode", "outcome"]
            .map(|key| record[key].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(words(of("a call")), ["caller", "worker", "work", "call", "completed"]);
    assert_eq!(words(of("a task")), ["caller", "worker", "work", "task", "completed"]);
    assert_eq!(words(of("refused")), ["caller", "", "nothing", "call", "no_capability"]);
    assert_eq!(of("a task")["task"], task_id.as_str());
    assert_eq!(of("a call")["attempts"], 1);
    assert!(of("a call")["started_ms"].as_u64().unwrap() <= of("a call")["ended_ms"].as_u64().unwrap());
}
