//! Lines to a hub below the envelopes, for peers that keep no rule.

use std::time::Duration;

use rmpv::Value;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::raw::dial::Stream;
use crate::raw::frame::{BINARY, frame, read};
use crate::raw::{Dial, Format, Hub, Identity, kind, merged, pack, peer};

/// A WebSocket that is open, or registered, and still only bytes.
pub(crate) struct Line {
    pub(crate) stream: Stream,
}

impl Line {
    /// An open WebSocket, `None` when the hub would not have it.
    pub(crate) async fn open(hub: &Hub, identity: Identity, format: Format) -> Option<Self> {
        let dial = Dial::new(hub).identity(identity).protocols(format.subprotocol());
        dial.open().await.ok().map(|opened| Self { stream: opened.stream })
    }

    /// The same with a small receive buffer, so that not reading is soon noticed.
    pub(crate) async fn narrow(hub: &Hub, identity: Identity) -> Option<Self> {
        let opened = Dial::new(hub).identity(identity).receive_buffer(4096).open().await.ok()?;
        Some(Self { stream: opened.stream })
    }

    /// Sends an envelope.
    pub(crate) async fn send(&mut self, kind: u64, header: Value, body: Value) -> std::io::Result<()> {
        let message = pack(&Value::Array(vec![Value::from(kind), header, body]));
        self.stream.write_all(&frame(BINARY, true, &message)).await?;
        self.stream.flush().await
    }

    /// Sends HELLO with these further keys, and reads what comes first, be it WELCOME or not.
    pub(crate) async fn register(
        &mut self,
        agent: &str,
        capabilities: &[&str],
        extra: Value,
    ) -> std::io::Result<()> {
        let capabilities = capabilities.iter().map(|name| map! {"name" => *name}).collect::<Vec<_>>();
        let hello = map! {
            "v" => 1,
            "agent_id" => agent,
            "instance" => peer::instance(),
            "capabilities" => capabilities,
        };
        self.send(kind::HELLO, merged(hello, extra), Value::Nil).await?;
        read(&mut self.stream).await.map(drop)
    }
}

/// Reads to the end, whatever comes and however it ends.
pub(crate) async fn listen(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut heard = Vec::new();
    drop(stream.read_to_end(&mut heard).await);
    heard
}

/// Writes one byte after the other, slowly, until the hub no longer takes them; then reads to the end.
pub(crate) async fn drip(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) {
    let mut pace = tokio::time::interval(Duration::from_millis(10));
    for byte in bytes {
        pace.tick().await;
        if stream.write_all(&[*byte]).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
    listen(stream).await;
}

/// Writes all that `next` gives, for as long as the hub takes it, and reads meanwhile; what it read, to the end.
/// When everything is written it closes its own side.
pub(crate) async fn pour(
    stream: impl AsyncRead + AsyncWrite,
    mut next: impl FnMut() -> Option<Vec<u8>>,
) -> Vec<u8> {
    let (from, mut to) = tokio::io::split(stream);
    let write = async {
        while let Some(bytes) = next() {
            if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
                return;
            }
        }
        drop(to.shutdown().await);
    };
    tokio::join!(write, listen(from)).1
}

/// The bytes with which a client of TLS 1.3 begins.
pub(crate) fn client_hello(hub: &Hub) -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::IpAddress(hub.agents.ip().into());
    let mut connection = ClientConnection::new(config.into(), name).expect("a client");
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).expect("writing to memory");
    bytes
}

/// So many bytes without sense, the same for the same seed (xorshift).
pub(crate) fn random(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    (0..count).map(|_| next()).collect()
}
