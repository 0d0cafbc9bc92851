//! Section 1 of the protocol: how a connection comes to be, and what ends it below the envelopes.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::frame::{BINARY, CLOSE, CONTINUATION, PING, header};
use raw::{Dial, Format, Hub, Incoming, RECONNECT, RawClient, Refused, STAY_AWAY, frame, http, kind, within};
use rmpv::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MESSAGE_TOO_LARGE: std::ops::RangeInclusive<u16> = 1009..=1009;

/// The status and text of an upgrade that HTTP refused.
async fn refused_by_http(dial: Dial) -> (u16, String) {
    match dial.open().await {
        Err(Refused::Http { status, body }) => (status, body),
        other => panic!("no HTTP refusal but {other:?}"),
    }
}

/// An envelope of an unknown kind that is exactly `bytes` long on the wire.
fn message_of(bytes: usize) -> Vec<u8> {
    let mut message = vec![0x93, 99, 0x80, 0xc6];
    let body = bytes - message.len() - 4;
    message.extend_from_slice(&u32::try_from(body).expect("small").to_be_bytes());
    message.resize(bytes, 7);
    message
}

#[tokio::test]
async fn an_agent_connects_with_the_subprotocol_it_offers() {
    let hub = Hub::dev();
    for format in Format::BOTH {
        let dial = Dial::new(&hub).identity(hub.identity("a")).protocols(format.subprotocol());
        let opened = dial.open().await.expect("an upgrade");
        assert_eq!(http::field(&opened.head, "sec-websocket-protocol"), Some(format.subprotocol()));
        let mut client = RawClient::new(opened.stream, "a", format);
        client.hello(&[], map! {}).await;
        client.welcome().await;
    }
}

#[tokio::test]
async fn one_subprotocol_is_chosen_among_several_offered() {
    let hub = Hub::dev();
    let offered = "soap, agent-reach.v1.json, agent-reach.v9.cbor";
    let opened =
        Dial::new(&hub).identity(hub.identity("a")).protocols(offered).open().await.expect("an upgrade");
    assert_eq!(http::field(&opened.head, "sec-websocket-protocol"), Some("agent-reach.v1.json"));
}

#[tokio::test]
async fn no_subprotocol_in_common_is_refused_with_400_that_names_both() {
    let hub = Hub::dev();
    let dial = || Dial::new(&hub).identity(hub.identity("a"));
    for dial in [dial().protocols("agent-reach.v2.msgpack, soap"), dial().no_protocols()] {
        let (status, body) = refused_by_http(dial).await;
        assert_eq!(status, 400, "{body}");
        assert!(body.contains("agent-reach.v1.msgpack") && body.contains("agent-reach.v1.json"), "{body}");
    }
}

#[tokio::test]
async fn another_path_is_not_found() {
    let hub = Hub::dev();
    for path in ["/", "/v1", "/v1/connect/more", "/v2/connect", "/V1/CONNECT"] {
        let (status, _) = refused_by_http(Dial::new(&hub).identity(hub.identity("a")).path(path)).await;
        assert_eq!(status, 404, "{path}");
    }
}

#[tokio::test]
async fn no_client_certificate_is_refused_in_tls() {
    let hub = Hub::dev();
    let refused = Dial::new(&hub).open().await.expect_err("no certificate");
    assert!(matches!(refused, Refused::Tls(_)), "{refused:?}");
}

#[tokio::test]
async fn the_certificate_of_a_foreign_ca_is_refused_in_tls() {
    let (hub, foreign) = (Hub::dev(), Hub::dev());
    let refused = Dial::new(&hub).identity(foreign.identity("a")).open().await.expect_err("a foreign CA");
    assert!(matches!(refused, Refused::Tls(_)), "{refused:?}");
}

#[tokio::test]
async fn tls_1_2_is_refused_by_default() {
    let hub = Hub::dev();
    let dial = Dial::new(&hub).identity(hub.identity("a")).versions(&[&rustls::version::TLS12]);
    dial.tls().await.expect_err("TLS 1.2");
}

