//! Callers over HTTP: each connection has one call under way, and begins the next when that has ended.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::callers::{Counts, counted};
use super::{Order, answer};
use crate::dialect::{CAPABILITIES, capability};

/// Longest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 4096;

/// What to call, and how to get in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HttpJob {
    /// The hub's HTTP listener.
    pub(crate) address: SocketAddr,
    /// A bearer token that may call.
    pub(crate) token: String,
    /// Connections, and so calls in flight.
    pub(crate) connections: u32,
    /// Bytes of each body, a text in JSON.
    pub(crate) body: usize,
}

/// Runs the job until nobody gives orders any more.
///
/// # Errors
/// When one cannot connect.
pub(super) async fn run(job: HttpJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let counts = Rc::new(RefCell::new(Counts::new()?));
    let mut idle = Vec::new();
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Connect => {
                for number in 0..job.connections {
                    let stream = TcpStream::connect(job.address).await?;
                    stream.set_nodelay(true)?;
                    let request = request(&job, &capability(number % CAPABILITIES));
                    idle.push(Connection { stream, request, input: Vec::new() });
                    counts.borrow_mut().tally.connected += 1;
                }
            }
            Order::Start => {
                for connection in idle.drain(..) {
                    let counts = Rc::clone(&counts);
                    tokio::task::spawn_local(async move {
                        let Err(error) = connection.call(&counts).await;
                        let mut counts = counts.borrow_mut();
                        counts.tally.connected -= 1;
                        counts.tally.fail(&error);
                    });
                }
            }
            Order::Count | Order::Stop => {}
        }
        answer(&counted(&mut counts.borrow_mut()))?;
    }
    Ok(())
}

/// A request that is the same each time: the hub gives it its id.
fn request(job: &HttpJob, capability: &str) -> Vec<u8> {
    let text = "x".repeat(job.body.saturating_sub(2));
    let HttpJob { address, token, .. } = job;
    format!(
        "POST /v1/call/{capability} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n\"{text}\"",
        text.len() + 2
    )
    .into_bytes()
}

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    input: Vec<u8>,
}

impl Connection {
    /// Calls until something is wrong.
    async fn call(mut self, counts: &RefCell<Counts>) -> Result<std::convert::Infallible> {
        loop {
            let began = Instant::now();
            self.stream.write_all(&self.request).await?;
            self.answer().await?;
            let took = u64::try_from(began.elapsed().as_nanos())?;
            let mut counts = counts.borrow_mut();
            counts.tally.calls += 1;
            counts.latency.saturating_record(took);
        }
    }

    /// Reads an answer, which has to be a good one.
    async fn answer(&mut self) -> Result<()> {
        let (length, head) = loop {
            self.more().await?;
            if let Some(found) = head(&self.input)? {
                break found;
            }
        };
        while self.input.len() < head + length {
            self.more().await?;
        }
        self.input.clear();
        Ok(())
    }

    async fn more(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.input).await? == 0 {
            bail!("the hub closed the connection");
        }
        Ok(())
    }
}

/// Length of the body and of the head of an answer, once the head is there.
fn head(input: &[u8]) -> Result<Option<(usize, usize)>> {
    let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else {
        if input.len() > HEAD_BYTES_MAX {
            bail!("an endless head");
        }
        return Ok(None);
    };
    let head = std::str::from_utf8(input.get(..end).unwrap_or_default())?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200 ") {
        bail!("a call failed: {status}: {}", String::from_utf8_lossy(input.get(end..).unwrap_or_default()));
    }
    let length = lines
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, length) = length.context("an answer without a length")?;
    Ok(Some((length.parse()?, end + 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_by_its_head() {
        assert_eq!(head(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n").unwrap(), None);
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(head(whole).unwrap(), Some((3, whole.len() - 3)));
        assert!(head(b"HTTP/1.1 503 Service Unavailable\r\n\r\n").is_err());
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
