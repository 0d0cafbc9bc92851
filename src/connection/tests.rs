//! Connections over a pair of pipes, with time that stands still unless everybody waits.

use std::sync::Arc;
use std::time::Duration;

use agent_reach_core::{Fact, Peer, Policy, Settings};
use agent_reach_protocol::codec::Writer;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::{Connection, Encoding, LAST_TAKE_WAIT};
use crate::driver::{Driver, Observer};
use crate::transport::wire::Plain;

struct Nobody;

impl Observer for Nobody {
    fn facts(&self, _: &[Fact]) {}
    fn reload(&self, _: u64) {}
    fn hop(&self, _: Duration) {}
}

const MAX_MESSAGE: usize = 64 * 1024;

fn driver() -> Arc<Driver> {
    let settings = Settings { outbound_bytes: 64 * 1024, max_message: MAX_MESSAGE, ..Settings::default() };
    Driver::new(settings, Policy::open(), Arc::new(Nobody))
}

/// A client of the hub, and the task of its connection.
async fn connect(driver: &Arc<Driver>, name: &str) -> (WebSocketStream<DuplexStream>, JoinHandle<()>) {
    connect_for(driver, name, None).await
}

/// The same, with a certificate that is good for so long.
async fn connect_for(
    driver: &Arc<Driver>,
    name: &str,
    valid_for: Option<Duration>,
) -> (WebSocketStream<DuplexStream>, JoinHandle<()>) {
    let (client, server) = duplex(4096);
    let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    let id = driver.connect(Peer { identity: name.into(), name: name.into() }, valid_for);
    let connection =
        Connection::new(Plain::new(server), Arc::clone(driver), id, Encoding::MessagePack, MAX_MESSAGE);
    (client, tokio::spawn(connection))
}

fn hello(name: &str) -> Message {
    let mut out = Writer::default();
    out.array(2);
    out.uint(1);
    out.map(3);
    out.str("v");
    out.uint(1);
    out.str("agent_id");
    out.str(name);
    out.str("instance");
    out.str("life");
    Message::Binary(out.into_bytes().into())
}

fn stats(id: u64) -> Message {
    let mut out = Writer::default();
    out.array(2);
    out.uint(10);
    out.map(2);
    out.str("id");
    out.uint(id);
    out.str("capability");
    out.str("hub.stats");
    Message::Binary(out.into_bytes().into())
}

