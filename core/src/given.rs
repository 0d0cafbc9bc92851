//! The legs that an agent was given on its connection.

use std::collections::VecDeque;

/// Most places that are kept when the last leg has ended.
const KEPT: usize = 8;

/// Legs by the hub's ids on one connection. Ids only grow, and legs end in about the order in which they were given:
/// a row that is searched by halves beats a tree, and costs no memory of its own for each leg.
#[derive(Debug, Default)]
pub(crate) struct Given(VecDeque<(u64, usize)>);

impl Given {
    /// Adds a leg under an id that is larger than all before.
    pub(crate) fn insert(&mut self, id: u64, leg: usize) {
        debug_assert!(self.0.back().is_none_or(|(last, _)| *last < id), "{id} is not the largest");
        self.0.push_back((id, leg));
    }

    pub(crate) fn get(&self, id: u64) -> Option<usize> {
        let at = self.place(id)?;
        self.0.get(at).map(|(_, leg)| *leg)
    }

    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(at) = self.place(id) {
            self.0.remove(at);
        }
        if self.0.is_empty() && self.0.capacity() > KEPT {
            self.0 = VecDeque::new();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The legs, in the order in which they were given.
    pub(crate) fn into_legs(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().map(|(_, leg)| leg)
    }

    fn place(&self, id: u64) -> Option<usize> {
        self.0.binary_search_by_key(&id, |(id, _)| *id).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legs_are_found_by_their_ids_whatever_order_they_end_in() {
        let mut given = Given::default();
        for id in 0..100 {
            given.insert(2 * id, usize::try_from(id).unwrap());
        }
        for id in [50, 0, 99, 51, 1] {
            given.remove(2 * id);
            assert_eq!(given.get(2 * id), None);
        }
        given.remove(7);
        assert_eq!((given.get(4), given.get(5), given.get(196)), (Some(2), None, Some(98)));
        assert_eq!(given.into_legs().count(), 95);
    }

    #[test]
    fn an_agent_without_work_holds_next_to_nothing() {
        let mut given = Given::default();
        for id in 0..1000 {
            given.insert(id, 0);
        }
        for id in 0..1000 {
            given.remove(id);
        }
        assert!(given.is_empty() && given.0.capacity() <= KEPT);
    }
}