#[tokio::test]
async fn plain_websocket_is_refused() {
    let hub = Hub::dev();
    let mut stream = tokio::net::TcpStream::connect(hub.agents).await.expect("TCP");
    let request = "GET /v1/connect HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
                   Sec-WebSocket-Protocol: agent-reach.v1.msgpack\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("request");
    let mut answer = Vec::new();
    drop(within("the end of a plain connection", stream.read_to_end(&mut answer)).await);
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains("101"), "{answer}");
}

#[tokio::test]
async fn compression_is_not_negotiated_even_when_offered() {
    let hub = Hub::dev();
    let dial = Dial::new(&hub).identity(hub.identity("a"));
    let opened =
        dial.extensions("permessage-deflate; client_max_window_bits").open().await.expect("an upgrade");
    assert_eq!(http::field(&opened.head, "sec-websocket-extensions"), None);
    let mut client = RawClient::new(opened.stream, "a", Format::MsgPack);
    client.hello(&[], map! {}).await;
    client.welcome().await;
}

#[tokio::test]
async fn a_request_that_is_no_upgrade_is_refused_in_http() {
    let hub = Hub::dev();
    let mut stream = Dial::new(&hub).identity(hub.identity("a")).tls().await.expect("TLS");
    stream.write_all(b"GET /v1/connect HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("request");
    stream.flush().await.expect("request");
    let mut start = [0; 12];
    within("an HTTP answer", stream.read_exact(&mut start)).await.expect("an HTTP answer");
    assert!(start.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&start));
}

#[tokio::test]
async fn a_message_at_the_limit_is_taken() {
    let hub = Hub::dev();
    let mut client = hub.agent("a", &[]).await;
    client.message(&message_of(1_048_576)).await;
    client.expect_error(99, "unknown_kind").await;
    client.fence().await;
}

#[tokio::test]
async fn a_message_one_byte_over_the_limit_is_too_large() {
    let hub = Hub::dev();
    let mut client = hub.agent("a", &[]).await;
    client.message(&message_of(1_048_577)).await;
    client.expect_goodbye("message_too_large", MESSAGE_TOO_LARGE).await;
}

#[tokio::test]
async fn the_message_limit_is_configured() {
    let hub = Hub::dev_with(&[("LIMITS__MAX_MESSAGE", "65536")]);
    let mut client = hub.connect("a").await;
    client.hello(&[], map! {}).await;
    assert_eq!(client.welcome().await.uint("max_message"), 65_536);
    client.message(&message_of(65_536)).await;
    client.expect_error(99, "unknown_kind").await;
    client.message(&message_of(65_537)).await;
    client.expect_goodbye("message_too_large", MESSAGE_TOO_LARGE).await;
}

#[tokio::test]
async fn fragments_without_end_are_too_large() {
    let hub = Hub::dev();
    let mut client = hub.agent("a", &[]).await;
    client.raw(&frame(BINARY, false, &[7; 65_536])).await;
    for _ in 0..16 {
        client.raw(&frame(CONTINUATION, false, &[7; 65_536])).await;
    }
    client.expect_goodbye("message_too_large", MESSAGE_TOO_LARGE).await;
}

#[tokio::test]
async fn a_frame_header_of_four_gigabytes_is_too_large_before_its_bytes_come() {
    let hub = Hub::dev();
    for length in [4 << 30, (1 << 63) - 1] {
        let mut client = hub.agent("a", &[]).await;
        client.raw(&header(0x80 | BINARY, length)).await;
        client.raw(&[0; 16]).await;
        client.expect_goodbye("message_too_large", MESSAGE_TOO_LARGE).await;
    }
}

#[tokio::test]
async fn a_message_in_fragments_with_a_ping_between_is_one_message() {
    let hub = Hub::dev();
    let mut client = hub.connect("a").await;
    let hello = map! {"v" => 1, "agent_id" => "a", "instance" => "i", "capabilities" => list![]};
    let bytes = raw::pack(&Value::Array(vec![Value::from(kind::HELLO), hello, Value::Nil]));
    let (first, rest) = bytes.split_at(9);
    client.raw(&frame(BINARY, false, first)).await;
    client.ping(b"between").await;
    client.raw(&frame(CONTINUATION, false, b"")).await;
    client.raw(&frame(CONTINUATION, true, rest)).await;
    assert_eq!(client.expect_pong().await, b"between");
    client.welcome().await;
}

