//! Room for new ends, in the place of those that would go soonest.

use smallvec::SmallVec;

use super::{Entry, Memory, State};

/// Which part of the bound becomes free once it is passed: of the default about as much as ten results take. Of those
/// with a place of their own the allocator keeps so many at hand; hundreds it would sort in, and out again for the next.
const ROOM_SHARE: usize = 16_384;
/// How many entries leave at once at the most.
const LEAVE_AT_ONCE: usize = 16;

impl Memory {
    /// Lets go of the soonest to expire once all are over their bound. Returns how many nobody knows any more.
    ///
    /// What leaves was last touched long ago and is in no cache. Some leave together, step by step, so that the processor
    /// waits for the memory of all of them at once and not for one after the other.
    pub(super) fn make_room(&mut self) -> usize {
        if self.bytes <= self.bound {
            return 0;
        }
        let goal = self.bound - self.bound / ROOM_SHARE;
        let mut forgotten = 0;
        while self.bytes > goal {
            let mut leaving = SmallVec::<[(u32, Entry); LEAVE_AT_ONCE]>::new();
            while self.bytes > goal && leaving.len() < LEAVE_AT_ONCE {
                let Some((until, soonest)) = self.expiry.pop() else { break };
                if self.ends_at(soonest, until)
                    && let Some(entry) = self.take_out(soonest)
                {
                    leaving.push((soonest, entry));
                }
            }
            if leaving.is_empty() {
                break;
            }
            for (index, entry) in &leaving {
                self.unlist(*index, entry);
            }
            for (_, entry) in &leaving {
                let (until, change) = match &entry.state {
                    State::Ended { until, stored: Some(change), .. } | State::Task { until, change, .. } => {
                        (*until, *change)
                    }
                    State::Ended { stored: None, .. } | State::Open(_) => {
                        forgotten += 1;
                        continue;
                    }
                };
                self.elsewhere.insert(entry.key.number(), until);
                self.elsewhere.comes_with(entry.key.number(), change);
            }
        }
        forgotten
    }
}
