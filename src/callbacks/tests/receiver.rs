//! Receivers of webhooks on real sockets.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::certs;
use crate::transport::tls::http_server_config;

/// An authority, and a certificate of it for all receivers.
pub(super) struct Authority {
    dir: tempfile::TempDir,
}

impl Authority {
    /// The certificate is for localhost, 127.0.0.1, ::1 and these.
    pub(super) fn new(sans: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sans: Vec<String> = sans.iter().map(|san| (*san).to_owned()).collect();
        certs::init(dir.path(), &sans).unwrap();
        Self { dir }
    }

    pub(super) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    fn server(&self) -> Arc<ServerConfig> {
        http_server_config(&self.dir.path().join("hub.pem"), &self.dir.path().join("hub-key.pem")).unwrap()
    }
}

/// What a receiver does with each request.
#[derive(Clone)]
pub(super) enum Manner {
    /// Says this, and closes.
    Says(String),
    /// Reads it, and never answers.
    Silent,
    /// Takes the connection, and says nothing, not even in TLS.
    Deaf,
    /// Answers 200 and a body without an end.
    Endless,
}

impl Manner {
    pub(super) fn status(status: u16, headers: &str) -> Self {
        Self::Says(format!("HTTP/1.1 {status} Whatever\r\ncontent-length: 0\r\n{headers}\r\n"))
    }
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Received {
    /// Request line and headers, line by line.
    pub(super) head: Vec<String>,
    pub(super) body: Vec<u8>,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Listens until it is dropped.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    pub(super) requests: mpsc::Receiver<Received>,
    /// Bytes of endless bodies that could be written.
    pub(super) written: mpsc::Receiver<usize>,
    _tasks: JoinSet<()>,
}

/// Most bytes of a body without an end.
pub(super) const ENDLESS: usize = 64 << 20;

impl Receiver {
    pub(super) async fn new(authority: &Authority, ip: &str, manner: Manner) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = TlsAcceptor::from(authority.server());
        let (request, requests) = mpsc::channel(1_000);
        let (bytes, written) = mpsc::channel(1_000);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (tls, manner) = (tls.clone(), manner.clone());
                let (request, bytes) = (request.clone(), bytes.clone());
                open.spawn(async move {
                    if matches!(manner, Manner::Deaf) {
                        let _socket = socket;
                        return std::future::pending().await;
                    }
                    // A client that does not trust us goes away here.
                    let Ok(mut socket) = tls.accept(socket).await else { return };
                    let Some(received) = read(&mut socket).await else { return };
                    request.send(received).await.unwrap();
                    answer(&mut socket, &manner, &bytes).await;
                });
            }
        });
        Self { address, requests, written, _tasks: tasks }
    }

    pub(super) fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/hook?x=1", self.address.port())
    }
}

async fn read(socket: &mut (impl AsyncRead + Unpin)) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
            let head: Vec<String> = head.lines().map(str::to_owned).collect();
            let mut received = Received { head, body: bytes[at + 4..].to_vec() };
            let length: usize = received.header("content-length").unwrap().parse().unwrap();
            let mut rest = vec![0; length - received.body.len()];
            socket.read_exact(&mut rest).await.ok()?;
            received.body.extend(rest);
            return Some(received);
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

async fn answer(socket: &mut (impl AsyncWrite + Unpin), manner: &Manner, bytes: &mpsc::Sender<usize>) {
    match manner {
        Manner::Says(text) => {
            // The client need not wait for all of it.
            let written = socket.write_all(text.as_bytes()).await;
            drop(written.and(socket.shutdown().await));
        }
        Manner::Silent | Manner::Deaf => std::future::pending().await,
        Manner::Endless => {
            let mut written = 0;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", ENDLESS * 2);
            let mut sent = socket.write_all(head.as_bytes()).await;
            while sent.is_ok() && written < ENDLESS {
                sent = socket.write_all(&[b'x'; 16_384]).await;
                written += 16_384;
            }
            bytes.send(written).await.unwrap();
        }
    }
}
