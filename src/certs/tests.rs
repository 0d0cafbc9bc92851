use std::os::unix::fs::PermissionsExt;

use super::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn fresh() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("certs");
    (home, dir)
}

fn number(dir: &Path) -> u64 {
    Revoked::load(&dir.join("crl.pem")).unwrap().number
}

#[test]
fn init_makes_a_private_directory_with_private_keys() {
    let (_home, dir) = fresh();
    init(&dir, &[]).unwrap();
    issue(&dir, "billing", &[], 30).unwrap();
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&dir.join("agents")), 0o700);
    for key in ["ca-key.pem", "hub-key.pem", "agents/billing-key.pem", "issued.txt"] {
        assert_eq!(mode(&dir.join(key)), 0o600, "{key}");
    }
    for file in ["ca.pem", "crl.pem", "hub.pem", "agents/billing.pem"] {
        assert!(dir.join(file).is_file(), "{file}");
    }
}

#[test]
fn init_leaves_every_file_alone_that_is_there_already() {
    for present in ["ca.pem", "ca-key.pem", "crl.pem", "hub.pem", "hub-key.pem"] {
        let (_home, dir) = fresh();
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join(present), "precious").unwrap();
        let error = init(&dir, &[]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: exists already", dir.join(present).display())), "{error}");
        assert_eq!(read(&dir.join(present)), "precious");
        let files = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name());
        let files: Vec<_> = files.filter(|name| *name != ".lock").collect();
        assert_eq!(files, [present], "nothing else was written");
    }
}

#[test]
fn a_certificate_that_is_issued_again_keeps_its_key() {
    let (_home, dir) = fresh();
    init(&dir, &[]).unwrap();
    let first = issue(&dir, "billing", &[], 30).unwrap();
    let (cert, key) = (read(&first.cert), read(&first.key));
    let again = issue(&dir, "billing", &[], 30).unwrap();
    assert!(first.new_key && !again.new_key);
    assert_eq!(read(&again.key), key);
    assert_ne!(read(&again.cert), cert);
}

#[test]
fn a_revoked_name_gets_a_new_key_once() {
    let (_home, dir) = fresh();
    init(&dir, &[]).unwrap();
    let first = issue(&dir, "billing", &[], 30).unwrap();
    let key = read(&first.key);
    revoke(&dir, "billing").unwrap();
    assert!(issue(&dir, "billing", &[], 30).unwrap().new_key);
    assert_ne!(read(&first.key), key);
    assert!(!issue(&dir, "billing", &[], 30).unwrap().new_key);
}

#[test]
fn revoke_covers_every_certificate_of_the_name_and_counts_the_list_up() {
    let (_home, dir) = fresh();
    init(&dir, &[]).unwrap();
    assert_eq!(number(&dir), 1);
    issue(&dir, "billing", &[], 30).unwrap();
    issue(&dir, "billing", &[], 30).unwrap();
    issue(&dir, "other", &[], 30).unwrap();
    assert_eq!(revoke(&dir, "billing").unwrap().len(), 2);
    assert_eq!(number(&dir), 2);
    assert_eq!(Revoked::load(&dir.join("crl.pem")).unwrap().entries.len(), 2);
    assert!(matches!(revoke(&dir, "billing"), Err(CertsError::NothingToRevoke { .. })));
    assert_eq!(revoke(&dir, "other").unwrap().len(), 1);
    assert_eq!(Revoked::load(&dir.join("crl.pem")).unwrap().entries.len(), 3);
}

#[test]
fn revoke_of_an_unknown_name_changes_nothing() {
    let (_home, dir) = fresh();
    init(&dir, &[]).unwrap();
    assert!(matches!(revoke(&dir, "nobody"), Err(CertsError::NothingToRevoke { .. })));
    assert_eq!(number(&dir), 1);
}

#[test]
fn names_that_leave_the_directory_or_hide_another_file_are_refused() {
    let (_home, dir) = fresh();
    init(&dir, &[]).unwrap();
    let long = "a".repeat(MAX_NAME_BYTES + 1);
    for name in ["", ".", "..", ".a", "../a", "a/b", "a b", "a\0", "ä", "a-key", long.as_str()] {
        assert!(matches!(issue(&dir, name, &[], 1), Err(CertsError::Name { .. })), "{name:?}");
        assert!(matches!(revoke(&dir, name), Err(CertsError::Name { .. })), "{name:?}");
    }
    issue(&dir, &"a".repeat(MAX_NAME_BYTES), &[], 1).unwrap();
}

