//! A lean client: one TLS stream, its framing, and no task, timer or queue of its own.
//!
//! The load generator shares the machine with the hub, so whatever it spends is missing there.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use agent_reach_protocol::limits::{CONNECT_PATH, SUBPROTOCOL_MSGPACK};
use anyhow::{Context as _, Result, bail};
use bytes::{Bytes, BytesMut};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::dialect::Dialect;
use crate::frame::{Framing, Incoming};

/// Addresses that connections come from, so that no pair of addresses runs out of ports.
const SOURCES: u32 = 16;
/// Longest head of the answer to an upgrade, in bytes.
const HEAD_BYTES_MAX: usize = 4096;
/// Most bytes that one read takes.
const READ_BYTES: usize = 16 * 1024;

/// Where the server under load is, and what is needed to get in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    /// Its address.
    pub(crate) address: SocketAddr,
    /// The directory with its certificate authority.
    pub(crate) certs: std::path::PathBuf,
    /// What it speaks.
    pub(crate) dialect: Dialect,
}

/// Makes connections, each with a certificate of its own.
pub(crate) struct Connector {
    endpoint: Endpoint,
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
    provider: Arc<rustls::crypto::CryptoProvider>,
    /// All agents have one key: making ten thousand would only cost time.
    key: KeyPair,
    signing: Arc<dyn SigningKey>,
    /// Of the sockets, in bytes; `None`: the system's.
    receive_buffer: Option<u32>,
}

impl Connector {
    /// Reads the certificate authority of the endpoint.
    ///
    /// # Errors
    /// When its files cannot be read.
    pub(crate) fn new(endpoint: Endpoint) -> Result<Self> {
        let read = |file: &str| {
            let path = endpoint.certs.join(file);
            std::fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let ca = read("ca.pem")?;
        let issuer = Issuer::from_ca_cert_pem(&ca, KeyPair::from_pem(&read("ca-key.pem")?)?)?;
        let roots = Arc::new(roots(&endpoint.certs)?);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = KeyPair::generate()?;
        let der = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        let signing = provider.key_provider.load_private_key(der)?;
        Ok(Self { endpoint, issuer, roots, provider, key, signing, receive_buffer: None })
    }

    /// The same, with sockets that take in no more than about so many bytes before they are read.
    pub(crate) fn with_receive_buffer(self, bytes: u32) -> Self {
        Self { receive_buffer: Some(bytes), ..self }
    }

    /// What the endpoint speaks.
    pub(crate) const fn dialect(&self) -> Dialect {
        self.endpoint.dialect
    }

    /// Makes the certificate of `name`. Before it is needed, so that a storm of connects does not wait for it.
    ///
    /// # Errors
    /// When the name cannot stand in a certificate.
    pub(crate) fn identity(&self, name: &str) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names =
            vec![SanType::URI(format!("spiffe://agent-reach/agent/{name}").as_str().try_into()?)];
        let certificate = params.signed_by(&self.key, &self.issuer)?;
        let certified = CertifiedKey::new(vec![certificate.der().clone()], Arc::clone(&self.signing));
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.resumption = Resumption::disabled();
        Ok(Identity(Arc::new(config)))
    }

