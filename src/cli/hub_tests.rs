use super::*;

fn nothing(_: &str) -> Option<String> {
    None
}

fn find(args: &HubArgs, environment: impl Fn(&str) -> Option<String>) -> Result<Found, NoHub> {
    super::find(args, Name::Own("cli"), environment)
}

fn problem(args: &HubArgs, environment: impl Fn(&str) -> Option<String>) -> NoHub {
    find(args, environment).err().unwrap()
}

#[test]
fn without_anything_the_answer_says_what_to_start() {
    let home = tempfile::tempdir().unwrap();
    let args = HubArgs { dir: Some(home.path().to_owned()), ..HubArgs::default() };
    let NoHub::Connect(text) = problem(&args, nothing) else { panic!("usage") };
    assert!(text.starts_with("no hub: there is no ") && text.contains("agent-reach dev"), "{text}");
}

#[test]
fn a_part_of_a_certificate_names_what_is_missing() {
    let args = HubArgs { cert: Some("c.pem".into()), ..HubArgs::default() };
    let environment = |name: &str| (name == "AGENT_REACH_CA").then(|| "ca.pem".to_owned());
    let text = "certificate, key and authority are needed together; missing: --key or AGENT_REACH_KEY";
    assert_eq!(problem(&args, environment), NoHub::Usage(text.to_owned()));
}

#[test]
fn a_certificate_without_a_hub_asks_for_the_hub() {
    let environment = |name: &str| (name != "AGENT_REACH_HUB").then(|| "x.pem".to_owned());
    assert!(matches!(problem(&HubArgs::default(), environment), NoHub::Usage(_)));
}

#[test]
fn each_command_of_a_dev_directory_has_a_name_of_its_own_and_leaves_no_file() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("dev");
    certs::ensure_dev(&dir, &[]).unwrap();
    std::fs::write(dir.join(dev::READY_FILE), r#"{"agents":"wss://127.0.0.1:1"}"#).unwrap();
    let listed = || {
        let mut names: Vec<_> =
            std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        (
            names,
            std::fs::read(dir.join("issued.txt")).unwrap(),
            std::fs::read_dir(dir.join("agents")).unwrap().count(),
        )
    };
    let before = listed();
    let args = HubArgs { dir: Some(dir.clone()), ..HubArgs::default() };
    let [first, second] = [find(&args, nothing).ok().unwrap(), find(&args, nothing).ok().unwrap()];
    assert_eq!(listed(), before);
    assert_eq!(first.hub, "wss://127.0.0.1:1");
    assert!(first.agent_id.len() == 12 && first.agent_id.starts_with("cli-"), "{}", first.agent_id);
    assert_ne!(first.agent_id, second.agent_id);
}

#[test]
fn a_certificate_gives_the_name_in_it() {
    let home = tempfile::tempdir().unwrap();
    certs::ensure_dev(home.path(), &["billing"]).unwrap();
    let (cert, key) = certs::paths(home.path(), "billing");
    let args = HubArgs {
        hub: Some("wss://h:1".into()),
        cert: Some(cert),
        key: Some(key),
        ca: Some(home.path().join("ca.pem")),
        dir: None,
    };
    let found = find(&args, nothing).ok().unwrap();
    assert_eq!((found.agent_id.as_str(), found.hub.as_str()), ("billing", "wss://h:1"));
}

#[test]
fn a_name_that_is_asked_for_goes_before_that_of_the_certificate() {
    let home = tempfile::tempdir().unwrap();
    certs::ensure_dev(home.path(), &["billing"]).unwrap();
    let (cert, key) = certs::paths(home.path(), "billing");
    let of_files = HubArgs {
        hub: Some("wss://h:1".into()),
        cert: Some(cert),
        key: Some(key),
        ca: Some(home.path().join("ca.pem")),
        dir: None,
    };
    std::fs::write(home.path().join(dev::READY_FILE), r#"{"agents":"wss://127.0.0.1:2"}"#).unwrap();
    let of_dir = HubArgs { dir: Some(home.path().to_owned()), ..HubArgs::default() };
    for args in [of_files, of_dir] {
        let found = super::find(&args, Name::Given("invoices"), nothing).ok().unwrap();
        assert_eq!(found.agent_id, "invoices");
    }
}

#[test]
fn a_named_directory_goes_before_the_environment() {
    let home = tempfile::tempdir().unwrap();
    certs::ensure_dev(home.path(), &[]).unwrap();
    std::fs::write(home.path().join(dev::READY_FILE), r#"{"agents":"wss://127.0.0.1:2"}"#).unwrap();
    let args = HubArgs { dir: Some(home.path().to_owned()), ..HubArgs::default() };
    let found = find(&args, |_| Some("wss://elsewhere:1".to_owned())).ok().unwrap();
    assert_eq!(found.hub, "wss://127.0.0.1:2");
}
