//! What one connection has said and heard.

use std::collections::BTreeMap;

use agent_reach_core::{ConnectionId, Outgoing};
use agent_reach_protocol::{DecodeError, Kind, ToAgent, ToHub, decode_to_agent, decode_to_hub};
use bytes::Bytes;

use super::script::Script;

/// Most ids that are kept of calls that came.
const GIVEN_MAX: usize = 8;

pub(crate) struct Conn {
    pub(crate) id: ConnectionId,
    pub(crate) name: &'static str,
    /// The last envelope that it read.
    pub(crate) last_read: Option<Bytes>,
    /// For each id: how many CALLs it sent, less how many ends it read.
    open: BTreeMap<u64, u64>,
    /// Ids of the newest calls that came to it.
    given: Vec<u64>,
    /// It read a close.
    over: bool,
}

impl Conn {
    pub(crate) const fn new(id: ConnectionId, name: &'static str) -> Self {
        Self { id, name, last_read: None, open: BTreeMap::new(), given: Vec::new(), over: false }
    }

    /// The id of a call that came; or one that never did.
    pub(crate) fn given(&self, script: &mut Script<'_>) -> u64 {
        let choice = usize::from(script.byte());
        match self.given.len() {
            0 => choice as u64 % 4,
            _ if choice >= 240 => choice as u64,
            count => self.given[choice % count],
        }
    }

    pub(crate) fn sends(&mut self, message: &Bytes) {
        let id = match decode_to_hub(message, None) {
            Ok((ToHub::Call(call), _)) => call.id,
            Err(DecodeError::Malformed { kind: Kind::Call, id: Some(id), .. }) => id,
            _ => return,
        };
        *self.open.entry(id).or_default() += 1;
    }

    pub(crate) fn reads(&mut self, batch: &[Outgoing], max_message: usize) {
        for outgoing in batch {
            assert!(!self.over, "something follows the close: {outgoing:?}");
            match outgoing {
                Outgoing::Message(_) | Outgoing::Shared(_) => {
                    let message = outgoing.message().expect("an envelope");
                    self.reads_message(&message, max_message);
                }
                Outgoing::Ping => {}
                Outgoing::Close { .. } => self.over = true,
            }
        }
    }

    fn reads_message(&mut self, message: &Bytes, max_message: usize) {
        assert!(message.len() <= max_message, "the hub sends {} bytes", message.len());
        let (envelope, _) = decode_to_agent(message).expect("the hub's own envelope is read");
        if let ToAgent::Call(call) = &envelope {
            if self.given.len() == GIVEN_MAX {
                self.given.remove(0);
            }
            self.given.push(call.id);
        }
        if let ToAgent::Result(result) = &envelope
            && !result.more
        {
            let Some(id) = result.id else {
                assert!(result.task_id.is_some(), "only a task's end has no id: {result:?}");
                self.last_read = Some(message.clone());
                return;
            };
            let open = self.open.entry(id).or_default();
            *open = open.checked_sub(1).unwrap_or_else(|| panic!("a second end of call {id}"));
        }
        self.last_read = Some(message.clone());
    }
}
