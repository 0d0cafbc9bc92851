//! Calls that wait: for a slot, or for an agent that can take them.
//!
//! All calls of one line ask the same of an agent, so who can take its first can take each of them: an agent that
//! becomes free looks at the head of each line of its capabilities, however many wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_reach_protocol::Priority;
use slab::Slab;

use crate::time::Now;

/// What decides which agents can take a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineKey {
    /// Canonical name of the capability.
    pub(crate) name: Arc<str>,
    /// The one agent it is for.
    pub(crate) agent: Option<Arc<str>>,
    /// All else that is asked of an agent, encoded; empty when that is nothing.
    pub(crate) terms: Box<[u8]>,
}

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    lane: usize,
    /// Its turn: smaller came earlier.
    number: u64,
}

/// Who stands there.
#[derive(Clone, Copy, Debug)]
struct Stands {
    call: usize,
    /// It takes none of the room that the capability has for calls.
    beside: bool,
}

/// Calls of one kind, by urgency and then in the order in which they came.
#[derive(Debug)]
struct Line {
    key: LineKey,
    lanes: [BTreeMap<u64, Stands>; 3],
    /// When something that only time changes lets one of it go.
    timer_at: Option<Now>,
}

impl Place {
    /// Its turn among all that wait: smaller came earlier.
    pub(crate) const fn number(self) -> u64 {
        self.number
    }
}

impl Line {
    fn is_empty(&self) -> bool {
        self.lanes.iter().all(BTreeMap::is_empty)
    }
}

/// The lines of one capability.
#[derive(Debug, Default)]
struct Named {
    lines: Vec<usize>,
    len: usize,
    /// How many of them take none of the room for calls.
    beside: usize,
    /// How many were let go.
    turns: u64,
}

/// Why a call cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// So many wait for the capability already.
    Calls(usize),
    /// So many kinds of demands on agents of one capability wait already.
    Lines(usize),
}

/// Most lines of one capability: each is looked at for every slot that becomes free.
const LINES_MAX: usize = 256;

/// Order in which lanes are looked at, by turn: high first, but one in four goes to normal before it, and one in eight
/// to low before both, so that nobody waits for ever behind those who are more urgent.
const fn lanes_of_turn(turn: u64) -> [usize; 3] {
    match turn % 8 {
        7 => [LOW, NORMAL, HIGH],
        3 => [NORMAL, HIGH, LOW],
        _ => [HIGH, NORMAL, LOW],
    }
}

const HIGH: usize = 0;
const NORMAL: usize = 1;
const LOW: usize = 2;

const fn lane_of(priority: Priority) -> usize {
    match priority {
        Priority::High => HIGH,
        Priority::Normal => NORMAL,
        Priority::Low => LOW,
    }
}

/// All calls that wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    lines: Slab<Line>,
    by_key: BTreeMap<LineKey, usize>,
    by_name: BTreeMap<Arc<str>, Named>,
    /// Most calls of one capability.
    bound: usize,
    len: usize,
    next: u64,
}

/// A call whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct First {
    pub(crate) call: usize,
    pub(crate) place: Place,
}

