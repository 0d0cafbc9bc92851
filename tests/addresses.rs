//! What one address may hold of the listener, and what it leaves to others.
#![cfg(test)]

#[macro_use]
mod raw;

use std::net::Ipv4Addr;

use raw::{Dial, Format, Hub, RawClient, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

async fn tcp(hub: &Hub, from: Ipv4Addr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((from, 0).into()).expect("an address of this machine");
    within("TCP", socket.connect(hub.agents)).await.expect("a connection")
}

/// Whether the hub closes a socket without a word.
async fn is_closed(socket: &mut TcpStream) -> bool {
    matches!(within("the hub's close", socket.read(&mut [0; 16])).await, Ok(0) | Err(_))
}

async fn agent(hub: &Hub, name: &str, from: Ipv4Addr) -> RawClient {
    let dial = Dial::new(hub).identity(hub.identity(name)).from(from);
    let opened = dial.open().await.unwrap_or_else(|refused| panic!("{name}: {refused:?}"));
    let mut client = RawClient::new(opened.stream, name, Format::MsgPack);
    client.hello(&[], map! {}).await;
    client.welcome().await;
    client
}

#[tokio::test]
async fn an_address_has_so_many_connections_and_gets_one_for_each_that_it_gives_up() {
    let hub = Hub::dev_with(&[("AGENTS__MAX_CONNECTIONS_PER_ADDRESS", "2")]);
    let mut first = agent(&hub, "first", ONE).await;
    let second = agent(&hub, "second", ONE).await;
    assert!(is_closed(&mut tcp(&hub, ONE).await).await, "a third one of the same address");
    let mut third = agent(&hub, "third", OTHER).await;
    second.vanish().await;
    // The hub has noticed when it says so.
    let mut gone = false;
    while !gone {
        let id = first.call("hub.stats", map! {}, rmpv::Value::Nil).await;
        gone = first.completed(id).await.content()["connections"].as_u64() == Some(2);
    }
    agent(&hub, "fourth", ONE).await.fence().await;
    first.fence().await;
    third.fence().await;
}

#[tokio::test]
async fn handshakes_that_one_address_leaves_open_keep_no_other_address_out() {
    let hub = Hub::dev_with(&[
        ("AGENTS__MAX_HANDSHAKES", "4"),
        ("AGENTS__MAX_HANDSHAKES_PER_ADDRESS", "1"),
        ("AGENTS__HANDSHAKE_TIMEOUT_MS", "60000"),
    ]);
    // 64 times as many sockets as handshakes may be on their way, of one address too.
    let mut silent = Vec::new();
    for _ in 0..64 {
        let mut socket = tcp(&hub, ONE).await;
        // The beginning of a ClientHello, and then nothing.
        socket.write_all(&[22, 3, 1, 2, 0, 1]).await.expect("sent");
        silent.push(socket);
    }
    assert!(is_closed(&mut tcp(&hub, ONE).await).await, "one more of the same address");
    agent(&hub, "other", OTHER).await.fence().await;
}
