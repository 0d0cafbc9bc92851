//! HTTP, and no more of it than that needs.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header, if there is one.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The `code` of a problem document, whose status has to be that of the head.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{self:?}");
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{self:?}");
        assert!(problem["retryable"].is_boolean() && problem["details"].is_object(), "{self:?}");
        problem["code"].as_str().expect("a code").to_owned()
    }

    /// The cookie that is set, without its attributes.
    pub(crate) fn cookie(&self) -> String {
        let set = self.field("set-cookie").unwrap_or_else(|| panic!("no cookie: {self:?}"));
        set.split(';').next().unwrap_or_default().to_owned()
    }
}

/// `GET path` in plain HTTP/1.1.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, "GET", path, "", "").await
}

/// A request with these further header lines, each with its end, and this body.
pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str, lines: &str, body: &str) -> Answer {
    super::within(&format!("{method} {path}"), async {
        let mut stream = send(address, method, path, lines, body).await;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("answer");
        let answer = String::from_utf8(answer).expect("UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP head");
        Answer { status: status(head), head: head.to_owned(), body: body.to_owned() }
    })
    .await
}

/// Sends a request and gives what the answer will come on. HTTP/1.0, so that an answer without a known length is what
/// comes up to the end, and in no pieces.
pub(crate) async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    lines: &str,
    body: &str,
) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("HTTP listener");
    let length = match body {
        "" => String::new(),
        body => format!("Content-Length: {}\r\n", body.len()),
    };
    let host = if lines.to_ascii_lowercase().contains("host: ") {
        String::new()
    } else {
        format!("Host: {address}\r\n")
    };
    let request = format!("{method} {path} HTTP/1.0\r\n{host}{length}{lines}\r\n{body}");
    stream.write_all(request.as_bytes()).await.expect("request");
    stream
}

/// The status code in an HTTP head.
pub(crate) fn status(head: &str) -> u16 {
    let code = head.split_whitespace().nth(1).unwrap_or_default();
    code.parse().unwrap_or_else(|_| panic!("no HTTP status in {head:?}"))
}

/// The value of `name` in an HTTP head.
pub(crate) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
