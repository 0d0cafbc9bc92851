//! Worker and client, with receivers on real sockets.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::RootCertStore;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::super::client::{Limits, system_resolver};
use super::super::{Bounds, Client, Schedule, Secrets, Worker};
use super::memory::Memory;
use super::receiver::{Authority, Manner, Received, Receiver};
use super::{SECRET, hosts, task};

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// What a receiver does: recomputes the signature.
fn is_signed(received: &Received) -> bool {
    let secret = BASE64.decode(SECRET.trim().strip_prefix("whsec_").unwrap()).unwrap();
    let header = |name| received.header(name).unwrap();
    let mut signed = format!("{}.{}.", header("webhook-id"), header("webhook-timestamp")).into_bytes();
    signed.extend_from_slice(&received.body);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), &signed);
    header("webhook-signature") == format!("v1,{}", BASE64.encode(tag))
}

#[tokio::test]
async fn two_hundred_webhooks_reach_nine_receivers_while_the_tenth_never_answers() {
    let ips: Vec<String> = (1..=10).map(|last| format!("127.0.0.{last}")).collect();
    let names: Vec<&str> = ips.iter().map(String::as_str).collect();
    let sans: Vec<String> = ips.iter().map(|ip| format!("IP:{ip}")).collect();
    let authority = Authority::new(&sans.iter().map(String::as_str).collect::<Vec<_>>());
    let mut receivers = Vec::new();
    for (at, ip) in ips.iter().enumerate() {
        let manner = if at == 0 { Manner::Silent } else { Manner::status(200, "") };
        receivers.push(Receiver::new(&authority, ip, manner).await);
    }
    let book = Memory::new(&names);
    for number in 0..200 {
        let at = number % 10;
        book.add(task(number), &receivers[at].url(&ips[at]), 0);
    }
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), SECRET).unwrap();
    let (roots, ca) = (RootCertStore::empty(), authority.ca());
    // The silent one is not given up within this test.
    let limits = Limits { whole: Duration::from_secs(600), ..Limits::DEFAULT };
    let (words, mut ended) = mpsc::channel(1_000);
    let worker = Worker {
        book: Arc::clone(&book),
        post: Arc::new(Client::build(hosts(&names), roots, Some(&ca), system_resolver, limits).unwrap()),
        hosts: hosts(&names),
        secrets: Secrets::load(secret.path()).unwrap(),
        schedule: Schedule::new(&[60_000]),
        bounds: Bounds::default(),
        now_ms: Arc::new(now_ms),
        ended: Arc::new(move |word| words.try_send(word).unwrap()),
        wake: Arc::new(Notify::new()),
    };
    let worker = tokio::spawn(worker.run());
    let all = timeout(Duration::from_secs(60), book.has_tried(180)).await;
    let tried = all.expect("nobody waits for the silent one");
    worker.abort();
    assert!(tried.iter().all(|tried| tried.outcome == "HTTP 200" && tried.attempt == 1), "{tried:?}");
    assert_eq!((tried.len(), book.open()), (180, 20));
    for receiver in &mut receivers[1..] {
        for _ in 0..20 {
            let received = receiver.requests.recv().await.unwrap();
            assert!(is_signed(&received));
            let body: Value = serde_json::from_slice(&received.body).unwrap();
            assert_eq!((&body["status"], &body["result"]), (&json!("completed"), &json!(7)));
            assert_eq!(body["task_id"].as_str(), received.header("webhook-id"));
        }
        assert!(receiver.requests.try_recv().is_err());
    }
    for _ in 0..180 {
        assert_eq!(ended.recv().await, Some("completed"));
    }
}
