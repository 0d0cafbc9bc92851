//! The open legs of one call.

use smallvec::SmallVec;

/// Where a leg was that has ended.
const GONE: usize = usize::MAX;

/// Indices of legs, in the order in which they were given.
///
/// Targets end in about the order in which they were asked: those at the front leave a gap that is stepped over, where
/// a plain row would move all that is behind them, for each of a thousand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Legs {
    all: SmallVec<[usize; 1]>,
    /// Before it there are only gaps.
    first: usize,
}

impl Legs {
    pub(crate) fn push(&mut self, leg: usize) {
        self.all.push(leg);
    }

    pub(crate) fn remove(&mut self, leg: usize) {
        let rest = self.all.get_mut(self.first..).unwrap_or_default();
        if let Some(place) = rest.iter_mut().find(|other| **other == leg) {
            *place = GONE;
        }
        self.first += rest.iter().take_while(|other| **other == GONE).count();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.all.iter().skip(self.first).copied().filter(|leg| *leg != GONE)
    }

    /// A copy that does not hold the call.
    pub(crate) fn to_row(&self) -> SmallVec<[usize; 1]> {
        self.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_have_not_ended_are_there_in_order() {
        let mut legs = Legs::default();
        for leg in 0..10 {
            legs.push(leg);
        }
        for (gone, left) in [
            (0, &[1, 2, 3, 4, 5, 6, 7, 8, 9][..]),
            (2, &[1, 3, 4, 5, 6, 7, 8, 9]),
            (1, &[3, 4, 5, 6, 7, 8, 9]),
            (9, &[3, 4, 5, 6, 7, 8]),
            (9, &[3, 4, 5, 6, 7, 8]),
        ] {
            legs.remove(gone);
            assert_eq!(&*legs.to_row(), left);
        }
        legs.push(3);
        assert_eq!(legs.iter().count(), 7);
        for leg in 3..9 {
            legs.remove(leg);
        }
        assert_eq!(legs.to_row().to_vec(), [3], "the second of the same number");
    }
}
