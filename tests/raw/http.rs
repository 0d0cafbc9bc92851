//! A GET, and no more of HTTP than that needs.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The answer to a GET.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// `GET path` in plain HTTP/1.1.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    super::within(&format!("GET {path}"), async {
        let mut stream = TcpStream::connect(address).await.expect("HTTP listener");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("answer");
        let answer = String::from_utf8(answer).expect("UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP head");
        Answer { status: status(head), head: head.to_owned(), body: body.to_owned() }
    })
    .await
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
