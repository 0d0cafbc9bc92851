//! One request's time as a guest of the core.

use std::time::Duration;

use agent_reach_protocol::{Credit, GoodbyeCode, Kind, ToAgent, decode_to_agent, encode};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::asking::ID;
use super::status::{Failed, sent_away};
use crate::connection::{Edge as _, Encoding};
use crate::driver::{Guest, Inbound};
use crate::http::Problem;

/// The headers of what the hub says of a call, in one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Head {
    pub(super) status: String,
    pub(super) request_id: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) target: Option<String>,
    pub(super) attempt: Option<u64>,
    pub(super) task_id: Option<String>,
    pub(super) execution_ms: Option<Value>,
    pub(super) cached: bool,
    pub(super) duplicate: bool,
    pub(super) more: bool,
    pub(super) summary: Option<Value>,
    pub(super) error: Option<Failed>,
    pub(super) seq: Option<u64>,
    code: String,
    message: String,
}

impl Head {
    /// Whether this is of a call, or a part of it, that was completed.
    pub(super) fn is_completed(&self) -> bool {
        self.status == "completed"
    }

    /// Why it was not.
    pub(super) fn problem(&mut self) -> Problem {
        self.error.take().unwrap_or_default().problem()
    }
}

/// Something that the hub said of the call.
#[derive(Debug)]
pub(super) enum Heard {
    Accept(Head),
    Chunk(Head, Option<Box<RawValue>>),
    /// The last there is, unless there is more.
    Result(Head, Option<Box<RawValue>>),
}

/// A guest with one call.
pub(super) struct Visit {
    guest: Option<Guest>,
    place: Option<OwnedSemaphorePermit>,
    /// How long the call waits for a client that went away and may ask for it again.
    keeps: Option<Duration>,
    goodbye: Option<GoodbyeCode>,
    ended: bool,
}

impl Visit {
    pub(super) const fn new(guest: Guest, place: OwnedSemaphorePermit, keeps: Option<Duration>) -> Self {
        Self { guest: Some(guest), place: Some(place), keeps, goodbye: None, ended: false }
    }

    /// Says something, which the hub hears when this listens next.
    pub(super) fn say(&mut self, inbound: Inbound) {
        if let Some(guest) = &mut self.guest {
            guest.say(inbound);
        }
    }

    /// Lets the provider be one chunk further ahead.
    pub(super) fn credit(&mut self, target: Option<&str>) {
        self.say(Inbound::Message(encode(&Credit { id: ID, n: 1, target }, None), None));
    }

    /// Whether all that there is was heard.
    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// What the hub says next.
    ///
    /// # Errors
    /// When it says nothing more, and the call has not ended.
    pub(super) async fn hear(&mut self) -> Result<Heard, Problem> {
        loop {
            let message = match &mut self.guest {
                Some(guest) => guest.hear().await,
                None => None,
            };
            let Some(message) = message else {
                self.ended = true;
                return Err(sent_away(self.goodbye));
            };
            match Encoding::Json.outbound(message, usize::MAX) {
                Ok((_, text)) => {
                    if let Some(heard) = self.read(&text)? {
                        return Ok(heard);
                    }
                }
                // Of a body that has no JSON: the hub says what becomes of the call.
                Err(undeliverable) => self.say(undeliverable),
            }
        }
    }

    fn read(&mut self, text: &Bytes) -> Result<Option<Heard>, Problem> {
        let Ok((kind, head, body)) = serde_json::from_slice::<(u64, Head, Option<Box<RawValue>>)>(text)
        else {
            return Ok(None);
        };
        let Some(kind) = Kind::from_number(kind) else { return Ok(None) };
        match kind {
            Kind::Accept => Ok(Some(Heard::Accept(head))),
            Kind::Chunk => Ok(Some(Heard::Chunk(head, body))),
            Kind::Result => {
                self.ended = !head.more;
                Ok(Some(Heard::Result(head, body)))
            }
            Kind::Error => {
                self.ended = true;
                let Head { code, message, .. } = head;
                Err(Failed { code, message, ..Failed::default() }.problem())
            }
            Kind::Goodbye => {
                self.goodbye = GoodbyeCode::parse(&head.code);
                Ok(None)
            }
            Kind::Hello
            | Kind::Welcome
            | Kind::Update
            | Kind::Call
            | Kind::Credit
            | Kind::Cancel
            | Kind::Receipt => Ok(None),
        }
    }
}

impl Drop for Visit {
    /// The client is gone, or has all it wants. A call that it cannot ask for again is cancelled with its guest. One that
    /// has a name of the client's own is carried for as long as an agent's would be.
    fn drop(&mut self) {
        let (Some(time), false) = (self.keeps, self.ended) else { return };
        let (Some(guest), place) = (self.guest.take(), self.place.take()) else { return };
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn(async move {
                let ended = timeout(time, until_result(guest)).await;
                drop((ended, place));
            }));
        }
    }
}

async fn until_result(mut guest: Guest) {
    while let Some(message) = guest.hear().await {
        if let Ok((ToAgent::Result(result), _)) = decode_to_agent(&message)
            && !result.more
        {
            return;
        }
    }
}
