//! What was sent and what came back: every number exactly once, whole and in order.

use std::collections::HashMap;

use bytes::{Buf, Bytes};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::dialect::Outcome;

/// Bytes of a body that say what it is: how many chunks are wanted, and its number.
pub(super) const HEAD_BYTES: usize = 16;

/// The result of a check, as counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Calls that were sent.
    pub(crate) sent: u64,
    /// Those that came back as they had to.
    pub(crate) good: u64,
    /// Those to agents that come and go which ended with an error, as they may.
    pub(crate) lost: u64,
    /// Those that ended with an error although their agents stay.
    pub(crate) failed: u64,
    /// Those that came back with another's number, or with a piece missing or out of order.
    pub(crate) wrong: u64,
    /// Ends and pieces of calls that were over.
    pub(crate) twice: u64,
    /// Those that never ended.
    pub(crate) missing: u64,
    /// The first thing that was not as it has to be, in words.
    pub(crate) fault: Option<String>,
}

impl Account {
    /// Whether every number came back exactly once.
    pub(crate) fn is_balanced(&self) -> bool {
        self.failed + self.wrong + self.twice + self.missing == 0 && self.good + self.lost == self.sent
    }

    fn blame(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }
}

/// What has to come back for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Its body, from an agent that stays.
    Body,
    /// Its body, or an error: its agent comes and goes.
    BodyOrLoss,
    /// So many chunks, each with the body, and then the body.
    Chunks(u64),
    /// A part from each of so many agents, and their number.
    Parts(u64),
}

/// A call that has not ended.
#[derive(Debug)]
struct Entry {
    due: Due,
    began: Instant,
    /// Chunks or parts that have come.
    pieces: u64,
    /// Whether a piece was wrong.
    spoilt: bool,
}

/// The calls of one caller, by id.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    caller: u32,
    open: HashMap<u64, Entry>,
    account: Account,
}

impl Ledger {
    /// That of the caller with this number.
    pub(super) fn new(caller: u32) -> Self {
        Self { caller, ..Self::default() }
    }

    /// The head of the body of the call with this id, which is sent now.
    pub(super) fn send(&mut self, id: u64, due: Due, now: Instant) -> [u8; HEAD_BYTES] {
        self.account.sent += 1;
        self.open.insert(id, Entry { due, began: now, pieces: 0, spoilt: false });
        let chunks = if let Due::Chunks(chunks) = due { chunks } else { 0 };
        (u128::from(chunks) << 64 | u128::from(self.number(id))).to_be_bytes()
    }

    /// A chunk came. Says how many of its stream have come; `None`: the stream is over.
    pub(super) fn chunk(&mut self, id: u64, seq: u64, body: &Bytes) -> Option<u64> {
        let own = self.is_own(id, body);
        let Some(entry) = self.open.get_mut(&id) else {
            self.account.twice += 1;
            self.account.blame(format!("chunk {seq} of call {id}, which was over"));
            return None;
        };
        if seq != entry.pieces || !own {
            entry.spoilt = true;
            self.account
                .blame(format!("chunk {seq} of call {id} where {} was due; own: {own}", entry.pieces));
        }
        entry.pieces += 1;
        Some(entry.pieces)
    }

    /// One agent's part of a fan-out ended.
    pub(super) fn part(&mut self, id: u64) {
        match self.open.get_mut(&id) {
            Some(entry) => entry.pieces += 1,
            None => {
                self.account.twice += 1;
                self.account.blame(format!("a part of call {id}, which was over"));
            }
        }
    }

    /// A call ended. Says when it began, and whether it was a plain one that came back well.
    pub(super) fn end(&mut self, id: u64, outcome: &Outcome) -> Option<(Instant, bool)> {
        let Some(Entry { due, began, pieces, spoilt }) = self.open.remove(&id) else {
            self.account.twice += 1;
            self.account.blame(format!("an end of call {id}, which was over: {outcome:?}"));
            return None;
        };
        let whole = match due {
            Due::Body | Due::BodyOrLoss => pieces == 0,
            Due::Chunks(due) | Due::Parts(due) => pieces == due,
        };
        let fits = match (outcome, due) {
            (Outcome::Completed(body), Due::Body | Due::BodyOrLoss | Due::Chunks(_)) => self.is_own(id, body),
            (Outcome::Summary(targets), Due::Parts(due)) => *targets == due,
            (Outcome::Failed(_), Due::BodyOrLoss) => {
                self.account.lost += 1;
                return Some((began, false));
            }
            (Outcome::Failed(code), _) => {
                self.account.failed += 1;
                self.account.blame(format!("call {id} ({due:?}) failed: {code}"));
                return Some((began, false));
            }
            (Outcome::Completed(_), Due::Parts(_)) | (Outcome::Summary(_), _) => false,
        };
        if fits && whole && !spoilt {
            self.account.good += 1;
        } else {
            self.account.wrong += 1;
            self.account.blame(format!("call {id} ({due:?}) ended after {pieces} pieces; own: {fits}"));
        }
        Some((began, due == Due::Body))
    }

