//! From a TLS stream to a WebSocket: the path, the subprotocol, and what is answered to everything else.

use agent_reach_protocol::limits::{CONNECT_PATH, SUBPROTOCOL_JSON, SUBPROTOCOL_MSGPACK};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config, tungstenite};

use crate::connection::Encoding;

/// Upgrades a stream.
///
/// # Errors
/// When the request is no upgrade, asks for another path or for no subprotocol of ours (it is answered with
/// 404 or 400 then), or the stream ends.
pub async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    config: WebSocketConfig,
) -> Result<(WebSocketStream<S>, Encoding), tungstenite::Error> {
    let mut chosen = Encoding::MessagePack;
    let socket = accept_hdr_async_with_config(
        stream,
        |request: &Request, response: Response| {
            let (response, encoding) = choose(request, response)?;
            chosen = encoding;
            Ok(response)
        },
        Some(config),
    )
    .await?;
    Ok((socket, chosen))
}

#[expect(clippy::result_large_err, reason = "the library's callback has this shape")]
fn choose(request: &Request, mut response: Response) -> Result<(Response, Encoding), ErrorResponse> {
    if request.uri().path() != CONNECT_PATH {
        return Err(refusal(StatusCode::NOT_FOUND, format!("the WebSocket is at {CONNECT_PATH}\n")));
    }
    let offered = request.headers().get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let names = offered.iter().filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(','));
    let Some(encoding) = names.map(str::trim).find_map(Encoding::of_subprotocol) else {
        let text = format!("offer the subprotocol {SUBPROTOCOL_MSGPACK} or {SUBPROTOCOL_JSON}\n");
        return Err(refusal(StatusCode::BAD_REQUEST, text));
    };
    let name = HeaderValue::from_static(encoding.subprotocol());
    response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, name);
    Ok((response, encoding))
}

fn refusal(status: StatusCode, text: String) -> ErrorResponse {
    let length = HeaderValue::from(text.len());
    let mut response = ErrorResponse::new(Some(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONTENT_LENGTH, length);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
