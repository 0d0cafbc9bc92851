//! From a TLS stream to a WebSocket: the path, the subprotocol, and what is answered to everything else.
//!
//! The request's head is read here and not by the WebSocket library, which closes without a word on a request
//! that is no upgrade. The library still judges the upgrade and makes the answer to it.

use std::future::poll_fn;
use std::io;

use agent_reach_protocol::limits::{CONNECT_PATH, SUBPROTOCOL_JSON, SUBPROTOCOL_MSGPACK};
use tokio_tungstenite::tungstenite::handshake::server::{create_response, write_response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, Request, Response, StatusCode, Version, header};

use super::wire::{Wire, read_more, send_all};
use crate::connection::Encoding;

/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most header lines of a request.
const HEADERS_MAX: usize = 64;

/// Why a stream did not become a WebSocket. The peer was told, if it could be.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// The stream ended or failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The request was answered with this status.
    #[error("answered {0}: {1}")]
    Refused(StatusCode, String),
}

/// An answer that is no upgrade.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) StatusCode, pub(crate) String);

/// Upgrades a stream. What came behind the request is put back into it.
///
/// # Errors
/// When the request is no upgrade, asks for another path or for no subprotocol of ours (it is answered with
/// a status from 400 on then), or the stream ends.
pub async fn upgrade(wire: &mut impl Wire) -> Result<Encoding, UpgradeError> {
    match read_head(wire).await?.and_then(|request| choose(&request)) {
        Ok((response, encoding)) => {
            send_all(wire, &written(&response)?).await?;
            Ok(encoding)
        }
        Err(Refusal(status, text)) => {
            let mut answer = written(&refused(status, &text))?;
            answer.extend_from_slice(text.as_bytes());
            send_all(wire, &answer).await?;
            poll_fn(|cx| {
                wire.end(cx);
                wire.poll_flush(cx)
            })
            .await?;
            Err(UpgradeError::Refused(status, text))
        }
    }
}

/// Reads up to the empty line. What came after it belongs to the WebSocket.
async fn read_head(wire: &mut impl Wire) -> io::Result<Result<Request<()>, Refusal>> {
    let mut head = Vec::new();
    loop {
        read_more(wire, &mut head).await?;
        match parse(&head) {
            Ok(None) if head.len() < HEAD_BYTES_MAX => {}
            Ok(None) => {
                let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                return Ok(Err(Refusal(status, format!("a request has up to {HEAD_BYTES_MAX} bytes\n"))));
            }
            Ok(Some((request, length))) => {
                wire.put_back(head.get(length..).unwrap_or_default());
                return Ok(Ok(request));
            }
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
}

/// The request with the length of its head, once it is whole.
fn parse(head: &[u8]) -> Result<Option<(Request<()>, usize)>, Refusal> {
    let bad = |reason: String| Refusal(StatusCode::BAD_REQUEST, reason);
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(head) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Err(Refusal(status, format!("a request has up to {HEADERS_MAX} headers\n")));
        }
        Err(error) => return Err(bad(format!("no HTTP request: {error}\n"))),
    };
    let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let mut builder = Request::builder()
        .method(parsed.method.unwrap_or_default())
        .uri(parsed.path.unwrap_or_default())
        .version(version);
    for header in parsed.headers.iter() {
        builder = builder.header(header.name, header.value);
    }
    builder
        .body(())
        .map(|request| Some((request, length)))
        .map_err(|error| bad(format!("no HTTP request: {error}\n")))
}

