//! What one address may hold of the listener: so that one peer, known or not, cannot keep all others out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use tokio::sync::Semaphore;

/// Bounds for each address. An IPv6 address stands for its /64, which one customer has.
#[derive(Clone, Copy, Debug)]
pub struct AddressLimits {
    /// Most connections, open or on their way; `None`: as many as the listener takes.
    pub connections: Option<usize>,
    /// Most handshakes under way; more wait.
    pub handshakes: usize,
    /// Most sockets on their way to a WebSocket.
    pub lobby: usize,
}

/// The places of one address.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) connections: Option<Arc<Semaphore>>,
    pub(super) handshakes: Semaphore,
    pub(super) lobby: Arc<Semaphore>,
}

/// Those of all addresses that hold any. For one task: the one that accepts.
#[derive(Debug)]
pub(super) struct Addresses {
    limits: AddressLimits,
    /// Kept by who holds a place; what nobody holds is swept away.
    places: BTreeMap<Network, Weak<Places>>,
    /// How many there may be before the next sweep.
    sweep_at: usize,
}

/// How many addresses are always kept without a sweep.
const FEW: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Network {
    V4([u8; 4]),
    V6([u8; 8]),
}

impl Network {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

impl Addresses {
    pub(super) const fn new(limits: AddressLimits) -> Self {
        Self { limits, places: BTreeMap::new(), sweep_at: FEW }
    }

    /// The places of an address: the same for as long as anybody holds them.
    pub(super) fn of(&mut self, address: IpAddr) -> Arc<Places> {
        let network = Network::of(address);
        if let Some(places) = self.places.get(&network).and_then(Weak::upgrade) {
            return places;
        }
        if self.places.len() >= self.sweep_at {
            self.places.retain(|_, places| places.strong_count() > 0);
            // Not again before as many have come as were kept: each then pays for one look.
            self.sweep_at = FEW.max(self.places.len() * 2);
        }
        let AddressLimits { connections, handshakes, lobby } = self.limits;
        let places = Arc::new(Places {
            connections: connections.map(|most| Arc::new(Semaphore::new(most))),
            handshakes: Semaphore::new(handshakes),
            lobby: Arc::new(Semaphore::new(lobby)),
        });
        self.places.insert(network, Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AddressLimits = AddressLimits { connections: Some(2), handshakes: 1, lobby: 3 };

    fn v4(n: u16) -> IpAddr {
        let [high, low] = n.to_be_bytes();
        IpAddr::from([10, 0, high, low])
    }

    #[test]
    fn an_address_has_its_places_for_as_long_as_it_holds_one() {
        let mut addresses = Addresses::new(LIMITS);
        let places = addresses.of(v4(1));
        let held = Arc::clone(&places.lobby).try_acquire_many_owned(3).unwrap();
        assert!(addresses.of(v4(1)).lobby.try_acquire().is_err());
        assert!(addresses.of(v4(2)).lobby.try_acquire().is_ok(), "another address has its own");
        drop((held, places));
        assert_eq!(addresses.of(v4(1)).lobby.available_permits(), 3);
    }

    #[test]
    fn a_network_of_version_six_is_one_peer_and_a_mapped_address_is_the_one_it_maps() {
        let of = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }

    #[test]
    fn what_nobody_holds_takes_no_room_for_long() {
        let mut addresses = Addresses::new(LIMITS);
        let kept: Vec<_> = (0..100).map(|n| addresses.of(v4(n))).collect();
        for n in 100..10_000 {
            drop(addresses.of(v4(n)));
        }
        assert!(addresses.places.len() <= 2 * kept.len() + FEW, "{}", addresses.places.len());
        let first = kept.first().unwrap();
        assert!(Arc::ptr_eq(first, &addresses.of(v4(0))), "who holds places keeps them");
    }
}
