//! Where sockets come from, and where their connections live: the system's, or a network that a test simulates.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use super::threads::Threads;
use super::tls_stream::TlsStream;

/// A listener, and a place for what it accepts.
pub trait Sockets: Send + Sync + 'static {
    /// One accepted socket.
    type Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next socket, and says from where it is. Cancel-safe.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Socket, IpAddr)>> + Send;

    /// Lets a connection live. `connection` makes it of its stream, at once.
    ///
    /// # Errors
    /// When the socket cannot be moved to where connections live.
    fn settle<F>(
        &self,
        stream: TlsStream<Self::Socket>,
        connection: impl FnOnce(TlsStream<Self::Socket>) -> F,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static;
}

/// The system's TCP, and threads of the hub's for the connections.
#[derive(Debug)]
pub struct Tcp {
    listener: TcpListener,
    threads: Arc<Threads>,
}

impl Tcp {
    /// Connections of `listener` live on `threads`.
    pub const fn new(listener: TcpListener, threads: Arc<Threads>) -> Self {
        Self { listener, threads }
    }
}

impl Sockets for Tcp {
    type Socket = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, IpAddr)> {
        loop {
            let (socket, peer) = self.listener.accept().await?;
            // It fails for a peer that is gone already: a fault of that one, and none of accepting.
            if socket.set_nodelay(true).is_ok() {
                return Ok((socket, peer.ip()));
            }
        }
    }

    fn settle<F>(
        &self,
        stream: TlsStream<TcpStream>,
        connection: impl FnOnce(TlsStream<TcpStream>) -> F,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let thread = self.threads.next();
        // A socket belongs to the reactor that it was registered with: it leaves that of the handshakes here and
        // enters the one of its thread, so that what wakes it is always on the thread that it lives on.
        let stream = stream.map_socket(|socket| {
            let socket = socket.into_std()?;
            let _of_the_thread = thread.enter();
            TcpStream::from_std(socket)
        })?;
        drop(thread.spawn(connection(stream)));
        Ok(())
    }
}
