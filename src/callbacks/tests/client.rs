//! One delivery over real TLS.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustls::RootCertStore;
use tokio::net::TcpListener;

use super::super::client::{Limits, Resolve, system_resolver};
use super::super::{AllowedHosts, Client, Failure, Letter, Outcome, Post, allowed};
use super::hosts;
use super::receiver::{Authority, ENDLESS, Manner, Receiver};

fn letter() -> Letter {
    Letter {
        id: "task-1".into(),
        timestamp: 1_700_000_000,
        signature: "v1,abc v1,def".into(),
        body: "{\"a\":1}".into(),
    }
}

/// One that trusts nobody but this authority.
fn client(authority: &Authority, hosts: &AllowedHosts, resolve: Resolve, limits: Limits) -> Client {
    let roots = RootCertStore::empty();
    Client::build(hosts.clone(), roots, Some(&authority.ca()), resolve, limits).unwrap()
}

async fn post(client: &Client, hosts: &AllowedHosts, url: &str) -> Outcome {
    client.post(allowed(url, hosts).unwrap(), letter()).await
}

/// A delivery to a receiver of this manner on 127.0.0.1.
async fn to(manner: Manner) -> (Outcome, Receiver) {
    to_within(manner, Limits::DEFAULT).await
}

async fn to_within(manner: Manner, limits: Limits) -> (Outcome, Receiver) {
    let authority = Authority::new(&[]);
    let receiver = Receiver::new(&authority, "127.0.0.1", manner).await;
    let hosts = hosts(&["127.0.0.1"]);
    let client = client(&authority, &hosts, system_resolver, limits);
    (post(&client, &hosts, &receiver.url("127.0.0.1")).await, receiver)
}

#[tokio::test]
async fn a_delivery_is_one_post_with_the_headers_of_the_standard() {
    let (outcome, mut receiver) = to(Manner::status(204, "")).await;
    assert_eq!(outcome, Outcome::Delivered { status: 204 });
    let received = receiver.requests.recv().await.unwrap();
    let expected = [
        "POST /hook?x=1 HTTP/1.1".to_owned(),
        format!("host: 127.0.0.1:{}", receiver.address.port()),
        "content-type: application/json".to_owned(),
        format!("user-agent: agent-reach/{}", env!("CARGO_PKG_VERSION")),
        "connection: close".to_owned(),
        "webhook-id: task-1".to_owned(),
        "webhook-timestamp: 1700000000".to_owned(),
        "webhook-signature: v1,abc v1,def".to_owned(),
        "content-length: 7".to_owned(),
    ];
    assert_eq!(received.head, expected);
    assert_eq!(received.body, b"{\"a\":1}");
    assert!(receiver.requests.try_recv().is_err(), "it comes once");
}

#[tokio::test]
async fn the_status_and_retry_after_decide() {
    let status = |status| Outcome::Status { status, retry_after_ms: None };
    assert_eq!(to(Manner::status(410, "")).await.0, Outcome::Gone);
    assert_eq!(to(Manner::status(404, "")).await.0, status(404));
    assert_eq!(to(Manner::status(500, "retry-after: 9\r\n")).await.0, status(500));
    let busy = to(Manner::status(503, "retry-after: 9\r\n")).await.0;
    assert_eq!(busy, Outcome::Status { status: 503, retry_after_ms: Some(9_000) });
    // Ten seconds after the time of the letter.
    let date = "Retry-After: Tue, 14 Nov 2023 22:13:30 GMT\r\n";
    let busy = to(Manner::status(429, date)).await.0;
    assert_eq!(busy, Outcome::Status { status: 429, retry_after_ms: Some(10_000) });
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let authority = Authority::new(&[]);
    let mut inside = Receiver::new(&authority, "127.0.0.1", Manner::status(200, "")).await;
    let location = format!("location: {}\r\n", inside.url("127.0.0.1"));
    let hosts = hosts(&["localhost", "127.0.0.1"]);
    let client = client(&authority, &hosts, system_resolver, Limits::DEFAULT);
    for status in [301, 302, 303, 307, 308] {
        let receiver = Receiver::new(&authority, "127.0.0.1", Manner::status(status, &location)).await;
        let outcome = post(&client, &hosts, &receiver.url("localhost")).await;
        assert_eq!(outcome, Outcome::Status { status, retry_after_ms: None });
    }
    assert!(inside.requests.try_recv().is_err(), "nobody is sent elsewhere");
}

#[tokio::test]
async fn a_certificate_of_another_name_or_authority_gets_no_request() {
    let (own, other) = (Authority::new(&["DNS:a.example"]), Authority::new(&[]));
    let hosts = hosts(&["b.example", "127.0.0.1"]);
    let here: Resolve = |_, port| Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) });
    let mut receiver = Receiver::new(&own, "127.0.0.1", Manner::status(200, "")).await;
    let of_other_name = client(&own, &hosts, here, Limits::DEFAULT);
    let of_other_authority = client(&other, &hosts, here, Limits::DEFAULT);
    let table = [
        (of_other_name, "b.example", "not valid for name"),
        // Both authorities have the same name, so this one is found and did not sign it.
        (of_other_authority, "127.0.0.1", "BadSignature"),
    ];
    for (client, host, reason) in table {
        let outcome = post(&client, &hosts, &receiver.url(host)).await;
        let Outcome::Failed(Failure::Tls(text)) = outcome else { panic!("{outcome:?}") };
        assert!(text.contains(reason) && text.chars().count() <= 200, "{text}");
    }
    assert!(receiver.requests.try_recv().is_err(), "nothing is told to the wrong one");
}

