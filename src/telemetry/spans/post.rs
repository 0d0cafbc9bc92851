//! One request to the collector, and what it says to it.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::ErrorCode;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::endpoint::Endpoint;
use crate::transport::roots::system_roots;
use crate::transport::tls::provider;

/// How long a request takes at most, from the resolving of the name to the last byte of the answer.
const WHOLE: Duration = Duration::from_secs(10);
/// How long one address gets to take a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// Most bytes of an answer before its body.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most headers of an answer.
const HEADERS_MAX: usize = 64;
/// Most bytes of an answer's body that are read.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest text of a failure, in characters.
const TEXT_MAX: usize = 200;
/// What the hub calls itself.
const AGENT: &str = concat!("agent-reach/", env!("CARGO_PKG_VERSION"));

/// What a collector says to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// 2xx. Some of the spans it may not have liked.
    Taken { refused: usize },
    /// Another status.
    Status { status: u16, retry_after: Option<Duration> },
    /// There was no answer.
    Nothing(NoAnswer),
}

/// Why there was no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("the name of the collector does not resolve")]
    Resolve,
    #[error("no connection: {0}")]
    Connect(io::ErrorKind),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("no answer in HTTP: {0}")]
    Http(String),
    #[error("no answer in time")]
    Timeout,
}

impl Answer {
    /// Whether the same may be taken later, by what OTLP says of each status.
    pub(super) const fn may_pass(&self) -> bool {
        match self {
            Self::Taken { .. } => false,
            Self::Status { status, .. } => matches!(status, 429 | 502 | 503 | 504),
            Self::Nothing(_) => true,
        }
    }

    /// For metrics: `completed`, or the error code that is the nearest.
    pub(super) const fn word(&self) -> &'static str {
        let code = match self {
            Self::Taken { .. } => return "completed",
            Self::Status { status: 429, .. } => ErrorCode::RateLimited,
            Self::Status { status: 502..=504, .. } => ErrorCode::Overloaded,
            Self::Status { status: 401 | 403, .. } | Self::Nothing(NoAnswer::Tls(_)) => {
                ErrorCode::Unauthorized
            }
            Self::Status { status: 400..=499, .. } => ErrorCode::InvalidRequest,
            Self::Status { .. } | Self::Nothing(NoAnswer::Http(_)) => ErrorCode::HandlerError,
            Self::Nothing(NoAnswer::Resolve | NoAnswer::Connect(_)) => ErrorCode::NoInstance,
            Self::Nothing(NoAnswer::Timeout) => ErrorCode::Timeout,
        };
        code.as_str()
    }

    /// For the log.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Taken { refused } => format!("{refused} spans were not taken"),
            Self::Status { status, .. } => format!("HTTP {status}"),
            Self::Nothing(why) => why.to_string(),
        }
    }
}

/// Sends one request.
pub(super) trait Post: Send + Sync + 'static {
    /// Once. Ends in bounded time.
    fn post(&self, body: Bytes) -> impl Future<Output = Answer> + Send;
}

/// A collector, over HTTP/1.1, on a connection of its own for each request.
pub(super) struct Collector {
    endpoint: Endpoint,
    tls: Option<TlsConnector>,
}

impl Collector {
    /// Reads the authorities of the system where it needs them: for the start.
    ///
    /// # Errors
    /// When no version of TLS can be used.
    pub(super) fn new(endpoint: Endpoint) -> Result<Self, rustls::Error> {
        let tls = endpoint.server_name().is_some().then(connector).transpose()?;
        Ok(Self { endpoint, tls })
    }

    async fn send(&self, body: Bytes) -> Result<Answer, NoAnswer> {
        let socket = self.connect().await?;
        match (&self.tls, self.endpoint.server_name()) {
            (Some(tls), Some(name)) => {
                let secured = tls.connect(name.clone(), socket).await;
                self.exchange(secured.map_err(|error| NoAnswer::Tls(brief(error)))?, body).await
            }
            _ => self.exchange(socket, body).await,
        }
    }

    /// Connects to the first address that answers.
    async fn connect(&self) -> Result<TcpStream, NoAnswer> {
        let found = tokio::net::lookup_host(self.endpoint.address()).await;
        let mut failed = NoAnswer::Resolve;
        for address in found.map_err(|_| NoAnswer::Resolve)? {
            match timeout(CONNECT, TcpStream::connect(address)).await {
                Ok(Ok(socket)) => return Ok(socket),
                Ok(Err(error)) => failed = NoAnswer::Connect(error.kind()),
                Err(_) => failed = NoAnswer::Connect(io::ErrorKind::TimedOut),
            }
        }
        Err(failed)
    }

    async fn exchange<S>(&self, stream: S, body: Bytes) -> Result<Answer, NoAnswer>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.endpoint.path())
            .header(HOST, self.endpoint.authority())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(USER_AGENT, AGENT)
            .header(CONNECTION, "close")
            .body(Full::new(body))
            .map_err(|error| NoAnswer::Http(brief(error)))?;
        let spoken = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .handshake(TokioIo::new(stream))
            .await;
        let (mut sender, connection) = spoken.map_err(http)?;
        let answered = async move { Ok(answer(sender.send_request(request).await.map_err(http)?).await) };
        tokio::pin!(answered, connection);
        // Both may be dropped at any point: the answer is the only thing that is wanted of them.
        tokio::select! {
            biased;
            answer = &mut answered => answer,
            _ = &mut connection => answered.await,
        }
    }
}

impl Post for Collector {
    async fn post(&self, body: Bytes) -> Answer {
        let deadline = tokio::time::Instant::now() + WHOLE;
        let sent = timeout_at(deadline, self.send(body)).await.unwrap_or(Err(NoAnswer::Timeout));
        sent.unwrap_or_else(Answer::Nothing)
    }
}

fn connector() -> Result<TlsConnector, rustls::Error> {
    let mut tls = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_root_certificates(system_roots())
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(tls)))
}

async fn answer(response: Response<Incoming>) -> Answer {
    let status = response.status();
    if !status.is_success() {
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        // As a date it is taken for none: the pauses grow by themselves.
        let retry_after = after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        return Answer::Status { status: status.as_u16(), retry_after };
    }
    let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
    // Whatever else it says, it has taken them.
    let said = body.ok().and_then(|body| ExportTraceServiceResponse::decode(body.to_bytes()).ok());
    let refused = said.and_then(|said| said.partial_success).map_or(0, |partial| partial.rejected_spans);
    Answer::Taken { refused: usize::try_from(refused).unwrap_or(0) }
}

fn http(error: hyper::Error) -> NoAnswer {
    NoAnswer::Http(brief(error))
}

/// A text of bounded length: a collector has a part in some of them.
fn brief(error: impl Display) -> String {
    error.to_string().chars().take(TEXT_MAX).collect()
}
