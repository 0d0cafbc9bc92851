//! An agent whose answers are large, and which sends them as fast as the hub takes them.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use bytes::{Buf, Bytes};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::{Order, Tally, answer};
use crate::client::{Connector, Endpoint, Link};
use crate::dialect::{CallKey, Dialect, Heard, agent};

/// What to answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GenerousJob {
    /// Where to.
    pub(crate) endpoint: Endpoint,
    /// Number of the agent.
    pub(crate) number: u32,
    /// It has the capabilities of one of so many groups.
    pub(crate) groups: u32,
    /// Bytes of each result, and of each chunk.
    pub(crate) piece: usize,
}

/// Runs the job until nobody gives orders any more.
///
/// # Errors
/// When the agent cannot connect, or loses its connection.
pub(super) async fn run(job: GenerousJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let connector = Connector::new(job.endpoint.clone())?;
    let name = agent(job.number);
    let identity = connector.identity(&name)?;
    let link = connector.register(&name, identity, job.number, Some(job.groups)).await?;
    let mut giver =
        Giver { link, number: job.number, piece: vec![0; job.piece], due: VecDeque::new(), sent: 0 };
    loop {
        tokio::select! {
            order = inbox.recv() => match order {
                Some(_) => answer(&Tally { bytes: std::mem::take(&mut giver.sent), ..Tally::default() })?,
                None => return Ok(()),
            },
            turned = giver.turn() => turned?,
        }
    }
}

/// What is still to be sent for a call.
struct Due {
    call: CallKey,
    /// Chunks before the end, and how many have left.
    chunks: u64,
    seq: u64,
    credit: u64,
}

struct Giver {
    link: Link,
    number: u32,
    piece: Vec<u8>,
    due: VecDeque<Due>,
    sent: u64,
}

impl Giver {
    /// Takes what has come, or sends one piece. Cancel-safe: what has not left stays in the link.
    async fn turn(&mut self) -> Result<()> {
        self.link.flush().await?;
        let can_send = self.due.iter().any(|due| due.chunks == due.seq || due.credit > 0);
        tokio::select! {
            biased;
            filled = self.link.fill() => filled?,
            () = std::future::ready(()), if can_send => {}
        }
        while let Some(message) = self.link.pop()? {
            self.hear(Dialect::Hub.heard(&message)?)?;
        }
        self.send();
        // The next turn flushes: orders are heard in between.
        Ok(())
    }

    fn hear(&mut self, heard: Heard) -> Result<()> {
        match heard {
            Heard::Call(call, _) => self.due.push_back(Due { call, chunks: 0, seq: 0, credit: 0 }),
            Heard::Stream(call, body, credit) => {
                let chunks = chunks_of(&body)?;
                self.due.push_back(Due { call, chunks, seq: 0, credit });
            }
            Heard::Credit(call, n) => {
                self.due.iter_mut().filter(|due| due.call == call).for_each(|due| due.credit += n);
            }
            Heard::Cancel(call) => self.due.retain(|due| due.call != call),
            Heard::Notice | Heard::Nothing => {}
        }
        Ok(())
    }

    /// Queues the next piece of the first call that may have one.
    fn send(&mut self) {
        let mut ready = self.due.iter_mut().enumerate();
        let Some((place, due)) = ready.find(|(_, due)| due.chunks == due.seq || due.credit > 0) else {
            return;
        };
        if due.seq < due.chunks {
            self.link.push(&Dialect::Hub.chunk(self.number, due.call, due.seq, &self.piece));
            due.seq += 1;
            due.credit -= 1;
            self.sent += self.piece.len() as u64;
            return;
        }
        // The end of a stream carries nothing more.
        let body: &[u8] = if due.chunks == 0 { &self.piece } else { &[] };
        self.sent += body.len() as u64;
        self.link.push(&Dialect::Hub.result(self.number, due.call, body));
        self.due.remove(place);
    }
}

fn chunks_of(body: &Bytes) -> Result<u64> {
    body.clone().try_get_u64().context("a stream that says no length")
}