/// Resolves every name to what clouds have their metadata at, to a neighbour, and to this machine.
fn inside(_: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
    let addresses = ["169.254.169.254", "10.0.0.1", "::ffff:192.168.0.1", "127.0.0.1"];
    Box::pin(async move { Ok(addresses.map(|text| SocketAddr::new(text.parse().unwrap(), port)).to_vec()) })
}

#[tokio::test]
async fn a_name_that_resolves_inside_is_blocked_before_anything_is_connected() {
    let authority = Authority::new(&["DNS:a.example"]);
    let hosts = hosts(&["a.example", "localhost"]);
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&authority, &hosts, inside, Limits::DEFAULT);
    let url = format!("https://a.example:{}/", socket.local_addr().unwrap().port());
    assert_eq!(post(&client, &hosts, &url).await, Outcome::Failed(Failure::Blocked));
    let knocked = futures_util::FutureExt::now_or_never(socket.accept());
    assert!(knocked.is_none(), "the inside sees no connection");
}

#[tokio::test]
async fn of_many_addresses_only_one_that_is_listed_is_connected_to_and_the_name_is_still_checked() {
    let authority = Authority::new(&["DNS:a.example"]);
    let hosts = hosts(&["a.example", "127.0.0.1"]);
    let mut receiver = Receiver::new(&authority, "127.0.0.1", Manner::status(200, "")).await;
    let client = client(&authority, &hosts, inside, Limits::DEFAULT);
    let outcome = post(&client, &hosts, &receiver.url("a.example")).await;
    assert_eq!(outcome, Outcome::Delivered { status: 200 });
    let received = receiver.requests.recv().await.unwrap();
    let host = format!("a.example:{}", receiver.address.port());
    assert_eq!(received.header("host"), Some(host.as_str()));
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_takes_no_connection() {
    let authority = Authority::new(&["DNS:a.example"]);
    let hosts = hosts(&["a.example", "127.0.0.1", "127.0.0.9"]);
    let receiver = Receiver::new(&authority, "127.0.0.1", Manner::status(200, "")).await;
    let both: Resolve = |_, port| {
        Box::pin(async move { Ok([9, 1].map(|last| SocketAddr::from(([127, 0, 0, last], port))).to_vec()) })
    };
    let client = client(&authority, &hosts, both, Limits::DEFAULT);
    let outcome = post(&client, &hosts, &receiver.url("a.example")).await;
    assert_eq!(outcome, Outcome::Delivered { status: 200 });
}

#[tokio::test]
async fn what_cannot_be_reached_says_why() {
    let authority = Authority::new(&[]);
    let hosts = hosts(&["a.example", "127.0.0.1"]);
    let nobody: Resolve = |_, _| Box::pin(async { Ok(vec![]) });
    let unknown = client(&authority, &hosts, nobody, Limits::DEFAULT);
    assert_eq!(post(&unknown, &hosts, "https://a.example/").await, Outcome::Failed(Failure::Resolve));
    let ill: Resolve = |_, _| Box::pin(async { Err(io::ErrorKind::Other.into()) });
    let unknown = client(&authority, &hosts, ill, Limits::DEFAULT);
    assert_eq!(post(&unknown, &hosts, "https://a.example/").await, Outcome::Failed(Failure::Resolve));

    // A port that was just given back.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let closed = client(&authority, &hosts, system_resolver, Limits::DEFAULT);
    let outcome = post(&closed, &hosts, &format!("https://127.0.0.1:{port}/")).await;
    assert_eq!(outcome, Outcome::Failed(Failure::Connect(io::ErrorKind::ConnectionRefused)));
}

#[tokio::test]
async fn a_receiver_that_says_nothing_is_given_up() {
    let limits = Limits { whole: Duration::from_millis(300), ..Limits::DEFAULT };
    for manner in [Manner::Silent, Manner::Deaf] {
        assert_eq!(to_within(manner, limits).await.0, Outcome::Failed(Failure::Timeout));
    }
    let never: Resolve = |_, _| Box::pin(std::future::pending());
    let limits = Limits { connect: Duration::from_millis(50), ..Limits::DEFAULT };
    let hosts = hosts(&["a.example"]);
    let client = client(&Authority::new(&[]), &hosts, never, limits);
    assert_eq!(post(&client, &hosts, "https://a.example/").await, Outcome::Failed(Failure::Timeout));
}

#[tokio::test]
async fn an_answer_has_bounds() {
    let padding = |bytes| format!("x: {}\r\n", "y".repeat(bytes));
    assert_eq!(to(Manner::status(200, &padding(8_000))).await.0, Outcome::Delivered { status: 200 });
    let many = "x: y\r\n".repeat(65);
    for headers in [padding(17_000), many] {
        let outcome = to(Manner::status(200, &headers)).await.0;
        assert!(matches!(outcome, Outcome::Failed(Failure::Http(_))), "{outcome:?}");
    }
    let (outcome, mut receiver) = to(Manner::Endless).await;
    assert_eq!(outcome, Outcome::Delivered { status: 200 });
    let written = receiver.written.recv().await.unwrap();
    assert!(written < ENDLESS, "a body without an end is not read");
}

#[tokio::test]
async fn what_is_no_http_is_no_answer() {
    for text in ["", "HTTP/1.1 200", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n"] {
        let outcome = to(Manner::Says(text.to_owned())).await.0;
        assert!(matches!(outcome, Outcome::Failed(Failure::Http(_))), "{text}: {outcome:?}");
    }
    // A body that ends early takes nothing from the status.
    let short = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx".to_owned();
    assert_eq!(to(Manner::Says(short)).await.0, Outcome::Delivered { status: 200 });
}
