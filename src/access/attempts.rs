//! How often a token may be shown that is none.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Wrong tokens within a minute, from one address (of IPv6: one network of 64 bits) and from all together. The second is the
/// bound of what is kept here as well, since a minute is forgotten as a whole.
const EACH: u32 = 10;
const ALL: u32 = 300;
const WINDOW: Duration = Duration::from_secs(60);

/// Those of this minute.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    since: Option<Instant>,
    all: u32,
    by_address: BTreeMap<Option<IpAddr>, u32>,
}

impl Attempts {
    /// Counts one as wrong.
    ///
    /// # Errors
    /// The time until another may be shown, when there were too many.
    pub(super) fn begin(&mut self, from: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(since);
        if age >= WINDOW {
            *self = Self { since: Some(now), ..Self::default() };
        }
        let left = if age >= WINDOW { WINDOW } else { WINDOW - age };
        if self.all >= ALL {
            return Err(left);
        }
        let own = self.by_address.entry(network(from)).or_default();
        if *own >= EACH {
            return Err(left);
        }
        *own += 1;
        self.all += 1;
        Ok(())
    }

    /// One that was counted was none of them.
    pub(super) fn was_right(&mut self, from: Option<IpAddr>) {
        if let Some(own) = self.by_address.get_mut(&network(from)) {
            *own = own.saturating_sub(1);
            self.all = self.all.saturating_sub(1);
        }
    }
}

/// Whoever has one address of IPv6 mostly has all of its network.
fn network(from: Option<IpAddr>) -> Option<IpAddr> {
    from.map(|address| match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        IpAddr::V4(address) => IpAddr::V4(address),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn ten_wrong_ones_of_an_address_are_enough_for_a_minute_and_others_may_go_on() {
        let (mut attempts, start) = (Attempts::default(), Instant::now());
        for _ in 0..EACH {
            assert_eq!(attempts.begin(address(1), start), Ok(()));
        }
        let later = start + Duration::from_secs(20);
        assert_eq!(attempts.begin(address(1), later), Err(Duration::from_secs(40)));
        assert_eq!(attempts.begin(address(2), later), Ok(()));
        assert_eq!(attempts.begin(address(1), start + WINDOW), Ok(()));
    }

    #[test]
    fn right_ones_are_not_counted() {
        let (mut attempts, start) = (Attempts::default(), Instant::now());
        for _ in 0..ALL * 2 {
            assert_eq!(attempts.begin(address(1), start), Ok(()));
            attempts.was_right(address(1));
        }
    }

    #[test]
    fn all_addresses_together_have_a_bound_that_holds_for_memory_too() {
        let (mut attempts, start) = (Attempts::default(), Instant::now());
        let many = |n: u32| Some(IpAddr::from(Ipv6Addr::from(u128::from(n) << 64)));
        let good = (0..ALL * 2).filter(|n| attempts.begin(many(*n), start).is_ok()).count();
        assert_eq!((good, attempts.by_address.len()), (ALL as usize, ALL as usize));
        let mut one = Attempts::default();
        let same = |n: u16| Some(IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, n, 0, 0, n)));
        assert_eq!((0..100).filter(|n| one.begin(same(*n), start).is_ok()).count(), EACH as usize);
    }
}
