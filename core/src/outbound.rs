//! What waits to be written to one connection: data, bounded in bytes, that the connection takes in batches.
//!
//! Control envelopes (WELCOME, ACCEPT, CREDIT, CANCEL, GOODBYE, pings) never wait behind queued bodies. The one
//! exception keeps order: a control envelope about a CALL that is itself still queued stays behind it.

use std::collections::VecDeque;

use agent_reach_protocol::Shared;
use bytes::Bytes;

use crate::time::Now;

/// One thing to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// An envelope, as MessagePack.
    Message(Bytes),
    /// A copy of an envelope that goes to many, as MessagePack.
    Shared(Shared),
    /// A WebSocket ping.
    Ping,
    /// A WebSocket close with this code; nothing follows it.
    Close {
        /// Close code.
        code: u16,
        /// The GOODBYE code as text.
        reason: &'static str,
    },
}

impl Outgoing {
    /// What this counts against the bound: its bytes and the queue's own.
    fn cost(&self) -> usize {
        size_of::<Self>() + self.len()
    }

    /// Bytes of the envelope; 0 of what is none.
    #[expect(clippy::len_without_is_empty, reason = "an envelope is never empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::Message(message) => message.len(),
            Self::Shared(shared) => shared.len(),
            Self::Ping | Self::Close { .. } => 0,
        }
    }

    /// The envelope, in one piece.
    pub fn message(&self) -> Option<Bytes> {
        match self {
            Self::Message(message) => Some(message.clone()),
            Self::Shared(shared) => Some(shared.to_bytes()),
            Self::Ping | Self::Close { .. } => None,
        }
    }
}

/// The position of a data message in its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(u64);

#[derive(Debug, Default)]
struct Lanes {
    control: VecDeque<Outgoing>,
    data: VecDeque<Outgoing>,
    /// When the first thing was put into the empty queue: the time a batch spent in the hub.
    since: Now,
}

/// The outbound queue of one connection. Idle is the common case: an empty one holds no memory.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    lanes: Option<Box<Lanes>>,
    bytes: usize,
    pushed: u64,
    taken: u64,
}

/// Lanes that were emptied, for the next queue that fills: a queue is filled and emptied for every message or
/// two, and would otherwise ask the allocator each time.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "a queue takes the box itself: its content moves nowhere")]
pub(crate) struct Spare(Vec<Box<Lanes>>);

/// Most lanes that are kept for the next.
const SPARE_MAX: usize = 64;
/// Messages for which a kept lane may have room; a longer one is given back.
const SPARE_ROOM: usize = 64;

impl Spare {
    fn lanes(&mut self, now: Now) -> Box<Lanes> {
        let mut lanes = self.0.pop().unwrap_or_default();
        lanes.since = now;
        lanes
    }

    fn keep(&mut self, lanes: Box<Lanes>) {
        let small = lanes.data.capacity() <= SPARE_ROOM && lanes.control.capacity() <= SPARE_ROOM;
        if self.0.len() < SPARE_MAX && small {
            self.0.push(lanes);
        }
    }
}

/// A batch that was taken.
#[derive(Debug)]
pub struct Batch {
    /// When the oldest of it was queued.
    pub since: Now,
}

impl Outbound {
    /// Queues a data message. The mark tells later whether it has left.
    pub(crate) fn push_data(&mut self, spare: &mut Spare, now: Now, outgoing: Outgoing) -> Mark {
        self.bytes += outgoing.cost();
        self.lanes(spare, now).data.push_back(outgoing);
        self.pushed += 1;
        Mark(self.pushed)
    }

    pub(crate) fn push_control(&mut self, spare: &mut Spare, now: Now, outgoing: Outgoing) {
        self.bytes += outgoing.cost();
        self.lanes(spare, now).control.push_back(outgoing);
    }

    /// Queues a control envelope about the message at `mark`: ahead of data once that has left, behind it before.
    pub(crate) fn push_control_about(&mut self, spare: &mut Spare, now: Now, mark: Mark, outgoing: Outgoing) {
        if mark.0 > self.taken {
            self.push_data(spare, now, outgoing);
        } else {
            self.push_control(spare, now, outgoing);
        }
    }

