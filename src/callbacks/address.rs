//! Which addresses may be connected to, once a name has been resolved.
//!
//! Whoever owns a name on the list also says what it resolves to, now and a second later. So every address is judged
//! after resolving, and only addresses of the public internet pass, unless the operator has listed the address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::target::{AllowedHosts, Host};

/// Blocks of IPv4 that are not of the public internet (the registry of special purpose addresses): network, bits.
const SPECIAL_V4: [(Ipv4Addr, u32); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),  // this network; 0.0.0.0 reaches the host itself
    (Ipv4Addr::new(10, 0, 0, 0), 8), // private
    (Ipv4Addr::new(100, 64, 0, 0), 10), // shared by carriers
    (Ipv4Addr::new(127, 0, 0, 0), 8), // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16), // link-local, where clouds have their metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12), // private
    (Ipv4Addr::new(192, 0, 0, 0), 24), // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24), // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24), // relays of 6to4
    (Ipv4Addr::new(192, 168, 0, 0), 16), // private
    (Ipv4Addr::new(198, 18, 0, 0), 15), // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24), // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4), // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4), // reserved, and broadcast
];

/// The one block of IPv6 that is handed out for the public internet.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Blocks inside of it that are not.
const SPECIAL_V6: [(Ipv6Addr, u32); 3] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments, Teredo among them
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// IPv4 behind a translator: the address is in the last 32 bits.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// IPv4 behind a tunnel: the address is in the 32 bits after the first 16.
const SIX_TO_FOUR: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);

/// Whether a resolved address of this host may be connected to.
pub(super) fn may_connect(host: &Host, address: IpAddr, hosts: &AllowedHosts) -> bool {
    let address = address.to_canonical();
    // "localhost" means one thing: who lists it wants it.
    let local = matches!(host, Host::Name(name) if name == "localhost") && address.is_loopback();
    is_public(address) || local || hosts.contains(&Host::Address(address))
}

/// Whether an address is of the public internet, in whatever form an IPv4 address is written.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let within = |(network, bits): (Ipv4Addr, u32)| {
        let differ = address.to_bits() ^ network.to_bits();
        differ.leading_zeros() >= bits
    };
    !SPECIAL_V4.into_iter().any(within)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    let within = |(network, length): (Ipv6Addr, u32)| (bits ^ network.to_bits()).leading_zeros() >= length;
    let embedded = |shift: u32| {
        let low = u32::try_from((bits >> shift) & 0xffff_ffff).unwrap_or_default();
        is_public_v4(Ipv4Addr::from_bits(low))
    };
    if within(NAT64) {
        return embedded(0);
    }
    if within(SIX_TO_FOUR) {
        return embedded(80);
    }
    within(GLOBAL_V6) && !SPECIAL_V6.into_iter().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE_V4: [&str; 34] = [
        "0.0.0.0",
        "0.255.255.255",
        "10.0.0.0",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.0",
        "100.127.255.255",
        "127.0.0.0",
        "127.0.0.1",
        "127.255.255.255",
        "169.254.0.0",
        "169.254.169.254",
        "169.254.255.255",
        "172.16.0.0",
        "172.31.255.255",
        "192.0.0.0",
        "192.0.0.255",
        "192.0.2.0",
        "192.0.2.255",
        "192.88.99.1",
        "192.168.0.0",
        "192.168.255.255",
        "198.18.0.0",
        "198.19.255.255",
        "198.51.100.0",
        "198.51.100.255",
        "203.0.113.0",
        "203.0.113.255",
        "224.0.0.0",
        "239.255.255.255",
        "240.0.0.0",
        "255.255.255.254",
        "255.255.255.255",
        "127.1.2.3",
    ];

    /// The nearest neighbours of those blocks, and some others.
    const OUTSIDE_V4: [&str; 27] = [
        "1.0.0.0",
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.3.0",
        "192.88.98.255",
        "192.88.100.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.99.255",
        "198.51.101.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "8.8.8.8",
    ];

    /// The IPv6 forms of an IPv4 address.
    fn forms(v4: Ipv4Addr) -> [Ipv6Addr; 3] {
        let low = u128::from(v4.to_bits());
        let six_to_four = Ipv6Addr::from_bits(0x2002 << 112 | low << 80 | 1);
        [v4.to_ipv6_mapped(), Ipv6Addr::from_bits(NAT64.0.to_bits() | low), six_to_four]
    }

    #[test]
    fn no_address_inside_is_public_in_any_form() {
        for text in INSIDE_V4 {
            let v4: Ipv4Addr = text.parse().unwrap();
            assert!(!is_public(v4.into()), "{text}");
            for form in forms(v4) {
                assert!(!is_public(form.into()), "{form}");
            }
        }
    }

    #[test]
    fn addresses_outside_are_public_in_every_form() {
        for text in OUTSIDE_V4 {
            let v4: Ipv4Addr = text.parse().unwrap();
            assert!(is_public(v4.into()), "{text}");
            for form in forms(v4) {
                assert!(is_public(form.into()), "{form}");
            }
        }
    }

    #[test]
    fn every_form_of_an_address_is_judged_as_the_address() {
        // A stride that is odd visits every part of the space.
        for at in 0..100_000u32 {
            let v4 = Ipv4Addr::from_bits(at.wrapping_mul(0x9e37_79b1));
            for form in forms(v4) {
                assert_eq!(is_public(form.into()), is_public(v4.into()), "{form}");
            }
            // Compatible and translated addresses are no way out at all.
            let low = u128::from(v4.to_bits());
            for dead in [low, 0xffff << 48 | low] {
                let v6 = Ipv6Addr::from_bits(dead);
                assert!(v6.to_ipv4_mapped().is_some() || !is_public(v6.into()), "{v6}");
            }
        }
    }

    #[test]
    fn of_ipv6_only_what_is_handed_out_is_public() {
        for text in [
            "::",
            "::1",
            "::7f00:1",
            "::808:808",
            "::ffff:0:808:808",
            "64:ff9b:1::808:808",
            "100::1",
            "2001::1",
            "2001:1ff:ffff::1",
            "2001:db8::1",
            "3fff::1",
            "3fff:fff:ffff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "ffff::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in ["2000::1", "2001:200::1", "2001:db7::1", "2001:db9::1", "2606:4700::1", "3ffe:ffff::1"] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn an_address_inside_is_connected_to_only_where_it_is_listed() {
        let list = |hosts: &[&str]| {
            AllowedHosts::new(&hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>()).unwrap()
        };
        let name = |name: &str| Host::Name(name.into());
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let hosts = list(&["a.example", "10.1.2.3", "localhost"]);
        assert!(may_connect(&name("a.example"), at("8.8.8.8"), &hosts));
        assert!(!may_connect(&name("a.example"), at("10.0.0.1"), &hosts));
        assert!(may_connect(&name("a.example"), at("10.1.2.3"), &hosts));
        assert!(may_connect(&name("a.example"), at("::ffff:10.1.2.3"), &hosts));
        assert!(!may_connect(&name("a.example"), at("127.0.0.1"), &hosts));
        assert!(may_connect(&name("localhost"), at("127.0.0.1"), &hosts));
        assert!(may_connect(&name("localhost"), at("::1"), &hosts));
        assert!(!may_connect(&name("localhost"), at("10.0.0.1"), &hosts));
        assert!(!may_connect(&name("a.localhost"), at("127.0.0.1"), &hosts));
    }
}
