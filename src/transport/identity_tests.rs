use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

use super::*;

/// Longest NAME: that of an `agent_id`.
const MAX_NAME_BYTES: usize = 128;

fn der(sans: Vec<SanType>, common: &[&str]) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.subject_alt_names = sans;
    params.distinguished_name = DistinguishedName::new();
    params.serial_number = Some(vec![0x0a, 0xff].into());
    params.not_after = time::OffsetDateTime::from_unix_timestamp(2_000_000_000).unwrap();
    for name in common {
        params.distinguished_name.push(DnType::CommonName, *name);
    }
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

fn ip() -> SanType {
    SanType::IpAddress([127, 0, 0, 1].into())
}

fn form_of(error: IdentityError) -> &'static str {
    let IdentityError::Form { kind, .. } = error else { panic!("{error}") };
    kind
}

#[test]
fn a_single_agent_uri_gives_the_uri_as_identity_and_its_last_segment_as_name() {
    let leaf = der(vec![uri("spiffe://agent-reach/agent/billing.eu-1")], &["other"]);
    let expected = Principal {
        identity: "spiffe://agent-reach/agent/billing.eu-1".into(),
        name: "billing.eu-1".into(),
        not_after: 2_000_000_000,
        serial: "0aff".into(),
    };
    assert_eq!(principal(&leaf).unwrap(), expected);
}

#[test]
fn a_single_dns_name_is_both_identity_and_name_and_wins_over_the_common_name() {
    let found = principal(&der(vec![dns("billing.example.com")], &["other"])).unwrap();
    assert_eq!(
        (found.identity.as_str(), found.name.as_str()),
        ("billing.example.com", "billing.example.com")
    );
}

#[test]
fn a_common_name_counts_when_there_is_no_uri_and_no_dns_name() {
    assert_eq!(principal(&der(vec![], &["billing"])).unwrap().identity, "billing");
    assert_eq!(principal(&der(vec![ip()], &["billing"])).unwrap().name, "billing");
}

#[test]
fn an_ip_address_alone_proves_nobody() {
    assert_eq!(principal(&der(vec![ip()], &[])), Err(IdentityError::NoName));
}

#[test]
fn a_certificate_without_any_name_proves_nobody() {
    assert_eq!(principal(&der(vec![], &[])), Err(IdentityError::NoName));
}

#[test]
fn bytes_that_are_no_certificate_prove_nobody() {
    assert_eq!(principal(b""), Err(IdentityError::Unreadable));
    assert_eq!(principal(&[0x30, 0x82, 0xff, 0xff]), Err(IdentityError::Unreadable));
    let mut trailing = der(vec![], &["billing"]);
    trailing.push(0);
    assert_eq!(principal(&trailing), Err(IdentityError::Unreadable));
}

#[test]
fn two_uris_are_refused_even_when_one_is_of_the_right_form() {
    let leaf = der(vec![uri("spiffe://d/agent/a"), uri("https://example.com/a")], &[]);
    assert_eq!(principal(&leaf), Err(IdentityError::Several { kind: "URI", count: 2 }));
}

#[test]
fn two_dns_names_are_refused() {
    let leaf = der(vec![dns("a.example"), dns("b.example")], &["c"]);
    assert_eq!(principal(&leaf), Err(IdentityError::Several { kind: "DNS", count: 2 }));
}

#[test]
fn a_uri_of_another_form_does_not_fall_through_to_the_dns_name_or_the_common_name() {
    let leaf = der(vec![uri("https://example.com/agent/a"), dns("a.example")], &["a"]);
    assert_eq!(form_of(principal(&leaf).unwrap_err()), "URI");
}

#[test]
fn a_dns_name_of_another_form_does_not_fall_through_to_the_common_name() {
    for host in ["*.example.com", "a b", "", "a/b", "a:b"] {
        assert_eq!(form_of(principal(&der(vec![dns(host)], &["a"])).unwrap_err()), "DNS", "{host}");
    }
}

#[test]
fn every_other_form_of_uri_is_refused() {
    let long = format!("spiffe://d/agent/{}", "a".repeat(MAX_NAME_BYTES + 1));
    let far = format!("spiffe://{}/agent/a", "d".repeat(MAX_DOMAIN_BYTES + 1));
    let others = [
        "",
        "spiffe://",
        "spiffe://d",
        "spiffe://d/",
        "spiffe://d/agent",
        "spiffe://d/agent/",
        "spiffe:///agent/a",
        "spiffe://d/agent/a/",
        "spiffe://d/agent/a/b",
        "spiffe://d/agent//a",
        "spiffe://d//agent/a",
        "spiffe://d/agents/a",
        "spiffe://d/Agent/a",
        "spiffe://d/ns/agent/a",
        "SPIFFE://d/agent/a",
        "Spiffe://d/agent/a",
        "spiffe://D/agent/a",
        "spiffe://d:1/agent/a",
        "spiffe://u@d/agent/a",
        "spiffe://d/agent/a?x=1",
        "spiffe://d/agent/a?",
        "spiffe://d/agent/a#",
        "spiffe://d/agent/a#f",
        "spiffe://d/agent/%61",
        "spiffe://%64/agent/a",
        "spiffe://d/agent/a b",
        " spiffe://d/agent/a",
        "spiffe://d/agent/a ",
        "spiffe://d/agent/a\n",
        "spiffe://d/agent/a\0",
        "spiffe://d/agent/a\x7f",
        "spiffe://d/agent/.",
        "spiffe://d/agent/..",
        "spiffe:/d/agent/a",
        "a",
        long.as_str(),
        far.as_str(),
    ];
    for other in others {
        assert_eq!(form_of(principal(&der(vec![uri(other)], &["a"])).unwrap_err()), "URI", "{other:?}");
    }
}

#[test]
fn a_name_of_the_greatest_length_is_taken() {
    let name = "a".repeat(MAX_NAME_BYTES);
    let leaf = der(vec![uri(&format!("spiffe://d/agent/{name}"))], &[]);
    assert_eq!(principal(&leaf).unwrap().name, name);
}

#[test]
fn a_common_name_cannot_pass_for_a_uri_or_a_token() {
    for common in ["spiffe://d/agent/admin", "token:admin", "a/b", "", "a b", "ä", "a\0b"] {
        let refused = principal(&der(vec![], &[common])).unwrap_err();
        assert_eq!(form_of(refused), "common name", "{common:?}");
    }
    let long = "a".repeat(MAX_NAME_BYTES + 1);
    assert_eq!(form_of(principal(&der(vec![], &[&long])).unwrap_err()), "common name");
}

#[test]
fn a_uri_that_is_no_text_hides_behind_no_other_name() {
    let mut leaf = der(vec![uri("spiffe://d/agent/abc"), dns("d.example")], &["c"]);
    let at = leaf.windows(3).position(|bytes| bytes == b"abc").unwrap();
    leaf[at] = 0xff;
    assert_eq!(principal(&leaf), Err(IdentityError::UnreadableNames));
}

#[test]
fn a_serial_is_written_without_the_sign_byte() {
    assert_eq!(hex(&[0, 0x80, 1]), "8001");
    assert_eq!(hex(&[0]), "00");
}
