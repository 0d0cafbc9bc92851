//! The socket: TCP, TLS, WebSocket upgrade. The seam for tests is [`Dial`]: any byte stream will do.

use std::io;
use std::time::Duration;

use agent_reach_protocol::limits::{CONNECT_PATH, SUBPROTOCOL_MSGPACK};
use futures_util::future::BoxFuture;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Request, Uri, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Error as WsError};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::errors::ConnectError;
use crate::tls::Tls;

/// TCP, TLS and upgrade together must be done in this time.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest message taken from a hub. Its own limit is smaller; this only guards against a broken one.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A connection that bytes go through.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A WebSocket over any of them.
pub(crate) type Socket = WebSocketStream<Box<dyn Io>>;

/// Opens the byte stream to the hub.
pub(crate) trait Dial: Send + Sync {
    fn dial(&self) -> BoxFuture<'_, Result<Box<dyn Io>, ConnectError>>;
}

/// TCP, with TLS for `wss://`.
pub(crate) struct NetworkDial {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `None`: plain `ws://`, for a hub on the same machine.
    pub(crate) tls: Option<Tls>,
}

impl Dial for NetworkDial {
    fn dial(&self) -> BoxFuture<'_, Result<Box<dyn Io>, ConnectError>> {
        Box::pin(async {
            let tcp = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(io_error)?;
            // Small frames must not wait for an acknowledgement; batches are made by whoever writes.
            tcp.set_nodelay(true).map_err(io_error)?;
            let Some(tls) = &self.tls else { return Ok(Box::new(tcp) as Box<dyn Io>) };
            let config = tls.load().await?;
            let name =
                ServerName::try_from(self.host.clone()).map_err(|e| ConnectError::Tls(e.to_string()))?;
            let stream = TlsConnector::from(config).connect(name, tcp).await.map_err(tls_error)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }
}

/// Where the hub is, as its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) url: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) secure: bool,
}

impl Address {
    /// Reads `wss://HOST[:7443][/path]`; the path defaults to `/v1/connect`.
    pub(crate) fn parse(url: &str) -> Result<Self, ConnectError> {
        let wrong = |what: &str| ConnectError::Config(format!("hub address {url:?}: {what}"));
        let uri: Uri = url.parse().map_err(|_| wrong("is no URL"))?;
        let secure = match uri.scheme_str() {
            Some("wss") => true,
            Some("ws") => false,
            _ => return Err(wrong("must begin with wss:// (or ws:// for a hub on this machine)")),
        };
        let host = uri.host().ok_or_else(|| wrong("has no host"))?;
        let port = uri.port_u16().unwrap_or(if secure { 7443 } else { 7080 });
        let path = match uri.path_and_query().map_or("/", |p| p.as_str()) {
            "/" | "" => CONNECT_PATH,
            other => other,
        };
        let scheme = if secure { "wss" } else { "ws" };
        let url = format!("{scheme}://{host}:{port}{path}");
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { url, host, port, secure })
    }

    fn request(&self, token: Option<&str>) -> Result<Request<()>, ConnectError> {
        let config = |e: &dyn std::fmt::Display| ConnectError::Config(e.to_string());
        let mut request = self.url.as_str().into_client_request().map_err(|e| config(&e))?;
        let headers = request.headers_mut();
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL_MSGPACK));
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|e| config(&e))?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(request)
    }
}

/// Dials and upgrades, within [`DIAL_TIMEOUT`].
pub(crate) async fn connect(
    dial: &dyn Dial,
    address: &Address,
    token: Option<&str>,
) -> Result<Socket, ConnectError> {
    let work = async {
        let stream = dial.dial().await?;
        let request = address.request(token)?;
        let (socket, _) = client_async_with_config(request, stream, Some(websocket_config()))
            .await
            .map_err(upgrade_error)?;
        Ok(socket)
    };
    tokio::time::timeout(DIAL_TIMEOUT, work)
        .await
        .unwrap_or_else(|_| Err(ConnectError::Io(format!("no connection within {DIAL_TIMEOUT:?}"))))
}

/// Every limit set: the library's defaults are 128 KiB for each connection and no bound at all for writing.
pub(crate) fn websocket_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(8 * 1024)
        .write_buffer_size(16 * 1024)
        // The driver writes only while the socket takes; one whole message more must still fit.
        .max_write_buffer_size(MESSAGE_BYTES_MAX + 64 * 1024)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
        .accept_unmasked_frames(false)
}

fn io_error(error: io::Error) -> ConnectError {
    ConnectError::Io(error.to_string())
}

fn tls_error(error: io::Error) -> ConnectError {
    if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
        ConnectError::Tls(error.to_string())
    } else {
        io_error(error)
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a library's errors: all others are the network's")]
fn upgrade_error(error: WsError) -> ConnectError {
    match error {
        // A client certificate is refused after our side of the handshake is done: it shows on first read.
        WsError::Io(error) => tls_error(error),
        WsError::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            let text = String::from_utf8_lossy(body.get(..body.len().min(512)).unwrap_or_default());
            ConnectError::Http { status: response.status().as_u16(), reason: text.trim().to_owned() }
        }
        WsError::Protocol(tungstenite::error::ProtocolError::SecWebSocketSubProtocolError(e)) => {
            ConnectError::Config(format!("the hub does not speak {SUBPROTOCOL_MSGPACK}: {e}"))
        }
        other => ConnectError::Io(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connect_path_is_added_where_no_path_is_given() {
        let url = |text| Address::parse(text).unwrap().url;
        assert_eq!(url("wss://hub.example:7443"), "wss://hub.example:7443/v1/connect");
        assert_eq!(url("wss://hub.example/"), "wss://hub.example:7443/v1/connect");
        assert_eq!(url("wss://hub.example:1/other"), "wss://hub.example:1/other");
        assert_eq!(Address::parse("ws://[::1]:5").unwrap().host, "::1");
    }

    #[test]
    fn other_schemes_are_refused() {
        for text in ["https://hub.example", "hub.example:7443", "", "wss://"] {
            assert!(matches!(Address::parse(text), Err(ConnectError::Config(_))), "{text} was taken");
        }
    }
}
