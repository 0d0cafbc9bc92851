use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::routing::get;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::*;

/// A served router, until `stop`.
struct World {
    at: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

async fn serving(router: Router, options: ServeOptions) -> World {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(serve(listener, router, options, async { stopped.await.unwrap() }));
    World { at, stop, served }
}

impl World {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).await.unwrap()
    }

    async fn ask(&self, request: &str) -> String {
        whole(&mut self.connect().await, request).await
    }

    /// Shuts down, and fails when that does not end.
    async fn end(self) {
        self.stop.send(()).unwrap();
        soon(self.served).await.unwrap();
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(5), what).await.expect("within 5 s")
}

/// Sends, and reads until the end of the connection.
async fn whole<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

/// Reads until this is there, and leaves the connection open.
async fn until<S: AsyncRead + Unpin>(stream: &mut S, end: &str) -> String {
    let mut answer = Vec::new();
    soon(async {
        while !String::from_utf8_lossy(&answer).ends_with(end) {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "closed early");
        }
    })
    .await;
    String::from_utf8(answer).unwrap()
}

fn request(method: &str, path: &str, host: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

fn health(ready: bool, origins: &[&str]) -> Router {
    let origins: Vec<String> = origins.iter().map(|origin| (*origin).to_owned()).collect();
    listener_router(health_router(move || (!ready).then_some("draining")), AllowedHosts::new(&origins))
}

fn problem(answer: &str) -> serde_json::Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    serde_json::from_str(body).unwrap()
}

#[tokio::test]
async fn health_is_told_apart_from_readiness() {
    let ready = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&ready);
    let routes = health_router(move || (!asked.load(Ordering::SeqCst)).then_some("draining"));
    let world = serving(listener_router(routes, AllowedHosts::new(&[])), ServeOptions::default()).await;
    for (path, to, status, body) in [
        ("/healthz", true, "200 OK", "ok"),
        ("/readyz", true, "200 OK", "ready"),
        ("/readyz", false, "503 Service Unavailable", "draining"),
        ("/healthz", false, "200 OK", "ok"),
    ] {
        ready.store(to, Ordering::SeqCst);
        let answer = world.ask(&request("GET", path, "localhost")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{body}")) && answer.contains("no-store"), "{answer}");
    }
    world.end().await;
}

#[tokio::test]
async fn metrics_are_text_of_the_prometheus_format() {
    let world = serving(metrics_router(|| "a 1\n".to_owned()), ServeOptions::default()).await;
    let answer = world.ask(&request("GET", "/metrics", "prometheus.example:9464")).await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\na 1\n"), "{answer}");
    assert!(world.ask(&request("GET", "/", "x")).await.starts_with("HTTP/1.1 404 "));
    world.end().await;
}