    /// Whether nothing is open.
    pub(super) fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// The account, as it is when nothing more will come.
    pub(super) fn close(&self) -> Account {
        let mut account = self.account.clone();
        account.missing = self.open.len() as u64;
        if let Some((id, entry)) = self.open.iter().next() {
            account.blame(format!("call {id} ({:?}) never ended", entry.due));
        }
        account
    }

    /// No other call of any caller has it.
    fn number(&self, id: u64) -> u64 {
        u64::from(self.caller) << 40 | id
    }

    fn is_own(&self, id: u64, body: &Bytes) -> bool {
        let mut body = body.clone();
        body.try_get_u64().is_ok() && body.try_get_u64().is_ok_and(|number| number == self.number(id))
    }
}

impl std::ops::AddAssign for Account {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.good += other.good;
        self.lost += other.lost;
        self.failed += other.failed;
        self.wrong += other.wrong;
        self.twice += other.twice;
        self.missing += other.missing;
        self.fault = self.fault.take().or(other.fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ledger with one call of each kind: their bodies.
    fn ledger(dues: &[Due]) -> (Ledger, Vec<Bytes>) {
        let mut ledger = Ledger::new(3);
        let now = Instant::now();
        let bodies = (1..).zip(dues).map(|(id, due)| Bytes::copy_from_slice(&ledger.send(id, *due, now)));
        let bodies = bodies.collect();
        (ledger, bodies)
    }

    fn completed(body: &Bytes) -> Outcome {
        Outcome::Completed(body.clone())
    }

    #[test]
    fn what_comes_back_once_and_whole_is_balanced() {
        let (mut ledger, bodies) = ledger(&[Due::Body, Due::Chunks(2), Due::Parts(2), Due::BodyOrLoss]);
        assert!(ledger.end(1, &completed(&bodies[0])).is_some_and(|(_, plain)| plain));
        assert_eq!((ledger.chunk(2, 0, &bodies[1]), ledger.chunk(2, 1, &bodies[1])), (Some(1), Some(2)));
        ledger.end(2, &completed(&bodies[1]));
        ledger.part(3);
        ledger.part(3);
        ledger.end(3, &Outcome::Summary(2));
        ledger.end(4, &Outcome::Failed("agent_lost".into()));
        let account = ledger.close();
        assert_eq!((account.sent, account.good, account.lost), (4, 3, 1));
        assert!(ledger.is_settled() && account.is_balanced(), "{account:?}");
    }

    #[test]
    fn what_ends_twice_or_never_is_found() {
        let (mut twice, bodies) = ledger(&[Due::Body]);
        twice.end(1, &completed(&bodies[0]));
        twice.end(1, &completed(&bodies[0]));
        assert_eq!((twice.close().twice, twice.close().is_balanced()), (1, false));
        let (never, _) = ledger(&[Due::Body]);
        assert_eq!((never.close().missing, never.close().is_balanced()), (1, false));
        let (mut late, bodies) = ledger(&[Due::Chunks(1)]);
        late.chunk(1, 0, &bodies[0]);
        late.end(1, &completed(&bodies[0]));
        assert_eq!(late.chunk(1, 1, &bodies[0]), None);
        assert!(!late.close().is_balanced());
    }

    #[test]
    fn what_comes_back_as_something_else_is_found() {
        let (mut swapped, bodies) = ledger(&[Due::Body, Due::Body]);
        swapped.end(1, &completed(&bodies[1]));
        swapped.end(2, &completed(&Bytes::new()));
        assert_eq!(swapped.close().wrong, 2);
        let (mut gap, bodies) = ledger(&[Due::Chunks(2), Due::Parts(2), Due::Parts(2)]);
        gap.chunk(1, 1, &bodies[0]);
        gap.chunk(1, 0, &bodies[0]);
        gap.end(1, &completed(&bodies[0]));
        gap.part(2);
        gap.end(2, &Outcome::Summary(2));
        gap.part(3);
        gap.part(3);
        gap.end(3, &Outcome::Summary(1));
        assert_eq!((gap.close().wrong, gap.close().is_balanced()), (3, false));
        let (mut failed, _) = ledger(&[Due::Body]);
        failed.end(1, &Outcome::Failed("timeout".into()));
        assert_eq!((failed.close().failed, failed.close().is_balanced()), (1, false));
    }
}