#[tokio::test]
async fn a_ping_is_answered_before_and_after_hello() {
    let hub = Hub::dev();
    let mut client = hub.connect("a").await;
    client.ping(b"before").await;
    assert_eq!(client.expect_pong().await, b"before");
    client.hello(&[], map! {}).await;
    client.welcome().await;
    client.ping(&[9; 125]).await;
    assert_eq!(client.expect_pong().await, [9; 125]);
}

#[tokio::test]
async fn broken_websocket_frames_close_with_1002_and_no_goodbye() {
    let hub = Hub::dev_with(&[("LIMITS__REGISTRATIONS_PER_10S", "1000")]);
    let unmasked = vec![0x80 | BINARY, 3, 0x92, 3, 0x80];
    let with_first_byte = |first: u8| {
        let mut bytes = frame(BINARY, true, &[0x92, 3, 0x80]);
        bytes[0] = first;
        bytes
    };
    let broken = [
        ("an unmasked frame", unmasked),
        ("a reserved opcode", with_first_byte(0x83)),
        ("a reserved control opcode", with_first_byte(0x8b)),
        ("an extension bit", with_first_byte(0xc2)),
        ("a continuation of nothing", frame(CONTINUATION, true, b"x")),
        ("a fragmented ping", frame(PING, false, b"x")),
        ("a ping of 126 bytes", frame(PING, true, &[0; 126])),
        ("a new message within a message", [frame(BINARY, false, b"x"), frame(BINARY, true, b"x")].concat()),
    ];
    let mut canary = hub.agent("canary", &[]).await;
    for (what, bytes) in broken {
        let mut client = hub.agent("a", &[]).await;
        client.raw(&bytes).await;
        let answer = client.next(what).await;
        assert!(matches!(answer, Incoming::Close(Some(1002))), "{what} was answered with {answer:?}");
        canary.fence().await;
    }
}

#[tokio::test]
async fn a_close_from_the_agent_is_answered_with_a_close() {
    let hub = Hub::dev();
    let mut client = hub.agent("a", &[]).await;
    client.raw(&frame(CLOSE, true, &1000_u16.to_be_bytes())).await;
    assert_eq!(client.expect_close().await, Some(1000));
}

#[tokio::test]
async fn an_agent_id_that_is_not_the_certificates_name_is_unauthorized() {
    let hub = Hub::dev();
    for format in Format::BOTH {
        let mut client = hub.connect_as("a", format).await;
        client.hello(&[], map! {"agent_id" => "b"}).await;
        client.expect_goodbye("unauthorized", STAY_AWAY).await;
    }
}

#[tokio::test]
async fn a_client_that_reads_too_slowly_for_its_credit_is_a_slow_consumer() {
    let hub = Hub::dev_with(&[("LIMITS__OUTBOUND_BYTES", "262144"), ("LIMITS__MAX_MESSAGE", "131072")]);
    let mut provider = hub.agent("provider", &["stream"]).await;
    let opened = Dial::new(&hub).identity(hub.identity("slow")).receive_buffer(8192).open().await;
    let mut slow = RawClient::new(opened.expect("an upgrade").stream, "slow", Format::MsgPack);
    slow.hello(&[], map! {}).await;
    slow.welcome().await;
    slow.call("stream", map! {"stream" => true, "credit" => 100_000}, Value::Nil).await;
    let call = provider.taken().await;
    for seq in 0..200 {
        provider.chunk(&call, seq, Value::Binary(vec![1; 100_000])).await;
    }
    // A fence of the provider would prove nothing about the queue of the other; the GOODBYE itself is the event.
    loop {
        let envelope = slow.envelope("GOODBYE slow_consumer").await;
        if envelope.kind == kind::GOODBYE {
            assert_eq!(envelope.text("code"), "slow_consumer");
            break;
        }
        assert_eq!(envelope.kind, kind::CHUNK, "{envelope:?}");
    }
    let close = slow.expect_close().await;
    assert!(close.is_some_and(|code| RECONNECT.contains(&code)), "{close:?}");
    hub.agent("canary", &[]).await.fence().await;
}
