//! Sources stay small and finished, and tests do not wait for time.

use super::tree::{File, files, root};

/// No file is longer.
const HARD: usize = 700;
/// No source is longer, unless it stands below.
const SOFT: usize = 400;

/// Sources over the soft limit, and why they are one file.
const LONG: [(&str, &str); 23] = [
    ("core/src/calls/ask.rs", "a CALL from its header to its legs, in the order in which it is judged"),
    ("core/src/calls/end.rs", "every way in which a call ends meets in one place, so that it ends once"),
    ("core/src/hub.rs", "composes the core: each input and each timer, and where it goes"),
    ("core/src/meta.rs", "the hub's own capabilities, one after the other"),
    ("core/src/views.rs", "the bodies of those capabilities, apart from the state they show"),
    ("core/tests/sim/tasks.rs", "tasks in the simulation: what is asked, and what holds of each"),
    ("core/tests/tasks.rs", "tasks from their CALL to their end, and through crashes and an ill disk"),
    ("tests/tasks_killed.rs", "a numbered load through kills of the hub, and its books"),
    ("core/tests/sim/network.rs", "what happens between the agents of the simulation and its hub"),
    ("core/tests/sim/mod.rs", "the world of the simulation, and each of its steps"),
    ("core/tests/sim/invariants.rs", "what holds after every step of the simulation, one after the other"),
    ("protocol/src/codec/read.rs", "the strict reader, with its tests"),
    ("protocol/src/envelope/call.rs", "the headers of a call on both hops, one table after the other"),
    (
        "protocol/src/envelope/field.rs",
        "every type of field with its bounds, and the macro that reads headers",
    ),
    ("protocol/tests/properties.rs", "properties of one codec, with the generators they share"),
    ("sdk/rust/src/session/asked/mod.rs", "everything that a caller has open, as one state machine"),
    ("sdk/rust/src/session/running/mod.rs", "everything that a provider runs, as one state machine"),
    ("sdk/rust/src/session/mod.rs", "the session, from HELLO to GOODBYE, as one state machine"),
    ("sdk/rust/src/tests.rs", "the SDK against a hub in memory, with that hub"),
    ("src/policy_file.rs", "the policy file from its first line to its last, with what each problem says"),
    ("tests/cli.rs", "each command against a real hub, with what they share"),
    ("src/store/memory.rs", "every method of a store, in its plainest form"),
    ("tests/store_world/suite.rs", "what every store does, in one list"),
];

/// Sleeps that tests may have: file, and why no event could be waited for.
const SLEEPS: [(&str, &str); 0] = [];

fn is_vector(file: &File) -> bool {
    file.path.starts_with("protocol/vectors/")
}

#[test]
fn no_file_is_long() {
    for file in files("").iter().filter(|file| !is_vector(file)) {
        let source = [".rs", ".md", ".toml", ".py", ".ts"].iter().any(|end| file.path.ends_with(end));
        let lines = file.text.lines().count();
        assert!(!source || lines <= HARD, "{} has {lines} lines; {HARD} are allowed", file.path);
        let long = file.path.ends_with(".rs") && lines > SOFT;
        let known = LONG.iter().any(|(path, _)| *path == file.path);
        assert!(
            !long || known,
            "{} has {lines} lines; split it, or say in LONG why it is one file",
            file.path
        );
    }
}

#[test]
fn the_list_of_long_files_names_files_that_are_there() {
    for (path, _) in LONG {
        assert!(root().join(path).is_file(), "{path}");
    }
}

#[test]
fn nothing_is_left_for_later_without_a_word() {
    let marks = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["todo", "!("], ["unimple", "mented!("]];
    for file in files("").iter().filter(|file| !is_vector(file) && !file.path.ends_with(".lock")) {
        for mark in marks.map(|parts| parts.concat()) {
            assert!(!file.text.contains(&mark), "{} has {mark}", file.path);
        }
    }
}

#[test]
fn no_test_is_ignored() {
    let mark = ["#[ign", "ore"].concat();
    for file in files(".rs") {
        assert!(!file.text.contains(&mark), "{} ignores a test", file.path);
    }
}

#[test]
fn no_test_sleeps() {
    let mut sleeping = Vec::new();
    for file in files(".rs").iter().filter(|file| !file.path.starts_with("tests/tidy/")) {
        let tests = file.tests();
        if ["sleep(", "sleep_until(", "::sleep;"].iter().any(|call| tests.contains(call)) {
            sleeping.push(file.path.clone());
        }
    }
    let allowed: Vec<String> = SLEEPS.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(sleeping, allowed);
}

#[test]
fn no_thread_of_the_hub_or_the_sdk_sleeps() {
    let place =
        |file: &File| ["src/", "core/", "protocol/", "sdk/"].iter().any(|at| file.path.starts_with(at));
    for file in files(".rs").iter().filter(|file| place(file)) {
        assert!(!file.program().contains("thread::sleep"), "{} blocks a thread", file.path);
    }
}