    /// Connects, up to the point where messages can be sent. `number` spreads source addresses.
    ///
    /// # Errors
    /// When the server is not there or does not want us.
    pub(crate) async fn connect(&self, identity: Identity, number: u32) -> Result<Link> {
        let tls = TlsConnector::from(identity.0);
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = self.receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        let last = u8::try_from(number % SOURCES)? + 2;
        socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into())?;
        let stream = socket.connect(self.endpoint.address).await?;
        stream.set_nodelay(true)?;
        let stream = tls.connect(ServerName::try_from("localhost")?, stream).await?;
        let framing = self.endpoint.dialect.framing();
        let mut link = Link { stream, framing, input: BytesMut::new(), output: Vec::new(), written: 0 };
        if framing == Framing::WebSocket {
            link.upgrade().await?;
        }
        Ok(link)
    }

    /// Connects and says HELLO, with the capabilities of one of so many groups or with none.
    ///
    /// # Errors
    /// When the server is not there, or does not answer with a plain WELCOME.
    pub(crate) async fn register(
        &self,
        name: &str,
        identity: Identity,
        number: u32,
        groups: Option<u32>,
    ) -> Result<Link> {
        let hello = self.dialect().hello(name, number, groups);
        self.introduce(name, identity, number, &hello).await
    }

    /// Connects and says this HELLO.
    ///
    /// # Errors
    /// When the server is not there, or does not answer with a plain WELCOME.
    pub(crate) async fn introduce(
        &self,
        name: &str,
        identity: Identity,
        number: u32,
        hello: &[u8],
    ) -> Result<Link> {
        let mut link = self.connect(identity, number).await.with_context(|| name.to_owned())?;
        link.push(hello);
        let welcome = link.next().await?;
        self.dialect().welcomed(&welcome)?;
        Ok(link)
    }
}

/// Who a connection is: a certificate and what to do with it.
#[derive(Clone, Debug)]
pub(crate) struct Identity(Arc<ClientConfig>);

/// The roots of a directory of certificates.
///
/// # Errors
/// When `ca.pem` cannot be read.
pub(crate) fn roots(certs: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(certs.join("ca.pem"))? {
        roots.add(certificate?)?;
    }
    Ok(roots)
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TlsStream<TcpStream>,
    framing: Framing,
    input: BytesMut,
    output: Vec<u8>,
    /// How much of `output` has left.
    written: usize,
}

impl Link {
    /// Queues a message; [`Link::flush`] sends it.
    pub(crate) fn push(&mut self, message: &[u8]) {
        self.framing.push(&mut self.output, message);
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        Ok(poll_fn(|cx| self.poll_flush(cx)).await?)
    }

    /// Waits until bytes have come. Cancel-safe: bytes are kept, or not taken.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) async fn fill(&mut self) -> Result<()> {
        poll_fn(|cx| self.poll_fill(cx)).await
    }

    /// The next message that is whole, of those that have come.
    ///
    /// # Errors
    /// When the server closes, or breaks the framing.
    pub(crate) fn pop(&mut self) -> Result<Option<Bytes>> {
        loop {
            match self.framing.pop(&mut self.input)? {
                Some(Incoming::Message(message)) => return Ok(Some(message)),
                Some(Incoming::Ping(payload)) => self.framing.push_pong(&mut self.output, &payload),
                None => {
                    if self.input.is_empty() {
                        // An idle connection keeps no buffer.
                        self.input = BytesMut::new();
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) async fn next(&mut self) -> Result<Bytes> {
        loop {
            if let Some(message) = self.pop()? {
                return Ok(message);
            }
            self.flush().await?;
            self.fill().await?;
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.output.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            self.written += ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.written = 0;
        self.output.clear();
        if self.output.capacity() > READ_BYTES {
            self.output = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut space = [std::mem::MaybeUninit::uninit(); READ_BYTES];
        let mut any = false;
        loop {
            let mut buffer = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    return Poll::Ready(Err(anyhow::anyhow!("the server closed the connection")));
                }
                Poll::Ready(Ok(())) => {
                    self.input.extend_from_slice(buffer.filled());
                    any = true;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending if any => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    async fn upgrade(&mut self) -> Result<()> {
        let request = format!(
            "GET {CONNECT_PATH} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: {SUBPROTOCOL_MSGPACK}\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.flush().await?;
        loop {
            if self.stream.read_buf(&mut self.input).await? == 0 {
                bail!("the server closed the connection before it answered the upgrade");
            }
            let end = self.input.windows(4).position(|four| four == b"\r\n\r\n");
            match end {
                Some(end) => {
                    let head = self.input.split_to(end + 4);
                    if !head.starts_with(b"HTTP/1.1 101") {
                        bail!("refused: {}", String::from_utf8_lossy(&head));
                    }
                    return Ok(());
                }
                None if self.input.len() > HEAD_BYTES_MAX => bail!("an endless answer to the upgrade"),
                None => {}
            }
        }
    }
}
