//! Guests: callers that have no WebSocket, for the time of one request.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use agent_reach_core::{ConnectionId, Input, Outgoing, Peer};
use bytes::Bytes;

use super::{Driver, Inbound, Turn};

/// A caller among the hub's connections, and no agent. Dropped, it is gone, and what it has open is cancelled.
pub struct Guest {
    driver: Arc<Driver>,
    id: ConnectionId,
    said: VecDeque<Inbound>,
    heard: VecDeque<Outgoing>,
    over: bool,
}

impl Guest {
    /// One who is this.
    #[must_use]
    pub fn new(driver: &Arc<Driver>, peer: Peer) -> Self {
        let id = driver.enter(None, |connection| Input::Guest { connection, peer });
        Self { driver: Arc::clone(driver), id, said: VecDeque::new(), heard: VecDeque::new(), over: false }
    }

    /// Says something, which the hub hears when this listens next.
    pub fn say(&mut self, inbound: Inbound) {
        self.said.push_back(inbound);
    }

    /// The next message for it; `None` when there will be none. May be dropped half way: nothing is lost.
    pub async fn hear(&mut self) -> Option<Bytes> {
        poll_fn(|cx| self.poll_hear(cx)).await
    }

    fn poll_hear(&mut self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            while let Some(outgoing) = self.heard.pop_front() {
                match outgoing {
                    Outgoing::Message(message) => return Poll::Ready(Some(message)),
                    Outgoing::Shared(shared) => return Poll::Ready(Some(shared.to_bytes())),
                    Outgoing::Ping => {}
                    Outgoing::Close { .. } => self.over = true,
                }
            }
            if self.over {
                return Poll::Ready(None);
            }
            let mut batch = Vec::new();
            let Turn { over, .. } = self.driver.turn(self.id, &mut self.said, cx.waker(), &mut batch, true);
            if batch.is_empty() && self.said.is_empty() {
                if !over {
                    return Poll::Pending;
                }
                self.over = true;
            }
            self.heard.extend(batch);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.driver.close(self.id);
    }
}
