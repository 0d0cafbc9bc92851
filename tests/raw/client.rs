//! One WebSocket connection, frame by frame. Everything that is waited for is waited for five seconds at most.

use std::ops::RangeInclusive;

use rmpv::Value;
use tokio::io::AsyncWriteExt;

use super::dial::Stream;
use super::frame::{self, Format};
use super::value::{self, Envelope};
use super::{RECONNECT, STAY_AWAY, kind, within};

/// What the hub sent.
#[derive(Debug)]
pub(crate) enum Incoming {
    Envelope(Envelope),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    /// A close frame and its code.
    Close(Option<u16>),
    /// The stream ended, with or without TLS saying so.
    End,
}

/// A client that says only what it is told to; the one thing it does by itself is to answer pings.
pub(crate) struct RawClient {
    stream: Stream,
    pub(crate) name: String,
    pub(crate) format: Format,
    /// Whether pings are answered (and kept from the test). Without it the client can be silent and still read.
    pub(crate) answers_pings: bool,
    pub(crate) last_id: u64,
    /// The fragments of a message that has not ended.
    partial: Vec<frame::Frame>,
}

impl std::fmt::Debug for RawClient {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.name)
    }
}

impl RawClient {
    /// A client on an open WebSocket.
    pub(crate) fn new(stream: Stream, name: &str, format: Format) -> Self {
        Self { stream, name: name.to_owned(), format, answers_pings: true, last_id: 0, partial: Vec::new() }
    }

    /// Sends an envelope. A binary body goes as its bytes, another as MessagePack or JSON of the value.
    pub(crate) async fn send(&mut self, kind: u64, header: Value, body: Value) {
        let message = match self.format {
            Format::MsgPack => {
                let body = match body {
                    Value::Nil | Value::Binary(_) => body,
                    other => Value::Binary(value::pack(&other)),
                };
                value::pack(&Value::Array(vec![Value::from(kind), header, body]))
            }
            Format::Json => {
                let envelope = Value::Array(vec![Value::from(kind), header, body]);
                value::json_of(&envelope).to_string().into_bytes()
            }
        };
        self.message(&message).await;
    }

    /// Sends one whole message of the subprotocol's own type with these bytes.
    pub(crate) async fn message(&mut self, bytes: &[u8]) {
        let opcode = self.format.opcode();
        self.raw(&frame::frame(opcode, true, bytes)).await;
    }

