//! A link between an agent and its hub: TCP, byte for byte, until the test cuts or freezes it.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::within;

/// Connections are numbered from 1.
#[derive(Clone, Copy)]
struct State {
    /// Where new ones lead.
    hub: SocketAddr,
    /// Connections that came.
    opened: u64,
    /// Those up to this number are closed.
    cut: u64,
    /// Those up to this number carry nothing any more, and stay open.
    frozen: u64,
    /// New ones are closed at once.
    refusing: bool,
}

/// The link.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: watch::Sender<State>,
    task: AbortHandle,
}

impl Proxy {
    pub(crate) async fn to(hub: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (state, watched) = watch::channel(State { hub, opened: 0, cut: 0, frozen: 0, refusing: false });
        let counting = state.clone();
        let task = tokio::spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                if counting.borrow().refusing {
                    continue;
                }
                counting.send_modify(|state| state.opened += 1);
                let State { opened: number, hub, .. } = *counting.borrow();
                links.spawn(carry(near, hub, number, watched.clone()));
            }
        });
        Self { address, state, task: task.abort_handle() }
    }

    /// Leads new connections to another hub; those that there are stay, as a balancer of TCP has it.
    pub(crate) fn aim(&self, hub: SocketAddr) {
        self.state.send_modify(|state| state.hub = hub);
    }

    /// Closes every connection that there is.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.cut = state.opened);
    }

    /// Carries nothing more over the connections that there are, and lets nobody know.
    pub(crate) fn freeze(&self) {
        self.state.send_modify(|state| state.frozen = state.opened);
    }

    /// Closes new connections at once, or no longer.
    pub(crate) fn refuse(&self, refusing: bool) {
        self.state.send_modify(|state| state.refusing = refusing);
    }

    /// Waits for the connection of this number.
    pub(crate) async fn opened(&self, number: u64) {
        let mut state = self.state.subscribe();
        within("a connection", state.wait_for(|state| state.opened >= number))
            .await
            .expect("the proxy stands");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut near: TcpStream, hub: SocketAddr, number: u64, mut state: watch::Receiver<State>) {
    let Ok(mut far) = TcpStream::connect(hub).await else { return };
    let (mut cutting, mut freezing) = (state.clone(), state.clone());
    tokio::select! {
        _ended = copy_bidirectional(&mut near, &mut far) => return,
        _cut = cutting.wait_for(|state| state.cut >= number) => return,
        _frozen = freezing.wait_for(|state| state.frozen >= number) => {}
    }
    // Both sockets stay open, unread.
    let _cut = state.wait_for(|state| state.cut >= number).await;
    drop((near, far));
}
