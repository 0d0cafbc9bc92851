//! Opening a connection step by step: TCP, TLS, the HTTP upgrade. Each step may be refused.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::certs::{self, Identity};
use super::hub::Hub;
use super::{http, within};

/// The stream below the WebSocket.
pub(crate) type Stream = BufReader<TlsStream<TcpStream>>;

/// How a connection attempt ended without a WebSocket.
#[derive(Debug)]
pub(crate) enum Refused {
    /// TCP or TLS failed or was closed; a TLS 1.3 server refuses a client only after the client's handshake.
    Tls(std::io::Error),
    /// The hub answered in HTTP.
    Http { status: u16, body: String },
}

/// An open WebSocket and the head of the answer that opened it.
pub(crate) struct Opened {
    pub(crate) stream: Stream,
    pub(crate) head: String,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.head)
    }
}

/// A connection attempt; the defaults are what an SDK does, but for the client certificate.
#[derive(Debug)]
pub(crate) struct Dial {
    address: SocketAddr,
    roots: RootCertStore,
    identity: Option<Identity>,
    path: String,
    protocols: Option<String>,
    extensions: Option<String>,
    versions: Vec<&'static SupportedProtocolVersion>,
    receive_buffer: Option<u32>,
    from: Option<Ipv4Addr>,
}

impl Dial {
    /// An attempt at `hub`'s agent listener.
    pub(crate) fn new(hub: &Hub) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in certs::read_chain(&hub.dir().join("ca.pem")) {
            roots.add(certificate).expect("the CA's certificate");
        }
        Self {
            address: hub.agents,
            roots,
            identity: None,
            path: "/v1/connect".to_owned(),
            protocols: Some("agent-reach.v1.msgpack".to_owned()),
            extensions: None,
            versions: vec![&rustls::version::TLS13, &rustls::version::TLS12],
            receive_buffer: None,
            from: None,
        }
    }

    /// From this address.
    pub(crate) fn from(mut self, address: Ipv4Addr) -> Self {
        self.from = Some(address);
        self
    }

    /// With a client certificate.
    pub(crate) fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// At another path.
    pub(crate) fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Offering these subprotocols, as the header's text.
    pub(crate) fn protocols(mut self, protocols: &str) -> Self {
        self.protocols = Some(protocols.to_owned());
        self
    }

    /// Offering no subprotocol at all.
    pub(crate) fn no_protocols(mut self) -> Self {
        self.protocols = None;
        self
    }

    /// Offering these extensions.
    pub(crate) fn extensions(mut self, extensions: &str) -> Self {
        self.extensions = Some(extensions.to_owned());
        self
    }

    /// Speaking only these versions of TLS.
    pub(crate) fn versions(mut self, versions: &[&'static SupportedProtocolVersion]) -> Self {
        self.versions = versions.to_vec();
        self
    }

    /// With a small receive buffer in the kernel, so that a reader that stops is soon noticed.
    pub(crate) fn receive_buffer(mut self, bytes: u32) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// TCP and TLS only.
    pub(crate) async fn tls(&self) -> std::io::Result<Stream> {
        within("the TLS handshake", async {
            let socket = TcpSocket::new_v4()?;
            if let Some(bytes) = self.receive_buffer {
                socket.set_recv_buffer_size(bytes)?;
            }
            if let Some(address) = self.from {
                socket.bind((address, 0).into())?;
            }
            let tcp = socket.connect(self.address).await?;
            tcp.set_nodelay(true)?;
            let name = ServerName::IpAddress(self.address.ip().into());
            let stream = TlsConnector::from(Arc::new(self.config())).connect(name, tcp).await?;
            Ok(BufReader::new(stream))
        })
        .await
    }

    fn config(&self) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)
            .expect("TLS versions")
            .with_root_certificates(self.roots.clone());
        match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let identity = identity.copy();
                builder.with_client_auth_cert(identity.chain, identity.key).expect("a client certificate")
            }
        }
    }

    /// The whole way to an open WebSocket.
    pub(crate) async fn open(self) -> Result<Opened, Refused> {
        let mut stream = self.tls().await.map_err(Refused::Tls)?;
        within("the answer to the upgrade", async {
            let key = tokio_tungstenite::tungstenite::handshake::client::generate_key();
            stream.write_all(self.request(&key).as_bytes()).await.map_err(Refused::Tls)?;
            stream.flush().await.map_err(Refused::Tls)?;
            let head = read_head(&mut stream).await.map_err(Refused::Tls)?;
            if http::status(&head) != 101 {
                let body = read_body(&mut stream, &head).await;
                return Err(Refused::Http { status: http::status(&head), body });
            }
            let expected = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
            assert_eq!(http::field(&head, "sec-websocket-accept"), Some(expected.as_str()));
            Ok(Opened { stream, head })
        })
        .await
    }

    fn request(&self, key: &str) -> String {
        let mut request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n",
            self.path, self.address
        );
        for (name, value) in [("Protocol", &self.protocols), ("Extensions", &self.extensions)] {
            if let Some(value) = value {
                request.push_str(&format!("Sec-WebSocket-{name}: {value}\r\n"));
            }
        }
        request.push_str("\r\n");
        request
    }
}

/// Reads an HTTP head, with nothing after it.
async fn read_head(stream: &mut Stream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(head.len() < 16_384, "an endless HTTP head");
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Reads what follows a head that refuses: its length, or all there is.
async fn read_body(stream: &mut Stream, head: &str) -> String {
    let mut body = Vec::new();
    match http::field(head, "content-length").and_then(|length| length.parse::<u64>().ok()) {
        Some(length) => {
            stream.take(length).read_to_end(&mut body).await.expect("the body");
        }
        // A peer that closes TLS without saying so has still said what it had to say.
        None => drop(stream.read_to_end(&mut body).await),
    }
    String::from_utf8_lossy(&body).into_owned()
}