    /// Sends bytes below the WebSocket. A hub that has closed already is no failure: the test reads what it said.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        let what = format!("{} to send {} bytes", self.name, bytes.len());
        let sent = within(&what, async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        });
        drop(sent.await);
    }

    /// Sends a ping.
    pub(crate) async fn ping(&mut self, payload: &[u8]) {
        self.raw(&frame::frame(frame::PING, true, payload)).await;
    }

    /// Closes TLS and TCP without a word of WebSocket: a process that died.
    pub(crate) async fn vanish(mut self) {
        drop(self.stream.shutdown().await);
    }

    /// The next thing that the hub sends.
    pub(crate) async fn next(&mut self, what: &str) -> Incoming {
        let what = format!("{}: {what}", self.name);
        within(&what, self.read()).await
    }

    async fn read(&mut self) -> Incoming {
        loop {
            let Ok(frame) = frame::read(&mut self.stream).await else { return Incoming::End };
            match frame.opcode {
                frame::PING if self.answers_pings => {
                    self.raw(&frame::frame(frame::PONG, true, &frame.payload)).await;
                }
                frame::PING => return Incoming::Ping(frame.payload),
                frame::PONG => return Incoming::Pong(frame.payload),
                frame::CLOSE => {
                    let code = frame.payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                    return Incoming::Close(code);
                }
                _ => {
                    let last = frame.fin;
                    self.partial.push(frame);
                    if last {
                        return Incoming::Envelope(self.message_end());
                    }
                }
            }
        }
    }

    fn message_end(&mut self) -> Envelope {
        let fragments = std::mem::take(&mut self.partial);
        let opcode = fragments.first().expect("at least the last").opcode;
        let bytes = fragments.into_iter().flat_map(|fragment| fragment.payload).collect::<Vec<_>>();
        self.decode(opcode, &bytes)
    }

    fn decode(&self, opcode: u8, bytes: &[u8]) -> Envelope {
        assert_eq!(opcode, self.format.opcode(), "the hub sent the other subprotocol's type of message");
        match self.format {
            Format::MsgPack => Envelope::from_value(value::value_of(bytes)),
            Format::Json => {
                let json = serde_json::from_slice(bytes).expect("JSON from the hub");
                Envelope::from_value(value::from_json(&json))
            }
        }
    }

    /// The next envelope, whatever it is.
    pub(crate) async fn envelope(&mut self, what: &str) -> Envelope {
        loop {
            match self.next(what).await {
                Incoming::Envelope(envelope) => return envelope,
                Incoming::Ping(_) | Incoming::Pong(_) => {}
                other => panic!("{} waited for {what} and got {other:?}", self.name),
            }
        }
    }

    /// The next envelope, which must be of this kind.
    pub(crate) async fn expect(&mut self, kind: u64, what: &str) -> Envelope {
        let envelope = self.envelope(what).await;
        assert_eq!(envelope.kind, kind, "{} waited for {what} and got {envelope:?}", self.name);
        envelope
    }

    /// The next envelope, which must be an ERROR about `ref_kind`; its header.
    pub(crate) async fn expect_error(&mut self, ref_kind: u64, code: &str) -> Value {
        let error = self.expect(kind::ERROR, &format!("ERROR {code}")).await;
        assert_eq!(error.text("code"), code, "{error:?}");
        assert_eq!(error.uint("ref_kind"), ref_kind, "{error:?}");
        assert!(error.get("message").is_str(), "an ERROR has a message: {error:?}");
        error.header
    }

    /// GOODBYE with `code` next, and then a close frame with a code in `range`; the GOODBYE's header.
    pub(crate) async fn expect_goodbye(&mut self, code: &str, range: RangeInclusive<u16>) -> Value {
        let goodbye = self.expect(kind::GOODBYE, &format!("GOODBYE {code}")).await;
        assert_eq!(goodbye.text("code"), code, "{goodbye:?}");
        let close = self.expect_close().await;
        assert!(close.is_some_and(|close| range.contains(&close)), "{code} closed with {close:?}");
        goodbye.header
    }

    /// GOODBYE `protocol_error` and its close.
    pub(crate) async fn expect_protocol_error(&mut self) {
        self.expect_goodbye("protocol_error", STAY_AWAY).await;
    }

    /// A close frame next (pings and pongs aside); its code.
    pub(crate) async fn expect_close(&mut self) -> Option<u16> {
        loop {
            match self.next("a close frame").await {
                Incoming::Close(code) => return code,
                Incoming::Ping(_) | Incoming::Pong(_) => {}
                other => panic!("{} waited for a close frame and got {other:?}", self.name),
            }
        }
    }

    /// A ping from the hub next.
    pub(crate) async fn expect_ping(&mut self) -> Vec<u8> {
        assert!(!self.answers_pings, "a client that answers pings does not show them");
        match self.next("a ping").await {
            Incoming::Ping(payload) => payload,
            other => panic!("{} waited for a ping and got {other:?}", self.name),
        }
    }

    /// A pong from the hub next; its payload.
    pub(crate) async fn expect_pong(&mut self) -> Vec<u8> {
        match self.next("a pong").await {
            Incoming::Pong(payload) => payload,
            other => panic!("{} waited for a pong and got {other:?}", self.name),
        }
    }

    /// The connection ends, whatever is said before: the code of the close frame, if there was one.
    pub(crate) async fn expect_end(&mut self) -> Option<u16> {
        loop {
            match self.next("the end of the connection").await {
                Incoming::Close(code) => return code,
                Incoming::End => return None,
                Incoming::Envelope(_) | Incoming::Ping(_) | Incoming::Pong(_) => {}
            }
        }
    }
}
