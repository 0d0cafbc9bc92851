//! How many handlers of one capability run, what waits for one of them to end, and how long they usually take.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::limits::CAPABILITIES_MAX;

use crate::session::types::RunKey;

#[derive(Debug, Default)]
struct Room {
    running: usize,
    /// Most that run at once; `None`: as many as the agent takes.
    most: Option<usize>,
    /// In the order they came. The agent's own bound is theirs too.
    waiting: VecDeque<RunKey>,
    /// Of the runs that completed, the latest counting most.
    usual: Option<Duration>,
}

impl Room {
    const fn is_full(&self) -> bool {
        match self.most {
            Some(most) => self.running >= most,
            None => false,
        }
    }
}

/// What can be said of a run's end while it is still to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outlook {
    /// Runs that wait before it, if it waits.
    pub(super) before: Option<u64>,
    /// Expected until its end.
    pub(super) time: Option<Duration>,
}

/// One room for each capability.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    by_name: BTreeMap<Arc<str>, Room>,
    waiting: usize,
}

impl Rooms {
    /// A call comes. `true`: its handler may start; else it waits for [`Rooms::next`].
    pub(super) fn enter(&mut self, name: &str, most: Option<u64>, key: RunKey) -> (Arc<str>, bool) {
        let own = self.by_name.get_key_value(name).map(|(own, _)| Arc::clone(own));
        let name = own.unwrap_or_else(|| {
            if self.by_name.len() >= CAPABILITIES_MAX {
                // A program that adds and removes ever new names: what is idle is only what they usually take.
                self.by_name.retain(|_, room| room.running > 0 || !room.waiting.is_empty());
            }
            name.into()
        });
        let room = self.by_name.entry(Arc::clone(&name)).or_default();
        room.most = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX).max(1));
        if room.is_full() || !room.waiting.is_empty() {
            room.waiting.push_back(key);
            self.waiting += 1;
            return (name, false);
        }
        room.running += 1;
        (name, true)
    }

    /// A handler ended; `execution` if it completed.
    pub(super) fn leave(&mut self, name: &str, execution: Option<Duration>) {
        let Some(room) = self.by_name.get_mut(name) else { return };
        room.running = room.running.saturating_sub(1);
        if let Some(new) = execution {
            room.usual = Some(room.usual.map_or(new, |old| (old * 7 + new) / 8));
        }
    }

    /// The next that may start now.
    pub(super) fn next(&mut self, name: &str) -> Option<RunKey> {
        let room = self.by_name.get_mut(name).filter(|room| !room.is_full())?;
        let key = room.waiting.pop_front()?;
        room.running += 1;
        self.waiting -= 1;
        Some(key)
    }

    /// One that waited no longer does.
    pub(super) fn give_up(&mut self, name: &str, key: RunKey) {
        let Some(room) = self.by_name.get_mut(name) else { return };
        if let Some(place) = room.waiting.iter().position(|own| *own == key) {
            room.waiting.remove(place);
            self.waiting -= 1;
        }
    }

    /// Most handlers of a capability at once.
    pub(super) fn most(&self, name: &str) -> Option<u64> {
        self.by_name.get(name)?.most.map(|most| most as u64)
    }

    /// What may be said of a run that has not ended.
    pub(super) fn outlook(&self, name: &str, key: RunKey) -> Outlook {
        let Some(room) = self.by_name.get(name) else { return Outlook::default() };
        let Some(before) = room.waiting.iter().position(|own| *own == key) else {
            return Outlook { before: None, time: room.usual };
        };
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let most = count(room.most.unwrap_or(1)).max(1);
        // Its own time, and that until one of those that run has ended for each that is before it.
        let time = room.usual.map(|usual| usual + usual.saturating_mul(count(before + 1)) / most);
        Outlook { before: Some(before as u64), time }
    }

    /// How many wait in all rooms.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_waits_behind_who_waits_even_when_there_is_room() {
        let mut rooms = Rooms::default();
        assert_eq!([1, 2, 3].map(|key| rooms.enter("x", Some(1), key).1), [true, false, false]);
        assert!(!rooms.enter("x", Some(3), 4).1, "those before it go first");
        rooms.leave("x", None);
        let started: Vec<_> = std::iter::from_fn(|| rooms.next("x")).collect();
        assert_eq!((started, rooms.waiting()), (vec![2, 3, 4], 0));
    }

    #[test]
    fn what_usually_happens_says_how_long_a_place_in_the_line_takes() {
        let mut rooms = Rooms::default();
        let seconds = Duration::from_secs;
        rooms.enter("x", Some(2), 1);
        assert_eq!(rooms.outlook("x", 1), Outlook::default());
        rooms.leave("x", Some(seconds(8)));
        for key in 2..=6 {
            rooms.enter("x", Some(2), key);
        }
        assert_eq!(rooms.outlook("x", 2), Outlook { before: None, time: Some(seconds(8)) });
        assert_eq!(rooms.outlook("x", 6), Outlook { before: Some(2), time: Some(seconds(8 + 12)) });
        rooms.give_up("x", 4);
        assert_eq!(rooms.outlook("x", 6), Outlook { before: Some(1), time: Some(seconds(8 + 8)) });
        rooms.leave("x", Some(seconds(16)));
        assert_eq!(rooms.outlook("x", 3).time, Some(seconds(9)));
    }

    #[test]
    fn names_that_come_and_go_do_not_grow() {
        let mut rooms = Rooms::default();
        for n in 0..3 * CAPABILITIES_MAX {
            rooms.enter(&format!("x{n}"), None, 1);
            rooms.leave(&format!("x{n}"), Some(Duration::ZERO));
        }
        assert!(rooms.by_name.len() <= CAPABILITIES_MAX);
    }
}
