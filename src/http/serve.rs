//! Serving a router on a socket that is bound already.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, warn};

/// Where a request comes from: among its extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) Option<IpAddr>);

/// Bounds of a listener.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// TLS, as it is at the moment when a connection comes: a new value counts for new connections. Default:
    /// none, plain HTTP.
    pub tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// Most connections at one time; more wait in the system's queue. Default 256.
    pub max_connections: usize,
    /// Longest TLS handshake, longest time to send the head of a request, and so also the longest that an
    /// idle connection is kept. Default 10 s.
    pub header_timeout: Duration,
    /// How long open requests may go on after the shutdown. Default 2 s.
    pub grace: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            tls: None,
            max_connections: 256,
            header_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(2),
        }
    }
}

/// Serves HTTP/1.1 until `shutdown`, and returns when the last connection is closed: idle ones at once, those
/// with a request after its answer, and all that is left after `grace`. Dropped early, it closes all at once.
///
/// The end of a drain is for the caller to choose: as long as this serves, `/readyz` can say `draining`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(false);
    let room = Arc::new(Semaphore::new(options.max_connections));
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        // Each of these may be dropped half way: a permit goes back, and an accepted socket is returned at once.
        let (permit, stream) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => {
                report(ended);
                continue;
            }
            accepted = accept(&listener, &room) => accepted,
        };
        let connection = connection(stream, router.clone(), options.clone(), stopped.clone());
        connections.spawn(async move {
            connection.await;
            drop(permit);
        });
    }
    // New clients are refused by the system from here on, and not kept waiting.
    drop(listener);
    stop.send_replace(true);
    let all = async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    };
    if timeout(options.grace, all).await.is_err() {
        debug!(connections = connections.len(), "http connections cut off at the end of the grace");
        connections.shutdown().await;
    }
}

/// A connection task ends by itself; only a panic in a handler is worth a word.
fn report(ended: Result<(), JoinError>) {
    if let Err(panic) = ended {
        error!(error = %panic, "http connection failed");
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> (Option<tokio::sync::OwnedSemaphorePermit>, TcpStream) {
    // It fails only when closed, and nobody closes it.
    let permit = Arc::clone(room).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (permit, stream),
            // Of one client that was gone already: the next may be there.
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                warn!(%error, "http connections cannot be accepted");
                // Most likely there are no file descriptors left: without a pause this would spin.
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection(
    stream: TcpStream,
    router: Router,
    options: ServeOptions,
    stopped: watch::Receiver<bool>,
) {
    let peer = stream.peer_addr().ok();
    // Answers are written whole, so there is nothing to wait for.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(?peer, %error, "http connection without nodelay");
    }
    let Some(tls) = &options.tls else {
        return requests(stream, peer, router, &options, stopped).await;
    };
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
    match timeout(options.header_timeout, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, peer, router, &options, stopped).await,
        Ok(Err(error)) => debug!(?peer, %error, "http connection without tls"),
        Err(_) => debug!(?peer, "http connection too slow for tls"),
    }
}

async fn requests<S>(
    stream: S,
    peer: Option<SocketAddr>,
    router: Router,
    options: &ServeOptions,
    stopped: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (router, address) = (TowerToHyperService::new(router), PeerAddress(peer.map(|peer| peer.ip())));
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(address);
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    // Both may be dropped: the connection is only borrowed.
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = is_true(stopped) => {
            // Closes an idle connection at once, and another one after its answer.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(?peer, %error, "http connection broken");
    }
}

/// Ends when the value is true, or its sender is gone.
async fn is_true(mut value: watch::Receiver<bool>) {
    drop(value.wait_for(|value| *value).await);
}

/// Longest head of a request. Bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Pause after a socket could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