#[test]
fn an_agent_is_its_spiffe_uri_unless_other_names_are_asked_for() {
    let (_home, dir) = fresh();
    init(&dir, &[]).unwrap();
    let identity = |issued: &Issued| {
        let der = crate::transport::pem::certs(&issued.cert).unwrap();
        crate::transport::identity::principal(&der[0]).unwrap().identity
    };
    let by_default = issue(&dir, "billing", &[], 1).unwrap();
    assert_eq!(identity(&by_default), "spiffe://agent-reach/agent/billing");
    let asked = issue(&dir, "billing", &["DNS:billing.example".into()], 1).unwrap();
    assert_eq!(identity(&asked), "billing.example");
}

#[test]
fn a_certificate_that_the_hub_would_refuse_says_so() {
    let (_home, dir) = fresh();
    init(&dir, &[]).unwrap();
    let two = ["URI:spiffe://d/agent/a".to_owned(), "URI:spiffe://d/agent/b".to_owned()];
    let refused = issue(&dir, "a", &two, 1).unwrap().refused;
    assert_eq!(refused, Some(IdentityError::Several { kind: "URI", count: 2 }));
}

#[test]
fn no_certificate_outlives_the_authority() {
    let (_home, dir) = fresh();
    init(&dir, &[]).unwrap();
    let end = |path: &Path| {
        let der = crate::transport::pem::certs(path).unwrap();
        x509_parser::parse_x509_certificate(&der[0]).unwrap().1.validity().not_after.timestamp()
    };
    let issued = issue(&dir, "billing", &[], 36_500).unwrap();
    assert_eq!(end(&issued.cert), end(&dir.join("ca.pem")));
    assert!(matches!(
        issue_order(&dir, &Order { name: "x", sans: &[], valid: Duration::MAX }),
        Err(CertsError::Validity)
    ));
}

#[test]
fn one_san_over_the_limit_is_refused() {
    let (_home, dir) = fresh();
    let sans: Vec<String> = (0..=MAX_SANS).map(|n| format!("h{n}.example")).collect();
    init(&dir, &sans[..MAX_SANS]).unwrap();
    assert!(matches!(issue(&dir, HUB, &sans, 1), Err(CertsError::San { .. })));
}

#[test]
fn dev_makes_what_is_absent_and_keeps_what_is_there() {
    let (_home, dir) = fresh();
    ensure_dev(&dir, &["a"]).unwrap();
    let (ca, hub, a) =
        (read(&dir.join("ca.pem")), read(&dir.join("hub.pem")), read(&dir.join("agents/a.pem")));
    ensure_dev(&dir, &["a", "b"]).unwrap();
    assert_eq!((read(&dir.join("ca.pem")), read(&dir.join("hub.pem"))), (ca, hub));
    assert_eq!(read(&dir.join("agents/a.pem")), a);
    assert!(dir.join("agents/b.pem").is_file());
}

#[test]
fn dev_renews_what_is_revoked_or_about_to_end() {
    let (_home, dir) = fresh();
    ensure_dev(&dir, &["a", "b", "c"]).unwrap();
    revoke(&dir, "a").unwrap();
    issue(&dir, "b", &[], 1).unwrap();
    let before: Vec<_> = ["a", "b", "c"].map(|name| read(&paths(&dir, name).0)).to_vec();
    ensure_dev(&dir, &["a", "b", "c"]).unwrap();
    let after: Vec<_> = ["a", "b", "c"].map(|name| read(&paths(&dir, name).0)).to_vec();
    assert_eq!((before[0] == after[0], before[1] == after[1], before[2] == after[2]), (false, false, true));
}

#[test]
fn a_ca_key_of_another_ca_is_refused() {
    let (_home, dir) = fresh();
    let (_other_home, other) = fresh();
    init(&dir, &[]).unwrap();
    init(&other, &[]).unwrap();
    std::fs::copy(other.join("ca-key.pem"), dir.join("ca-key.pem")).unwrap();
    let error = issue(&dir, "a", &[], 1).unwrap_err().to_string();
    assert!(error.ends_with("ca.pem: is not the certificate of ca-key.pem"), "{error}");
}

#[test]
fn a_certificate_in_memory_names_the_agent_and_leaves_no_file() {
    let (_home, dir) = fresh();
    init(&dir, &[]).unwrap();
    let issued = read(&dir.join("issued.txt"));
    let made = issue_in_memory(&dir, "cli-1").unwrap();
    assert_eq!(read(&dir.join("issued.txt")), issued);
    assert!(!paths(&dir, "cli-1").0.exists());
    let file = dir.join("made.pem");
    std::fs::write(&file, &made.cert).unwrap();
    let chain = crate::transport::pem::certs(&file).unwrap();
    let principal = crate::transport::identity::principal(&chain[0]).unwrap();
    assert_eq!(principal.name, "cli-1");
    let left = principal.not_after - OffsetDateTime::now_utc().unix_timestamp();
    assert!((3_500..=3_600).contains(&left), "{left} s");
    assert!(matches!(issue_in_memory(&dir, "../x"), Err(CertsError::Name { .. })));
}
