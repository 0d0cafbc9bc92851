//! The fuzzer's targets over everything that it has found worth keeping, and over mutations of that.
//!
//! `make fuzz` searches with coverage and for as long as one likes; this is the part that needs nothing installed
//! and runs with all other tests.
#![cfg(test)]

#[path = "../fuzz/targets/mod.rs"]
mod targets;

use std::path::{Path, PathBuf};

/// Mutations of each target's corpus.
const MUTATIONS: u64 = 8000;
/// Longest input that is mutated, in bytes.
const LENGTH_MAX: usize = 4096;

/// Seeded chance (SplitMix64): a failure is the same in each run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is not zero.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("below a usize")
    }
}

/// The inputs in a folder, with their paths, in order.
fn inputs(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name != "README.md"));
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("an input");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

/// Shows the input of a target that fails, so that it can be kept as a regression.
struct Shown<'a>(&'a str, &'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.1.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("{} failed for {hex}", self.0);
        }
    }
}

fn run(target: fn(&[u8]), what: &str, input: &[u8]) {
    let _shown = Shown(what, input);
    target(input);
}

/// One input made from two, by the ways in which bytes go wrong.
fn mutated(chance: &mut Chance, of: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = of.get(..of.len().min(LENGTH_MAX)).unwrap_or_default().to_vec();
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len() + 1);
        let byte = [chance.next().to_be_bytes()[0], 0, 0x7f, 0x80, 0xc1, 0xff][chance.below(6)];
        match chance.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, byte),
            2 => bytes.extend_from_slice(other.get(chance.below(other.len() + 1)..).unwrap_or_default()),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            4 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            _ if at < bytes.len() => bytes[at] = byte,
            _ => bytes.push(byte),
        }
    }
    bytes.truncate(LENGTH_MAX);
    bytes
}

#[test]
fn every_target_has_a_corpus_and_holds_for_all_of_it_and_for_mutations_of_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    for (name, target) in targets::ALL {
        let corpus = inputs(&root.join("corpus").join(name));
        assert!(corpus.len() >= 8, "{name} has a corpus of {}", corpus.len());
        for (path, input) in &corpus {
            run(target, &path.display().to_string(), input);
        }
        let mut chance = Chance(1);
        for _ in 0..MUTATIONS {
            let (of, other) = (chance.below(corpus.len()), chance.below(corpus.len()));
            let input = mutated(&mut chance, &corpus[of].1, &corpus[other].1);
            run(target, name, &input);
        }
    }
}

#[test]
fn what_once_failed_holds_now_for_every_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions");
    for (path, input) in inputs(&root) {
        for (name, target) in targets::ALL {
            run(target, &format!("{name} of {}", path.display()), &input);
        }
    }
}

#[test]
fn every_target_is_a_program_of_the_fuzzer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("the manifest");
    for (name, _) in targets::ALL {
        assert!(root.join(format!("fuzz_targets/{name}.rs")).is_file(), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
