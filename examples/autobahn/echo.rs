//! An echo in the place of the hub's core, behind the hub's own connections.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use agent_reach::connection::{Connection, Edge, Turns};
use agent_reach::driver::{Inbound, Turn};
use agent_reach::transport::trust::Distrust;
use agent_reach::transport::upgrade::upgrade;
use agent_reach::transport::wire::Wire;
use agent_reach::websocket::Carries;
use agent_reach_core::{ConnectionId, Outgoing};
use bytes::Bytes;

/// The suite's largest message has 16 MiB.
const MAX_MESSAGE: usize = 17 << 20;
/// Most messages that wait for a peer that does not read.
const WAITING_MAX: usize = 10_000;

/// Answers an upgrade and echoes until the WebSocket ends.
pub(crate) async fn serve(mut wire: impl Wire + Unpin) {
    match upgrade(&mut wire).await {
        Ok(_) => {
            let id = ConnectionId { index: 0, generation: 0 };
            Connection::new(wire, Arc::new(Echo::default()), id, Marked, MAX_MESSAGE).await;
        }
        Err(error) => eprintln!("no WebSocket: {error}"),
    }
}

/// What one connection has still to hear of itself.
#[derive(Default)]
struct Echo(Mutex<VecDeque<Outgoing>>);

impl Turns for Echo {
    fn distrust(&self, _: ConnectionId, _: Distrust) {}

    fn turn(
        &self,
        _: ConnectionId,
        inbox: &mut VecDeque<Inbound>,
        _: &Waker,
        batch: &mut Vec<Outgoing>,
        may_write: bool,
    ) -> Turn {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for inbound in inbox.drain(..) {
            match inbound {
                Inbound::Message(message, _) if waiting.len() < WAITING_MAX => {
                    waiting.push_back(Outgoing::Message(message));
                }
                Inbound::Message(..) | Inbound::TooLarge => {
                    waiting.push_back(Outgoing::Close { code: 1009, reason: "too much" });
                }
                Inbound::Alive | Inbound::Broken | Inbound::Untrusted(_) | Inbound::Undeliverable(..) => {}
            }
        }
        if may_write {
            batch.extend(waiting.drain(..));
        }
        Turn::default()
    }

    fn close(&self, _: ConnectionId) {}
}

/// Text and binary messages with a byte before them that says which they are.
#[derive(Clone, Copy)]
struct Marked;

const TEXT: u8 = 0;
const BINARY: u8 = 1;

impl Edge for Marked {
    fn text(self, text: &str) -> Inbound {
        Inbound::Message([&[TEXT], text.as_bytes()].concat().into(), None)
    }

    fn binary(self, bytes: Bytes) -> Inbound {
        Inbound::Message([&[BINARY], &*bytes].concat().into(), None)
    }

    fn outbound(self, mut message: Bytes, _: usize) -> Result<(Carries, Bytes), Inbound> {
        let mark = message.split_to(message.len().min(1));
        Ok((if *mark == [TEXT] { Carries::Text } else { Carries::Binary }, message))
    }
}
