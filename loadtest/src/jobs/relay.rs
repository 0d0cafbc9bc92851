//! The floor: a relay over mutual TLS that does nothing but pass messages on, written as the hub's
//! connections are. What the hub costs above it is the price of being a hub.

use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use anyhow::{Context as _, Result, anyhow};
use bytes::{Bytes, BytesMut};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{Order, Tally, answer};
use crate::client::roots;
use crate::dialect::{EVERYBODY, FIRST_CALLER, destination, notice_answer};
use crate::frame::{Framing, Incoming};

/// Most callers.
const CALLERS: usize = 1024;
/// Most bytes that are read before what they hold is passed on.
const READ_BYTES: usize = 64 * 1024;

/// What the relay needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RelayJob {
    /// The directory with its certificates.
    pub(crate) certs: PathBuf,
    /// How many agents there will be.
    pub(crate) agents: u32,
}

/// What waits to be written to one connection.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    waker: Option<Waker>,
    /// Those among the bytes that went to all.
    notices: Vec<Arc<Notice>>,
}

/// A message to all agents, until it has left for each.
struct Notice {
    left: AtomicUsize,
    /// What its sender then gets.
    answer: Bytes,
}

/// The outboxes, by number.
struct Table {
    agents: Vec<Mutex<Outbox>>,
    callers: Vec<Mutex<Outbox>>,
}

impl Table {
    fn new(agents: u32) -> Self {
        let places = |count| std::iter::repeat_with(Mutex::default).take(count).collect();
        Self { agents: places(agents as usize), callers: places(CALLERS) }
    }

    fn of(&self, number: u32) -> Option<MutexGuard<'_, Outbox>> {
        let (row, index) = match number.checked_sub(FIRST_CALLER) {
            Some(caller) => (&self.callers, caller),
            None => (&self.agents, number),
        };
        Some(row.get(index as usize)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs the relay until nobody gives orders any more. It has threads of its own, as the hub has.
///
/// # Errors
/// When it cannot listen, or its certificates cannot be read.
pub(super) async fn run(job: RelayJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let tls = TlsAcceptor::from(Arc::new(server_config(&job.certs)?));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime.spawn(TcpListener::bind("127.0.0.1:0")).await??;
    let address = listener.local_addr()?;
    let accepting = runtime.spawn(accept(listener, tls, job.agents));
    while inbox.recv().await.is_some() {
        answer(&Tally { address: Some(address), ..Tally::default() })?;
    }
    accepting.abort();
    runtime.shutdown_background();
    Ok(())
}

fn server_config(certs: &std::path::Path) -> Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots(certs)?), Arc::clone(&provider));
    let chain = CertificateDer::pem_file_iter(certs.join("hub.pem"))?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(certs.join("hub-key.pem")).context("hub-key.pem")?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier.build()?)
        .with_single_cert(chain, key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, agents: u32) -> Result<()> {
    let table = Arc::new(Table::new(agents));
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await?;
        connections.spawn(admit(socket, tls.clone(), Arc::clone(&table)));
    }
}

async fn admit(socket: TcpStream, tls: TlsAcceptor, table: Arc<Table>) -> Result<()> {
    socket.set_nodelay(true)?;
    let mut stream = tls.accept(socket).await?;
    let mut hello = [0; 8];
    stream.read_exact(&mut hello).await?;
    let (_, number) = hello.split_at(4);
    let number = u32::from_be_bytes(number.try_into()?);
    // An empty message is the welcome.
    stream.write_all(&[0; 4]).await?;
    stream.flush().await?;
    let (input, output, leaving) = Default::default();
    let mut connection = Connection { stream, table, number, input, output, written: 0, leaving };
    poll_fn(|cx| connection.poll(cx)).await
}

struct Connection {
    stream: TlsStream<TcpStream>,
    table: Arc<Table>,
    number: u32,
    input: BytesMut,
    output: Vec<u8>,
    /// How much of `output` has left.
    written: usize,
    /// Those in `output` that went to all.
    leaving: Vec<Arc<Notice>>,
}

impl Connection {
    /// Passes on what can be read, then writes what waits: each as one batch.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            let read = self.read(cx)?;
            self.pass_on()?;
            let wrote = self.write(cx)?;
            if !read && !wrote {
                return Poll::Pending;
            }
        }
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let before = self.input.len();
        while self.input.len() - before < READ_BYTES {
            let mut buffer = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Err(anyhow!("closed")),
                Poll::Ready(Ok(())) => self.input.extend_from_slice(buffer.filled()),
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Pending => break,
            }
        }
        Ok(self.input.len() > before)
    }

    fn pass_on(&mut self) -> Result<()> {
        let mut wakers = Vec::new();
        while let Some(Incoming::Message(message)) = Framing::Length.pop(&mut self.input)? {
            let to = destination(&message);
            if to == Some(EVERYBODY) {
                self.tell_all(&message, &mut wakers);
                continue;
            }
            let Some(mut outbox) = to.and_then(|to| self.table.of(to)) else { continue };
            Framing::Length.push(&mut outbox.bytes, &message);
            wakers.extend(outbox.waker.take());
        }
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn tell_all(&self, message: &[u8], wakers: &mut Vec<Waker>) {
        let Some(answer) = notice_answer(message) else { return };
        let notice = Arc::new(Notice { left: AtomicUsize::new(self.table.agents.len()), answer });
        for outbox in &self.table.agents {
            let mut outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
            Framing::Length.push(&mut outbox.bytes, message);
            outbox.notices.push(Arc::clone(&notice));
            wakers.extend(outbox.waker.take());
        }
    }

    /// What was written has left: who sent a message to all is told when that was its last.
    fn has_left(&mut self) {
        for notice in self.leaving.drain(..) {
            if notice.left.fetch_sub(1, Ordering::Relaxed) > 1 {
                continue;
            }
            let to = destination(&notice.answer);
            let Some(mut outbox) = to.and_then(|to| self.table.of(to)) else { continue };
            Framing::Length.push(&mut outbox.bytes, &notice.answer);
            let waker = outbox.waker.take();
            drop(outbox);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Writes until all has left, or the socket takes no more. `true`: it wrote something, look again.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        if self.output.is_empty() {
            let Some(mut outbox) = self.table.of(self.number) else { return Ok(false) };
            std::mem::swap(&mut self.output, &mut outbox.bytes);
            std::mem::swap(&mut self.leaving, &mut outbox.notices);
            outbox.waker = Some(cx.waker().clone());
        }
        if self.output.is_empty() {
            return Ok(false);
        }
        match self.poll_output(cx) {
            Poll::Ready(done) => {
                done?;
                self.output.clear();
                self.written = 0;
                self.has_left();
                Ok(true)
            }
            Poll::Pending => Ok(false),
        }
    }

    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            self.written += std::task::ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}
