//! Memory of one poll; all connections of a thread use it in turn.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::task::Context;

use agent_reach_core::Outgoing;

use crate::driver::Inbound;
use crate::transport::wire::Wire;
use crate::websocket::{Carries, Header};

/// What was read. Bounded, since one read is.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) inbox: VecDeque<Inbound>,
    /// Frames that answer pings, back to back.
    pub(super) pongs: Vec<u8>,
    /// Where the last of them begins.
    pub(super) latest: usize,
}

impl Heard {
    /// Proof of life. Many in a row prove no more than one.
    pub(super) fn alive(&mut self) {
        if !matches!(self.inbox.back(), Some(Inbound::Alive)) {
            self.inbox.push_back(Inbound::Alive);
        }
    }

    pub(super) fn ping(&mut self, payload: &[u8]) {
        self.latest = self.pongs.len();
        self.pongs.extend_from_slice(Header::new(Carries::Pong, payload.len()).as_ref());
        self.pongs.extend_from_slice(payload);
        self.alive();
    }
}

/// Frames on their way to the wire, back to back: many small ones become one record and one write. Bounded, since a
/// share is.
#[derive(Default)]
pub(super) struct Plain(Vec<u8>);

#[derive(Default)]
pub(super) struct Scratch {
    pub(super) heard: Heard,
    pub(super) batch: Vec<Outgoing>,
    pub(super) plain: Plain,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Lends this thread's scratch, and leaves nothing in it.
pub(super) fn lend<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        let done = work(scratch);
        scratch.heard.inbox.clear();
        scratch.heard.pongs.clear();
        scratch.batch.clear();
        scratch.plain.0.clear();
        done
    })
}

impl Plain {
    /// Begins a frame.
    pub(super) fn header(&mut self, carries: Carries, payload: usize) {
        self.0.extend_from_slice(Header::new(carries, payload).as_ref());
    }

    /// Goes on with the payload of the frame that was begun last.
    pub(super) fn payload(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Sends what was gathered. `false`: nothing was.
    pub(super) fn send(&mut self, wire: &mut impl Wire, cx: &mut Context<'_>) -> Result<bool, ()> {
        if self.0.is_empty() {
            return Ok(false);
        }
        let sent = wire.send(cx, &self.0);
        self.0.clear();
        sent.map(|()| true).map_err(drop)
    }
}
