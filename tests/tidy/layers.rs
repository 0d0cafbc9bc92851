//! Code may use what stands above it in ARCHITECTURE.md, never what stands below.

use super::tree::{File, files, has_word, read};

/// All that a crate may depend on, for those that have to stay pure. A further one is a decision for docs/adr.
const PURE: [(&str, &[&str]); 2] = [
    ("protocol", &["base64", "bytes", "serde", "serde_json", "smallvec", "thiserror", "time"]),
    (
        "core",
        &[
            "agent-reach-protocol",
            "base64",
            "bytes",
            "hashbrown",
            "jsonschema",
            "rmp-serde",
            "rmpv",
            "semver",
            "serde",
            "serde_json",
            "slab",
            "smallvec",
            "xxhash-rust",
        ],
    ),
];

/// The crates of this repository that each of them may use.
const DOWN: [(&str, &[&str]); 5] = [
    ("protocol", &[]),
    ("core", &["agent-reach-protocol"]),
    ("sdk/rust", &["agent-reach-protocol"]),
    // The hub's own store, to fill a file with a million tasks; its words are the core's.
    ("loadtest", &["agent-reach-protocol", "agent-reach-core"]),
    (".", &["agent-reach-core", "agent-reach-protocol", "agent-reach-sdk"]),
];

/// What a crate without clock, socket, lock, thread, order of hashing or async never names.
const IMPURE: [&str; 18] = [
    "std::net",
    "std::thread",
    "std::fs",
    "std::process",
    "Instant",
    "SystemTime",
    "now_utc",
    "HashMap",
    "HashSet",
    "RandomState",
    "Mutex",
    "RwLock",
    "Condvar",
    "mpsc",
    "async",
    "await",
    "Future",
    "thread_local",
];

fn manifest(folder: &str) -> toml::Table {
    read(&format!("{folder}/Cargo.toml")).parse().unwrap()
}

fn dependencies(folder: &str) -> Vec<String> {
    let manifest = manifest(folder);
    let of = |section: &str| manifest.get(section).and_then(toml::Value::as_table).cloned();
    of("dependencies").unwrap_or_default().keys().cloned().collect()
}

fn below(folder: &str) -> Vec<File> {
    files(".rs").into_iter().filter(|file| file.path.starts_with(&format!("{folder}/"))).collect()
}

#[test]
fn protocol_and_core_depend_on_nothing_that_waits_or_talks() {
    for (folder, allowed) in PURE {
        for name in dependencies(folder) {
            assert!(allowed.contains(&&*name), "{folder} may not depend on {name}");
        }
    }
}

#[test]
fn no_crate_depends_on_one_below_it() {
    for (folder, allowed) in DOWN {
        for name in dependencies(folder).iter().filter(|name| name.starts_with("agent-reach-")) {
            assert!(allowed.contains(&name.as_str()), "{folder} may not depend on {name}");
        }
    }
}

#[test]
fn protocol_and_core_name_no_clock_socket_lock_thread_or_future() {
    for file in ["protocol/src", "core/src"].into_iter().flat_map(below) {
        let program = file.program();
        for word in IMPURE {
            assert!(!has_word(&program, word), "{} names {word}", file.path);
        }
    }
}

#[test]
fn nothing_below_the_commands_names_them_or_the_server() {
    for file in below("src") {
        let program = file.program();
        let (module, _) = file.path.trim_start_matches("src/").split_once(['/', '.']).unwrap();
        let forbidden: &[&str] = match module {
            "cli" | "main" | "lib" => &[],
            "server" => &["crate::cli"],
            _ => &["crate::cli", "crate::server"],
        };
        for path in forbidden {
            assert!(!has_word(&program, path), "{} names {path}", file.path);
        }
    }
}

#[test]
fn a_lock_stands_only_where_the_architecture_says() {
    let allowed = [
        "src/access/mod.rs",
        "src/audit/mod.rs",
        "src/driver.rs",
        "src/keeping.rs",
        "src/store/records.rs",
        "src/telemetry/metrics/mod.rs",
        "src/transport/signatures.rs",
    ];
    for file in below("src") {
        let program = file.program();
        let locks = ["Mutex", "RwLock"].iter().any(|lock| has_word(&program, lock));
        assert_eq!(locks, allowed.contains(&file.path.as_str()), "{} has a lock, or has none", file.path);
    }
}

#[test]
fn rustls_pemfile_is_named_in_one_file() {
    let word = ["rustls", "pemfile"].join("_");
    let named: Vec<_> =
        files(".rs").into_iter().filter(|file| has_word(&file.text, &word)).map(|file| file.path).collect();
    assert_eq!(named, ["src/transport/pem.rs"]);
}

#[test]
fn every_dependency_is_named_in_the_sources_of_its_crate() {
    for (folder, _) in DOWN {
        let folders: &[&str] = if folder == "." { &["src", "tests"] } else { &["src", "tests", "examples"] };
        let text: String = folders
            .iter()
            .flat_map(|part| below(format!("{folder}/{part}").trim_start_matches("./")))
            .map(|file| file.text)
            .collect();
        for name in dependencies(folder) {
            let named = has_word(&text, &name.replace('-', "_"));
            assert!(named, "{folder}/Cargo.toml has {name}, and no source names it");
        }
    }
}
