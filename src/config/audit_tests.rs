//! When there is an audit, and where it may be.

use super::tests::{GOOD, World};
use super::*;

#[test]
fn an_audit_that_cannot_be_written_is_a_problem_unless_there_is_to_be_none() {
    let world = World::new();
    std::fs::create_dir(world.at("folder")).unwrap();
    for (path, why) in [("nowhere/audit.jsonl", "No such file"), ("folder", "directory")] {
        let text = format!("{GOOD}[audit]\npath = \"{path}\"\n");
        let problems = world.problems(&text, &[]);
        let start = format!("hub.toml:10: audit.path: {path}: cannot be written: ");
        assert!(problems.len() == 1 && problems[0].starts_with(&start), "{problems:?}");
        assert!(problems[0].contains(why), "{problems:?}");
        world.load(&format!("{text}enabled = false\n"), &[]).unwrap();
    }
    let before = std::fs::read_dir(world.home.path()).unwrap().count();
    world.load(GOOD, &[]).unwrap();
    assert_eq!(
        std::fs::read_dir(world.home.path()).unwrap().count(),
        before,
        "looking leaves nothing behind"
    );
}

#[test]
fn dev_has_an_audit_only_where_the_environment_speaks_of_it() {
    let dir = tempfile::tempdir().unwrap();
    crate::certs::ensure_dev(dir.path(), &[]).unwrap();
    let any = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let with = |env: &[(&str, &str)]| {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::for_dev(dir.path(), any(1), any(2), any(3), env.collect::<Vec<_>>()).unwrap().audit
    };
    assert!(!with(&[]).enabled);
    let audit = with(&[("AGENT_REACH__AUDIT__KEEP", "3")]);
    assert_eq!((audit.enabled, audit.keep, audit.path), (true, 3, dir.path().join("audit.jsonl")));
    assert!(!with(&[("AGENT_REACH__AUDIT__ENABLED", "false")]).enabled);
}