    /// Drops everything that waits.
    pub(crate) fn clear(&mut self) {
        self.lanes = None;
        self.bytes = 0;
        self.taken = self.pushed;
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.lanes.is_none()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Moves up to `frames` messages, and not more than `bytes` beyond the first, into `batch`.
    pub(crate) fn take(
        &mut self,
        spare: &mut Spare,
        frames: usize,
        bytes: usize,
        batch: &mut Vec<Outgoing>,
    ) -> Option<Batch> {
        let lanes = self.lanes.as_mut()?;
        let since = lanes.since;
        let mut room = bytes;
        for _ in 0..frames {
            let next = match lanes.control.pop_front() {
                Some(control) => control,
                None => {
                    let Some(data) = lanes.data.pop_front() else { break };
                    self.taken += 1;
                    data
                }
            };
            let cost = next.cost();
            self.bytes = self.bytes.saturating_sub(cost);
            batch.push(next);
            match room.checked_sub(cost) {
                Some(left) => room = left,
                None => break,
            }
        }
        if lanes.control.is_empty()
            && lanes.data.is_empty()
            && let Some(lanes) = self.lanes.take()
        {
            spare.keep(lanes);
        }
        Some(Batch { since })
    }

    fn lanes(&mut self, spare: &mut Spare, now: Now) -> &mut Lanes {
        self.lanes.get_or_insert_with(|| spare.lanes(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now::from_micros(0);

    fn message(text: &'static str) -> Outgoing {
        Outgoing::Message(Bytes::from_static(text.as_bytes()))
    }

    fn drain(queue: &mut Outbound) -> Vec<Outgoing> {
        let mut batch = Vec::new();
        queue.take(&mut Spare::default(), 100, usize::MAX, &mut batch);
        batch
    }

    #[test]
    fn control_goes_ahead_of_queued_bodies() {
        let mut queue = Outbound::default();
        queue.push_data(&mut Spare::default(), NOW, message("body"));
        queue.push_control(&mut Spare::default(), NOW, message("accept"));
        assert_eq!(drain(&mut queue), [message("accept"), message("body")]);
    }

    #[test]
    fn a_cancel_stays_behind_the_call_that_has_not_left() {
        let mut queue = Outbound::default();
        let mark = queue.push_data(&mut Spare::default(), NOW, message("call"));
        queue.push_control_about(&mut Spare::default(), NOW, mark, message("cancel"));
        assert_eq!(drain(&mut queue), [message("call"), message("cancel")]);
        queue.push_data(&mut Spare::default(), NOW, message("other"));
        queue.push_control_about(&mut Spare::default(), NOW, mark, message("credit"));
        assert_eq!(drain(&mut queue), [message("credit"), message("other")]);
    }

    #[test]
    fn the_gauge_returns_to_zero_and_an_empty_queue_holds_nothing() {
        let mut queue = Outbound::default();
        queue.push_data(&mut Spare::default(), NOW, message("abc"));
        queue.push_control(&mut Spare::default(), NOW, Outgoing::Ping);
        assert!(queue.bytes() > 3);
        drain(&mut queue);
        assert_eq!((queue.bytes(), queue.is_empty()), (0, true));
    }

    #[test]
    fn a_batch_ends_at_its_frames_and_at_its_bytes() {
        let mut queue = Outbound::default();
        for _ in 0..3 {
            queue.push_data(&mut Spare::default(), NOW, message("0123456789"));
        }
        let mut batch = Vec::new();
        queue.take(&mut Spare::default(), 1, usize::MAX, &mut batch);
        assert_eq!(batch.len(), 1);
        queue.take(&mut Spare::default(), 10, 1, &mut batch);
        assert_eq!(batch.len(), 2, "a message over the bytes goes alone");
    }

    #[test]
    fn what_a_queue_leaves_serves_the_next_unless_it_grew_long() {
        let mut spare = Spare::default();
        let mut batch = Vec::new();
        for (messages, kept) in [(1, 1), (3, 1), (SPARE_ROOM + 1, 0)] {
            let mut queue = Outbound::default();
            for _ in 0..messages {
                queue.push_data(&mut spare, NOW.plus_ms(5), message("abc"));
            }
            let taken = queue.take(&mut spare, usize::MAX, usize::MAX, &mut batch);
            assert_eq!(taken.unwrap().since, NOW.plus_ms(5));
            assert_eq!((spare.0.len(), queue.is_empty()), (kept, true));
        }
        let mut queues: Vec<Outbound> = (0..2 * SPARE_MAX).map(|_| Outbound::default()).collect();
        for queue in &mut queues {
            queue.push_control(&mut spare, NOW, Outgoing::Ping);
        }
        for queue in &mut queues {
            queue.take(&mut spare, 1, usize::MAX, &mut batch);
        }
        assert_eq!(spare.0.len(), SPARE_MAX);
    }
}