#[tokio::test]
async fn a_scrape_that_fails_is_a_problem_and_not_an_end() {
    let world = serving(metrics_router(|| panic!("for the test")), ServeOptions::default()).await;
    for _ in 0..2 {
        let answer = world.ask(&request("GET", "/metrics", "x")).await;
        assert_eq!(problem(&answer)["code"], "internal");
    }
    world.end().await;
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problem_documents() {
    let world = serving(health(true, &[]), ServeOptions::default()).await;
    let answer = world.ask(&request("GET", "/nothing", "localhost")).await;
    let expected = serde_json::json!({
        "status": 404, "title": "Not Found", "code": "invalid_request",
        "detail": "there is nothing at /nothing", "retryable": false, "details": {},
    });
    assert_eq!(problem(&answer), expected);
    let answer = world.ask(&request("POST", "/healthz", "localhost")).await;
    assert_eq!(problem(&answer)["status"], 405);
    assert!(answer.contains("\r\nallow: GET,HEAD\r\n"), "{answer}");
    world.end().await;
}

#[tokio::test]
async fn a_host_that_is_not_ours_is_misdirected() {
    let origins = ["https://console.example.com", "https://hub.example.com:8443", "http://[fd00::1]:81"];
    let world = serving(health(true, &origins), ServeOptions::default()).await;
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST.:1", 200),
        ("127.0.0.1:7080", 200),
        ("127.9.9.9", 200),
        ("[::1]:7080", 200),
        ("console.example.com", 200),
        ("Console.Example.com:443", 200),
        ("console.example.com:7080", 421),
        ("hub.example.com:8443", 200),
        ("hub.example.com", 421),
        ("[fd00::1]:81", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("10.0.0.1", 421),
        ("user@localhost", 421),
        ("", 400),
        ("a b", 400),
    ] {
        let answer = world.ask(&request("GET", "/healthz", host)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
        assert!(status == 200 || problem(&answer)["status"] == status, "{host}: {answer}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_request_has_one_host_and_its_first_line_counts_too() {
    let world = serving(health(true, &[]), ServeOptions::default()).await;
    for (request, status) in [
        ("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nConnection: close\r\n\r\n", 400),
        ("GET http://evil/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 421),
        ("GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200),
    ] {
        let answer = world.ask(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    world.end().await;
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_shutdown() {
    // With a grace that no test would wait for: idle connections are closed at once, not cut off.
    let options = ServeOptions { grace: Duration::from_secs(600), ..ServeOptions::default() };
    let world = serving(health(true, &[]), options).await;
    let silent = world.connect().await;
    let mut idle = world.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    until(&mut idle, "\r\n\r\nok").await;
    world.end().await;
    assert_eq!(soon(idle.read(&mut [0])).await.unwrap(), 0);
    drop(silent);
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_off_after_the_grace() {
    let (entered, mut inside) = watch::channel(false);
    let stuck = move || {
        entered.send_replace(true);
        std::future::pending::<()>()
    };
    let options = ServeOptions { grace: Duration::from_millis(20), ..ServeOptions::default() };
    let world = serving(Router::new().route("/", get(stuck)), options).await;
    let mut client = world.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    soon(inside.wait_for(|inside| *inside)).await.unwrap();
    world.end().await;
    assert_eq!(soon(client.read(&mut [0])).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn an_open_request_is_answered_after_the_shutdown_began() {
    let (entered, mut inside) = watch::channel(false);
    let (go, gate) = watch::channel(false);
    let slow = async move || {
        entered.send_replace(true);
        let mut gate = gate.clone();
        gate.wait_for(|open| *open).await.unwrap();
        "done"
    };
    let options = ServeOptions { grace: Duration::from_secs(600), ..ServeOptions::default() };
    let world = serving(Router::new().route("/", get(slow)), options).await;
    let mut client = world.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    soon(inside.wait_for(|inside| *inside)).await.unwrap();
    world.stop.send(()).unwrap();
    // The listener is closed first, so the shutdown has begun when nobody new gets in.
    soon(async { while TcpStream::connect(world.at).await.is_ok() {} }).await;
    go.send_replace(true);
    let mut answer = String::new();
    soon(client.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.ends_with("\r\n\r\ndone"), "{answer}");
    soon(world.served).await.unwrap();
}

#[tokio::test]
async fn a_slow_head_ends_its_connection() {
    let options = ServeOptions { header_timeout: Duration::from_millis(50), ..ServeOptions::default() };
    let world = serving(health(true, &[]), options).await;
    let answer = world.ask("GET /healthz HTTP/1.1\r\nHost: lo").await;
    assert!(!answer.contains("200"), "{answer}");
    world.end().await;
}

#[tokio::test]
async fn past_the_bound_a_connection_waits_for_another_to_end() {
    let keep = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let options = ServeOptions { max_connections: 1, ..ServeOptions::default() };
    let world = serving(health(true, &[]), options).await;
    let mut first = world.connect().await;
    first.write_all(keep).await.unwrap();
    until(&mut first, "\r\n\r\nok").await;
    let mut second = world.connect().await;
    second.write_all(request("GET", "/healthz", "localhost").as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = second.read_to_string(&mut answer);
    tokio::pin!(read);
    // A round trip on the first: had the second been let in, its answer could have come by now.
    first.write_all(keep).await.unwrap();
    tokio::select! {
        biased;
        _ = &mut read => panic!("let in past the bound"),
        _ = until(&mut first, "\r\n\r\nok") => {}
    }
    drop(first);
    soon(read).await.unwrap();
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    world.end().await;
}

#[tokio::test]
async fn a_head_over_the_bound_is_refused() {
    let world = serving(health(true, &[]), ServeOptions::default()).await;
    let long = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nx: {}\r\n\r\n", "a".repeat(40_000));
    let mut client = world.connect().await;
    let mut start = [0; 12];
    client.write_all(long.as_bytes()).await.unwrap();
    soon(client.read_exact(&mut start)).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 431");
    world.end().await;
}

#[tokio::test]
async fn with_a_certificate_it_speaks_tls_and_takes_a_new_one_for_new_connections() {
    let certs = tempfile::tempdir().unwrap();
    crate::certs::init(certs.path(), &[]).unwrap();
    let at = |name: &str| certs.path().join(name);
    let config = || crate::transport::tls::http_server_config(&at("hub.pem"), &at("hub-key.pem")).unwrap();
    let (renew, tls) = watch::channel(config());
    let world = serving(health(true, &[]), ServeOptions { tls: Some(tls), ..ServeOptions::default() }).await;
    let client =
        crate::transport::tls::client_config(&at("ca.pem"), &at("hub.pem"), &at("hub-key.pem")).unwrap();
    for _ in 0..2 {
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&client));
        let name = "localhost".try_into().unwrap();
        let mut stream = soon(connector.connect(name, world.connect().await)).await.unwrap();
        let answer = whole(&mut stream, &request("GET", "/healthz", "localhost")).await;
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        renew.send_replace(config());
    }
    // One that speaks no TLS takes nothing down.
    let mut plain = world.connect().await;
    plain.write_all(request("GET", "/healthz", "localhost").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    soon(plain.read_to_end(&mut answer)).await.unwrap_or(0);
    assert!(!answer.starts_with(b"HTTP"));
    world.end().await;
}
