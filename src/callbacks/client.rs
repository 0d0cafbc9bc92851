//! One delivery: resolve, judge the addresses, connect to one of them, POST, read the status.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::client::Resumption;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tracing::warn;

use super::address::may_connect;
use super::outcome::{Failure, Outcome};
use super::target::{AllowedHosts, Host, Target};
use crate::transport::roots::{RootsError, client_config, system_roots};

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Most bytes of an answer before its body.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most headers of an answer.
const HEADERS_MAX: usize = 64;
/// Most bytes of an answer's body that are read, and thrown away.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest text of a failure, in characters.
const TEXT_MAX: usize = 200;
/// What the hub calls itself.
const AGENT: &str = concat!("agent-reach/", env!("CARGO_PKG_VERSION"));

/// What is delivered, signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// `webhook-id`: the task's, the same in every delivery.
    pub id: String,
    /// `webhook-timestamp`: seconds since the Unix epoch.
    pub timestamp: u64,
    /// `webhook-signature`.
    pub signature: String,
    /// JSON.
    pub body: Bytes,
}

/// Makes one delivery.
pub trait Post: Send + Sync + 'static {
    /// Delivers, once. Ends in bounded time.
    fn post(&self, target: Target, letter: Letter) -> impl Future<Output = Outcome> + Send;
}

/// How long a delivery takes at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// To resolve the name and to connect. 5 s.
    pub(super) connect: Duration,
    /// All of it. 15 s.
    pub(super) whole: Duration,
}

impl Limits {
    pub(super) const DEFAULT: Self = Self { connect: Duration::from_secs(5), whole: Duration::from_secs(15) };
}

/// Says which addresses a name has.
pub(super) type Resolve = fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ClientError(#[from] RootsError);

/// Delivers over HTTPS: HTTP/1.1 in TLS 1.2 or 1.3, on a connection of its own each time.
pub struct Client {
    tls: TlsConnector,
    hosts: AllowedHosts,
    resolve: Resolve,
    limits: Limits,
}

impl Client {
    /// One that trusts the authorities of the system, and those in `ca` beside them. Reads files: for the start.
    ///
    /// # Errors
    /// [`ClientError`] when `ca` cannot be used. A system without authorities is only warned of.
    pub fn new(hosts: AllowedHosts, ca: Option<&Path>) -> Result<Self, ClientError> {
        let roots = system_roots();
        if roots.is_empty() {
            warn!("the system has no authorities; only those of callbacks.ca are trusted for webhooks");
        }
        Self::build(hosts, roots, ca, system_resolver, Limits::DEFAULT)
    }

    pub(super) fn build(
        hosts: AllowedHosts,
        roots: RootCertStore,
        ca: Option<&Path>,
        resolve: Resolve,
        limits: Limits,
    ) -> Result<Self, ClientError> {
        let mut tls = client_config(roots, ca)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Receivers are met once in a long while: what would be kept of them is of no use.
        tls.resumption = Resumption::disabled();
        Ok(Self { tls: TlsConnector::from(Arc::new(tls)), hosts, resolve, limits })
    }

    async fn deliver(&self, target: &Target, letter: Letter) -> Result<Outcome, Failure> {
        let deadline = Instant::now() + self.limits.whole;
        let now_ms = letter.timestamp.saturating_mul(1_000);
        let request = request(target, letter)?;
        let (mut sender, connection) =
            timeout_at(deadline, self.speak(target)).await.map_err(|_| Failure::Timeout)??;
        let exchange = async move {
            let answer = timeout_at(deadline, sender.send_request(request)).await;
            let answer = answer.map_err(|_| Failure::Timeout)?.map_err(http)?;
            let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let outcome = Outcome::of(answer.status().as_u16(), retry_after, now_ms);
            // The status has said it all. A body is read only so that its sender is not cut off in the middle.
            drop(timeout_at(deadline, drain(answer)).await);
            Ok(outcome)
        };
        tokio::pin!(exchange, connection);
        // Both may be dropped at any point: the outcome is the only thing that is wanted of them.
        tokio::select! {
            biased;
            outcome = &mut exchange => outcome,
            _ = &mut connection => exchange.await,
        }
    }

    /// Opens a connection that is ready for a request.
    async fn speak(&self, target: &Target) -> Result<Conversation, Failure> {
        let connected = timeout(self.limits.connect, self.connect(target)).await;
        let socket = connected.map_err(|_| Failure::Timeout)??;
        let name = target.server_name().clone();
        let secured = self.tls.connect(name, socket).await.map_err(|error| Failure::Tls(brief(error)))?;
        http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .handshake(TokioIo::new(secured))
            .await
            .map_err(http)
    }

    /// Connects to the first address that answers. The address that was judged is the one that is used: the name is
    /// never resolved again.
    async fn connect(&self, target: &Target) -> Result<TcpStream, Failure> {
        let addresses = self.addresses(target).await?;
        let deadline = Instant::now() + self.limits.connect;
        let mut failed = io::ErrorKind::TimedOut;
        for (at, address) in addresses.iter().enumerate() {
            // Each gets its share, so that one that never answers leaves time for the next.
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - at).unwrap_or(1);
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(socket)) => return Ok(socket),
                Ok(Err(error)) => failed = error.kind(),
                Err(_) => failed = io::ErrorKind::TimedOut,
            }
        }
        Err(Failure::Connect(failed))
    }

    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, Failure> {
        let found = match target.host() {
            Host::Address(address) => vec![SocketAddr::new(*address, target.port())],
            Host::Name(name) => {
                (self.resolve)(name.clone(), target.port()).await.map_err(|_| Failure::Resolve)?
            }
        };
        if found.is_empty() {
            return Err(Failure::Resolve);
        }
        let judged = |address: &SocketAddr| may_connect(target.host(), address.ip(), &self.hosts);
        // In their one form, which is the form that was judged. A zone would choose another network.
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), target.port());
        let good: Vec<_> = found.into_iter().filter(judged).map(plain).take(ADDRESSES_MAX).collect();
        if good.is_empty() { Err(Failure::Blocked) } else { Ok(good) }
    }
}

impl Post for Client {
    async fn post(&self, target: Target, letter: Letter) -> Outcome {
        self.deliver(&target, letter).await.unwrap_or_else(Outcome::Failed)
    }
}

type Conversation =
    (http1::SendRequest<Full<Bytes>>, http1::Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>>);

fn request(target: &Target, letter: Letter) -> Result<Request<Full<Bytes>>, Failure> {
    Request::builder()
        .method(Method::POST)
        .uri(target.path_and_query())
        .header(HOST, target.authority())
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, AGENT)
        .header(CONNECTION, "close")
        .header("webhook-id", letter.id)
        .header("webhook-timestamp", letter.timestamp)
        .header("webhook-signature", letter.signature)
        .body(Full::new(letter.body))
        .map_err(|error| Failure::Http(brief(error)))
}

/// Reads the body to its end or bound.
async fn drain(answer: Response<Incoming>) {
    let mut body = answer.into_body();
    let mut left = BODY_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(bytes) else { return };
        left = rest;
    }
}

fn http(error: hyper::Error) -> Failure {
    Failure::Http(brief(error))
}

/// A text of bounded length: a receiver has a part in some of them.
fn brief(error: impl Display) -> String {
    error.to_string().chars().take(TEXT_MAX).collect()
}

pub(super) fn system_resolver(name: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
    Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) })
}
