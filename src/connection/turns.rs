//! What stands behind a connection.

use std::collections::VecDeque;
use std::task::Waker;

use agent_reach_core::{ConnectionId, Outgoing};

use crate::driver::{Driver, Inbound, Turn};
use crate::transport::trust::Distrust;

/// Takes what connections read, and has what they are to write. In a hub that is the driver.
pub trait Turns {
    /// One turn of a connection: takes a part of `inbox`, at least one of what is there, and appends to `batch`
    /// if it `may_write`. `waker` is woken when more is to be written, unless a write is what that waits for.
    fn turn(
        &self,
        connection: ConnectionId,
        inbox: &mut VecDeque<Inbound>,
        waker: &Waker,
        batch: &mut Vec<Outgoing>,
        may_write: bool,
    ) -> Turn;

    /// The connection's peer is trusted no more: it is told so, and its session ends.
    fn distrust(&self, connection: ConnectionId, distrust: Distrust);

    /// The connection is gone.
    fn close(&self, connection: ConnectionId);
}

impl Turns for Driver {
    fn turn(
        &self,
        connection: ConnectionId,
        inbox: &mut VecDeque<Inbound>,
        waker: &Waker,
        batch: &mut Vec<Outgoing>,
        may_write: bool,
    ) -> Turn {
        Self::turn(self, connection, inbox, waker, batch, may_write)
    }

    fn distrust(&self, connection: ConnectionId, distrust: Distrust) {
        Self::distrust(self, connection, distrust);
    }

    fn close(&self, connection: ConnectionId) {
        Self::close(self, connection);
    }
}