/// Reads up to the close; its code.
async fn close_code(client: &mut WebSocketStream<DuplexStream>) -> u16 {
    loop {
        match client.next().await {
            Some(Ok(Message::Close(frame))) => return frame.unwrap().code.into(),
            Some(Ok(_)) => {}
            other => panic!("no close: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_its_certificate_does() {
    let driver = driver();
    let time = tokio::spawn(Arc::clone(&driver).keep_time());
    let valid_for = Duration::from_secs(10);
    let (mut client, task) = connect_for(&driver, "expiring", Some(valid_for)).await;
    client.send(hello("expiring")).await.unwrap();
    let started = Instant::now();
    assert_eq!(close_code(&mut client).await, 4004, "credentials_expired");
    assert!(started.elapsed() >= valid_for && started.elapsed() < valid_for * 2, "{:?}", started.elapsed());
    drop(client);
    task.await.unwrap();
    time.abort();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_is_gone_after_gone_ms() {
    let driver = driver();
    let time = tokio::spawn(Arc::clone(&driver).keep_time());
    let (mut client, task) = connect(&driver, "silent").await;
    client.send(hello("silent")).await.unwrap();
    let started = Instant::now();
    // It does not read, so it does not answer the ping either.
    task.await.unwrap();
    let gone = Duration::from_millis(Settings::default().gone_ms);
    assert!(started.elapsed() >= gone && started.elapsed() < gone * 2, "{:?}", started.elapsed());
    drop(client);
    time.abort();
}

#[tokio::test(start_paused = true)]
async fn a_peer_whose_bytes_come_slowly_is_alive_while_its_message_is_not_whole() {
    let driver = driver();
    let time = tokio::spawn(Arc::clone(&driver).keep_time());
    let (mut client, task) = connect_raw(&driver);
    let Message::Binary(hello) = hello("raw") else { unreachable!() };
    client.write_all(&[0x82, 0x80 | u8::try_from(hello.len()).unwrap(), 0, 0, 0, 0]).await.unwrap();
    client.write_all(&hello).await.unwrap();
    // One frame of 200 bytes, a byte each second: three minutes, six times gone_ms.
    client.write_all(&[0x82, 0xfe, 0, 200, 0, 0, 0, 0]).await.unwrap();
    let mut due = tokio::time::interval(Duration::from_secs(1));
    for _ in 0..199 {
        due.tick().await;
        client.write_all(&[0]).await.unwrap();
        assert_eq!(driver.figures().1.agents_suspect, 0);
    }
    assert_eq!(driver.figures().1.agents_ready, 1);
    drop(client);
    task.await.unwrap();
    time.abort();
}

#[tokio::test(start_paused = true)]
async fn a_message_behind_more_small_frames_than_are_read_at_once_is_heard() {
    let driver = driver();
    let (mut client, task) = connect_raw(&driver);
    let masked = |first: u8, payload: &[u8]| {
        let length = 0x80 | u8::try_from(payload.len()).unwrap();
        [&[first, length, 0, 0, 0, 0], payload].concat()
    };
    // Six bytes each: some hundreds fit into the pipe, and come with one read.
    client.write_all(&masked(0x8a, &[]).repeat(3000)).await.unwrap();
    let Message::Binary(hello) = hello("raw") else { unreachable!() };
    client.write_all(&masked(0x82, &hello)).await.unwrap();
    // The head of the frame of WELCOME.
    assert_eq!(client.read_u8().await.unwrap(), 0x82);
    assert_eq!(driver.figures().1.agents_ready, 1);
    drop(client);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_takes_its_goodbye_is_dropped_in_a_bounded_time() {
    let driver = driver();
    let (mut client, task) = connect(&driver, "frozen").await;
    client.send(hello("frozen")).await.unwrap();
    let started = Instant::now();
    // Answers pile up unread until the outbound queue is full: a slow consumer, that does not hear of it.
    for id in 0..400 {
        if client.send(stats(id)).await.is_err() {
            break;
        }
    }
    task.await.unwrap();
    assert!(started.elapsed() >= LAST_TAKE_WAIT, "it had its time");
    assert_eq!(driver.figures().1.connections, 0);
    assert_eq!(driver.figures().1.outbound_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_at_once_while_nothing_else_is_to_be_written() {
    let driver = driver();
    let (mut client, _task) = connect(&driver, "pinger").await;
    client.send(Message::Ping(Bytes::from_static(b"x"))).await.unwrap();
    let started = Instant::now();
    let pong = client.next().await.unwrap().unwrap();
    assert_eq!((pong, started.elapsed()), (Message::Pong(Bytes::from_static(b"x")), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn an_agent_with_a_broken_websocket_is_given_nothing_while_it_closes() {
    let driver = driver();
    let (mut client, task) = connect(&driver, "broken").await;
    client.send(hello("broken")).await.unwrap();
    assert!(matches!(client.next().await, Some(Ok(Message::Binary(_)))), "WELCOME");
    assert_eq!(driver.figures().1.agents_ready, 1);
    // A text frame that is not masked.
    client.get_mut().write_all(&[0x81, 1, b'x']).await.unwrap();
    assert_eq!(close_code(&mut client).await, 1002);
    assert_eq!(driver.figures().1.connections, 0, "its close is not answered yet");
    drop(client);
    task.await.unwrap();
}

/// A client that writes the bytes of frames itself, with masks of zeros.
fn connect_raw(driver: &Arc<Driver>) -> (DuplexStream, JoinHandle<()>) {
    let (client, server) = duplex(4096);
    let id = driver.connect(Peer { identity: "raw".into(), name: "raw".into() }, None);
    let connection =
        Connection::new(Plain::new(server), Arc::clone(driver), id, Encoding::MessagePack, MAX_MESSAGE);
    (client, tokio::spawn(connection))
}

#[tokio::test(start_paused = true)]
async fn nothing_behind_a_close_is_heard() {
    let driver = driver();
    let (mut client, task) = connect_raw(&driver);
    let close = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8];
    let ping = [0x89, 0x80, 0, 0, 0, 0];
    client.write_all(&[close.as_slice(), &ping, &close].concat()).await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, [0x88, 2, 0x03, 0xe8], "one close and no pong");
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_stream_ends_behind_the_close_of_a_broken_websocket_and_is_read_until_the_peer_ends_it_too() {
    let driver = driver();
    let (mut client, task) = connect_raw(&driver);
    let started = Instant::now();
    client.write_all(&[0x81, 1, b'x']).await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.get(..4), Some([0x88, answer[1], 0x03, 0xea].as_slice()), "a close with 1002");
    client.write_all(&[0; 8192]).await.unwrap();
    assert_eq!(started.elapsed(), Duration::ZERO);
    drop(client);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_last_words_are_heard_also_when_a_ping_among_them_cannot_be_answered() {
    let driver = driver();
    let (mut client, task) = connect_raw(&driver);
    let mut bytes = Vec::new();
    for message in [hello("raw"), stats(1)] {
        let Message::Binary(payload) = message else { unreachable!() };
        bytes.extend([0x82, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0]);
        bytes.extend(payload);
    }
    bytes.extend([0x89, 0x80, 0, 0, 0, 0]);
    client.write_all(&bytes).await.unwrap();
    drop(client);
    task.await.unwrap();
    assert_eq!(driver.figures().0.calls_completed, 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_words_of_a_peer_that_leaves_are_heard() {
    let driver = driver();
    let (mut client, task) = connect(&driver, "leaver").await;
    client.send(hello("leaver")).await.unwrap();
    client.send(stats(1)).await.unwrap();
    drop(client);
    task.await.unwrap();
    assert_eq!(driver.figures().0.calls_completed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_closes_with_1001_and_a_second_connection_is_not_touched_by_the_first_ones_end() {
    let driver = driver();
    let (mut first, first_task) = connect(&driver, "same").await;
    first.send(hello("same")).await.unwrap();
    let (mut second, second_task) = connect(&driver, "same").await;
    second.send(hello("same")).await.unwrap();
    assert_eq!(close_code(&mut first).await, 4500, "replaced");
    drop(first);
    first_task.await.unwrap();
    assert_eq!(driver.figures().1.agents_ready, 1, "the newer one stays registered");
    driver.stop();
    assert_eq!(close_code(&mut second).await, 1001);
    drop(second);
    second_task.await.unwrap();
}