/// The answer to a request for a WebSocket of ours, and its encoding.
pub(crate) fn choose(request: &Request<()>) -> Result<(Response<()>, Encoding), Refusal> {
    if request.uri().path() != CONNECT_PATH {
        return Err(Refusal(StatusCode::NOT_FOUND, format!("the WebSocket is at {CONNECT_PATH}\n")));
    }
    let mut response = create_response(request).map_err(|error| {
        Refusal(StatusCode::BAD_REQUEST, format!("{CONNECT_PATH} takes WebSocket upgrades: {error}\n"))
    })?;
    let offered = request.headers().get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let names = offered.iter().filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(','));
    let Some(encoding) = names.map(str::trim).find_map(Encoding::of_subprotocol) else {
        let text = format!("offer the subprotocol {SUBPROTOCOL_MSGPACK} or {SUBPROTOCOL_JSON}\n");
        return Err(Refusal(StatusCode::BAD_REQUEST, text));
    };
    let name = HeaderValue::from_static(encoding.subprotocol());
    response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, name);
    Ok((response, encoding))
}

fn refused(status: StatusCode, text: &str) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(text.len()));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn written(response: &Response<()>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(256);
    write_response(&mut bytes, response).map_err(io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::wire::Plain;
    use crate::websocket::{Message, Reader};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const GOOD: &str = "GET /v1/connect HTTP/1.1\r\nHost: hub\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

    async fn answer(request: &str) -> (bool, String) {
        let (mut client, server) = duplex(64 * 1024);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut server = Plain::new(server);
        let upgraded = upgrade(&mut server).await.is_ok();
        drop(server);
        let mut answer = vec![0; 64 * 1024];
        let read = client.read(&mut answer).await.unwrap();
        answer.truncate(read);
        (upgraded, String::from_utf8(answer).unwrap())
    }

    #[tokio::test]
    async fn the_first_subprotocol_of_ours_is_chosen() {
        let offered = "Sec-WebSocket-Protocol: other, agent-reach.v1.json\r\n\
                       Sec-WebSocket-Protocol: agent-reach.v1.msgpack\r\n\r\n";
        let (upgraded, answer) = answer(&format!("{GOOD}{offered}")).await;
        assert!(upgraded);
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        assert!(answer.contains("sec-websocket-protocol: agent-reach.v1.json\r\n"), "{answer}");
        assert!(answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
    }

    #[tokio::test]
    async fn a_request_that_is_no_upgrade_of_ours_is_told_why() {
        let none = format!("{GOOD}\r\n");
        let path = none.replace("/v1/connect", "/v2");
        let plain = "GET /v1/connect HTTP/1.1\r\nHost: hub\r\n\r\n";
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        let long = format!("GET / HTTP/1.1\r\na: {}\r\n", "b".repeat(HEAD_BYTES_MAX));
        for (request, status, word) in [
            (&*none, "400", SUBPROTOCOL_JSON),
            (&path, "404", CONNECT_PATH),
            (plain, "400", "upgrade"),
            ("\u{1}\u{2}\r\n\r\n", "400", "no HTTP request"),
            (&many, "431", "64 headers"),
            (&long, "431", "16384 bytes"),
        ] {
            let (upgraded, answer) = answer(request).await;
            assert!(!upgraded);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(word), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_request_in_pieces_is_put_together_and_what_follows_is_kept() {
        let request = format!("{GOOD}Sec-WebSocket-Protocol: agent-reach.v1.msgpack\r\n\r\n");
        let (mut client, server) = duplex(64 * 1024);
        let upgraded = tokio::spawn(async move {
            let mut server = Plain::new(server);
            (upgrade(&mut server).await, server)
        });
        for byte in request.as_bytes() {
            client.write_all(&[*byte]).await.unwrap();
        }
        // A masked, empty ping right behind the head.
        client.write_all(&[0x89, 0x80, 0, 0, 0, 0]).await.unwrap();
        let (encoding, mut server) = upgraded.await.unwrap();
        assert_eq!(encoding.unwrap(), Encoding::MessagePack);
        let mut bytes = Vec::new();
        while bytes.len() < 6 {
            read_more(&mut server, &mut bytes).await.unwrap();
        }
        let mut heard = Vec::new();
        Reader::new(1000).read(&bytes, &mut |message| heard.push(message)).unwrap();
        assert_eq!(heard, [Message::Ping(bytes::Bytes::new())]);
    }
}