impl Waiting {
    pub(crate) fn new(bound: usize) -> Self {
        Self { lines: Slab::new(), by_key: BTreeMap::new(), by_name: BTreeMap::new(), bound, len: 0, next: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// How many wait for each capability that any wait for.
    pub(crate) fn by_name(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.by_name.iter().map(|(name, named)| (name, named.len))
    }

    /// Puts a call behind all of its urgency. `beside`: it is bounded elsewhere, and takes none of the room here.
    pub(crate) fn join(
        &mut self,
        key: LineKey,
        priority: Priority,
        call: usize,
        beside: bool,
    ) -> Result<Place, Full> {
        let named = self.by_name.get(&key.name);
        if !beside && named.map_or(0, |named| named.len - named.beside) >= self.bound {
            return Err(Full::Calls(self.bound));
        }
        let line = match self.by_key.get(&key) {
            Some(line) => *line,
            None if named.is_some_and(|named| named.lines.len() >= LINES_MAX) => {
                return Err(Full::Lines(LINES_MAX));
            }
            None => {
                let line = self.lines.insert(Line {
                    key: key.clone(),
                    lanes: [const { BTreeMap::new() }; 3],
                    timer_at: None,
                });
                self.by_key.insert(key.clone(), line);
                self.by_name.entry(Arc::clone(&key.name)).or_default().lines.push(line);
                line
            }
        };
        self.next += 1;
        let place = Place { line, lane: lane_of(priority), number: self.next };
        if let Some(lane) = self.lines.get_mut(line).and_then(|line| line.lanes.get_mut(place.lane)) {
            lane.insert(place.number, Stands { call, beside });
        }
        self.len += 1;
        if let Some(named) = self.by_name.get_mut(&key.name) {
            named.len += 1;
            named.beside += usize::from(beside);
        }
        Ok(place)
    }

    /// Takes a call out. Gives the moment for which its line had a timer, when it was the last of the line.
    pub(crate) fn leave(&mut self, place: Place) -> Option<Now> {
        let line = self.lines.get_mut(place.line)?;
        let stood = line.lanes.get_mut(place.lane)?.remove(&place.number)?;
        self.len -= 1;
        let is_empty = line.is_empty();
        if let Some(named) = self.by_name.get_mut(&line.key.name) {
            named.len -= 1;
            named.beside -= usize::from(stood.beside);
            if is_empty {
                named.lines.retain(|other| *other != place.line);
            }
            if named.lines.is_empty() {
                self.by_name.remove(&line.key.name);
            }
        }
        if !is_empty {
            return None;
        }
        let line = self.lines.try_remove(place.line)?;
        self.by_key.remove(&line.key);
        line.timer_at
    }

    /// The call of a capability whose turn it is, among the lines of which `takes` says that their first can go.
    pub(crate) fn first(&self, name: &str, mut takes: impl FnMut(First) -> bool) -> Option<First> {
        let named = self.by_name.get(name)?;
        let mut able: [Option<First>; 3] = [None; 3];
        for line in &named.lines {
            // One answer holds for the whole line.
            let mut answer = None;
            for (lane, best) in able.iter_mut().enumerate() {
                let Some(first) = self.head(*line, lane) else { continue };
                let sooner = best.is_none_or(|best| first.place.number < best.place.number);
                if sooner && *answer.get_or_insert_with(|| takes(first)) {
                    *best = Some(first);
                }
            }
        }
        lanes_of_turn(named.turns).into_iter().find_map(|lane| able.get(lane).copied().flatten())
    }

    /// The first call of a line, whatever its urgency.
    pub(crate) fn first_of_line(&self, line: usize) -> Option<First> {
        (0..3).find_map(|lane| self.head(line, lane))
    }

    fn head(&self, line: usize, lane: usize) -> Option<First> {
        let (number, first) = self.lines.get(line)?.lanes.get(lane)?.first_key_value()?;
        Some(First { call: first.call, place: Place { line, lane, number: *number } })
    }

    /// Notes that a call of a capability was let go in its turn.
    pub(crate) fn took_turn(&mut self, name: &str) {
        if let Some(named) = self.by_name.get_mut(name) {
            named.turns += 1;
        }
    }

    /// The lines of a capability.
    pub(crate) fn lines_of(&self, name: &str) -> Vec<usize> {
        self.by_name.get(name).map(|named| named.lines.clone()).unwrap_or_default()
    }

    /// All calls of a line, the most urgent first.
    pub(crate) fn calls_of(&self, line: usize) -> Vec<usize> {
        let lanes = self.lines.get(line).into_iter().flat_map(|line| &line.lanes);
        lanes.flat_map(BTreeMap::values).map(|stands| stands.call).collect()
    }

    /// All calls, in the order in which they came.
    pub(crate) fn all(&self) -> Vec<usize> {
        let lanes = self.lines.iter().flat_map(|(_, line)| &line.lanes);
        let mut all: Vec<(u64, usize)> =
            lanes.flatten().map(|(number, stands)| (*number, stands.call)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, call)| call).collect()
    }

    /// How many stand before a call that has just come, in its line and of its urgency.
    pub(crate) fn before(&self, newest: Place) -> usize {
        let lane = self.lines.get(newest.line).and_then(|line| line.lanes.get(newest.lane));
        lane.map_or(0, |lane| lane.len().saturating_sub(1))
    }

    /// Sets for when a line has a timer, and gives for when it had one.
    pub(crate) fn set_timer(&mut self, line: usize, at: Option<Now>) -> Option<Now> {
        self.lines.get_mut(line).and_then(|line| std::mem::replace(&mut line.timer_at, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, terms: &[u8]) -> LineKey {
        LineKey { name: name.into(), agent: None, terms: terms.into() }
    }

    fn serve(waiting: &mut Waiting, name: &str) -> Option<usize> {
        let first = waiting.first(name, |_| true)?;
        waiting.leave(first.place);
        waiting.took_turn(name);
        Some(first.call)
    }

    #[test]
    fn calls_of_one_urgency_go_in_the_order_in_which_they_came_over_all_lines() {
        let mut waiting = Waiting::new(100);
        for call in 0..10 {
            let terms = [u8::try_from(call % 3).unwrap()];
            waiting.join(key("a", &terms), Priority::Normal, call, false).unwrap();
        }
        let served: Vec<usize> = std::iter::from_fn(|| serve(&mut waiting, "a")).collect();
        assert_eq!(served, (0..10).collect::<Vec<_>>());
        assert!(waiting.is_empty() && waiting.by_key.is_empty() && waiting.by_name.is_empty());
    }

    #[test]
    fn the_urgent_go_first_and_the_others_are_not_starved() {
        let mut waiting = Waiting::new(1000);
        for call in 0..80 {
            waiting.join(key("a", b""), Priority::High, call, false).unwrap();
            waiting.join(key("a", b""), Priority::Normal, 100 + call, false).unwrap();
            waiting.join(key("a", b""), Priority::Low, 200 + call, false).unwrap();
        }
        let served: Vec<usize> = (0..16).filter_map(|_| serve(&mut waiting, "a")).collect();
        assert_eq!(served, [0, 1, 2, 100, 3, 4, 5, 200, 6, 7, 8, 101, 9, 10, 11, 201]);
    }

    #[test]
    fn a_line_that_cannot_go_holds_up_no_other() {
        let mut waiting = Waiting::new(100);
        for call in 0..50 {
            waiting.join(key("a", b"blocked"), Priority::High, call, false).unwrap();
        }
        waiting.join(key("a", b"free"), Priority::Low, 77, false).unwrap();
        let mut asked = 0;
        let first = waiting.first("a", |first| {
            asked += 1;
            first.call == 77
        });
        assert_eq!((first.unwrap().call, asked), (77, 2), "one question for each line");
    }

    #[test]
    fn a_capability_has_room_for_so_many_calls_and_kinds_of_demands() {
        let mut waiting = Waiting::new(2);
        waiting.join(key("a", b""), Priority::Low, 1, false).unwrap();
        let place = waiting.join(key("a", b""), Priority::High, 2, false).unwrap();
        assert_eq!(waiting.join(key("a", b""), Priority::High, 3, false), Err(Full::Calls(2)));
        assert!(waiting.join(key("b", b""), Priority::High, 3, false).is_ok());
        let beside = waiting.join(key("a", b""), Priority::High, 4, true).unwrap();
        waiting.leave(beside);
        waiting.leave(place);
        assert!(waiting.join(key("a", b""), Priority::High, 3, false).is_ok());
        let mut waiting = Waiting::new(1000);
        for line in 0..LINES_MAX {
            waiting.join(key("a", &line.to_be_bytes()), Priority::Low, line, false).unwrap();
        }
        assert_eq!(waiting.join(key("a", b"x"), Priority::Low, 0, false), Err(Full::Lines(LINES_MAX)));
        assert!(waiting.join(key("a", &0_usize.to_be_bytes()), Priority::Low, 0, false).is_ok());
    }

    #[test]
    fn who_leaves_twice_takes_nobody_with_it() {
        let mut waiting = Waiting::new(10);
        let one = waiting.join(key("a", b""), Priority::Normal, 1, false).unwrap();
        let two = waiting.join(key("a", b""), Priority::Normal, 2, false).unwrap();
        assert_eq!((waiting.before(two), waiting.len()), (1, 2));
        assert_eq!(waiting.set_timer(one.line, Some(Now::from_millis(5))), None);
        assert_eq!((waiting.leave(one), waiting.leave(one)), (None, None));
        assert_eq!((waiting.before(two), waiting.all(), waiting.calls_of(two.line)), (0, vec![2], vec![2]));
        assert_eq!(waiting.leave(two), Some(Now::from_millis(5)), "the line's timer goes with its last");
        assert_eq!((waiting.leave(two), waiting.len()), (None, 0));
    }
}
