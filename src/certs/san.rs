//! Subject alternative names as they are written on the command line.

use std::net::IpAddr;

use rcgen::SanType;

use super::CertsError;

/// Most names that one certificate may have.
pub const MAX_SANS: usize = 100;

/// Reads `URI:…`, `DNS:…`, `IP:…` or a bare name. A bare one with `://` is a URI, one that is an
/// address is an IP, and anything else is a DNS name.
pub(super) fn parse(text: &str) -> Result<SanType, CertsError> {
    let bad = |reason| CertsError::San { san: text.to_owned(), reason };
    let (kind, value) = match text.split_once(':') {
        Some((kind @ ("URI" | "DNS" | "IP"), value)) => (kind, value),
        _ if text.contains("://") => ("URI", text),
        _ if text.parse::<IpAddr>().is_ok() => ("IP", text),
        _ => ("DNS", text),
    };
    match kind {
        "IP" => value.parse().map(SanType::IpAddress).map_err(|_| bad("no IP address")),
        "URI" if value.is_empty() || value.bytes().any(|b| !b.is_ascii_graphic()) => Err(bad("no URI")),
        "URI" => value.try_into().map(SanType::URI).map_err(|_| bad("no URI")),
        _ if !is_host(value) => Err(bad("no DNS name; write URI:…, DNS:… or IP:… to say what it is")),
        _ => value.try_into().map(SanType::DnsName).map_err(|_| bad("no DNS name")),
    }
}

fn is_host(name: &str) -> bool {
    (1..=253).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_gives_its_kind() {
        let uri = |s: &str| SanType::URI(s.try_into().unwrap());
        let dns = |s: &str| SanType::DnsName(s.try_into().unwrap());
        let ip = |s: &str| SanType::IpAddress(s.parse().unwrap());
        let cases = [
            ("URI:spiffe://d/agent/a", uri("spiffe://d/agent/a")),
            ("spiffe://d/agent/a", uri("spiffe://d/agent/a")),
            ("DNS:hub.example.com", dns("hub.example.com")),
            ("hub.example.com", dns("hub.example.com")),
            ("DNS:10.0.0.1", dns("10.0.0.1")),
            ("IP:10.0.0.1", ip("10.0.0.1")),
            ("10.0.0.1", ip("10.0.0.1")),
            ("::1", ip("::1")),
            ("IP:2001:db8::1", ip("2001:db8::1")),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_and_named() {
        for text in ["", "URI:", "DNS:", "IP:", "IP:hub", "a b", "hub:7443", "URI:a b", "email:a@b"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--san {text:?}: ")), "{error}");
        }
    }
}
