use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::ErrorCode;

use super::file::{DedupeFile, Opened};
use crate::payload::Payload;
use crate::session::{Failure, Note, Outcome, Past, Says, interrupted};

const HOUR: u64 = 3_600_000;
const MOST: usize = 10_000;

fn completed(body: &'static [u8]) -> Outcome {
    Outcome::Completed(Payload::new(body))
}

fn note(intent: &str, says: Says) -> Note {
    Note { run: None, intent: intent.into(), fingerprint: 7, says, task: true }
}

fn ended(intent: &str, body: &'static [u8]) -> Note {
    note(intent, Says::Ended(completed(body), Duration::from_millis(3)))
}

fn open_at(path: &std::path::Path, now: u64) -> Opened {
    DedupeFile::open_bounded(path, "a", "new", MOST, now).unwrap()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.dedupe");
    (folder, path)
}

fn intents(past: &[Past]) -> Vec<&str> {
    past.iter().map(|past| &*past.intent).collect()
}

#[test]
fn the_next_life_has_the_instance_and_knows_what_ended_how_and_what_did_not() {
    let (_folder, path) = folder();
    let mut first = open_at(&path, 0);
    assert_eq!((first.instance.as_str(), first.past.len()), ("new", 0));
    let failure =
        Failure { details: Some(b"\x01".as_slice().into()), ..Failure::new(ErrorCode::InvalidRequest, "no") };
    let failed = note("failed", Says::Ended(Outcome::Failed(failure.clone()), Duration::ZERO));
    let begun = |intent| note(intent, Says::Begun);
    first.file.append_at(vec![begun("done"), begun("free"), begun("cut"), failed], 1).unwrap();
    first.file.append_at(vec![ended("done", b"\xff\x00"), note("free", Says::Free)], 2).unwrap();
    drop(first);
    let next = DedupeFile::open_bounded(&path, "a", "other", MOST, 5).unwrap();
    assert_eq!(next.instance, "new");
    let past = |intent: &str, outcome, execution, age| Past {
        intent: intent.into(),
        fingerprint: 7,
        outcome,
        execution: Duration::from_millis(execution),
        age: Duration::from_millis(age),
    };
    assert_eq!(
        next.past,
        [
            past("cut", Outcome::Failed(interrupted()), 0, 4),
            past("failed", Outcome::Failed(failure), 0, 4),
            past("done", completed(b"\xff\x00"), 3, 3),
        ]
    );
}

#[test]
fn a_torn_end_is_passed_over_wherever_it_breaks_off_and_what_is_written_later_counts() {
    let (_folder, path) = folder();
    let mut opened = open_at(&path, 0);
    opened.file.append_at(vec![ended("a", b"1")], 0).unwrap();
    let whole = fs::read(&path).unwrap().len();
    opened.file.append_at(vec![ended("b", b"2")], 0).unwrap();
    drop(opened);
    let all = fs::read(&path).unwrap();
    for end in whole..all.len() {
        fs::write(&path, &all[..end]).unwrap();
        let mut opened = open_at(&path, 0);
        assert_eq!(intents(&opened.past), ["a"], "cut at {end}");
        opened.file.append_at(vec![ended("c", b"3")], 0).unwrap();
        drop(opened);
        assert_eq!(intents(&open_at(&path, 0).past), ["a", "c"], "cut at {end}");
    }
    let mut flipped = all;
    *flipped.last_mut().unwrap() ^= 1;
    fs::write(&path, &flipped).unwrap();
    assert_eq!(intents(&open_at(&path, 0).past), ["a"]);
}

#[test]
fn tasks_count_for_a_day_and_ended_calls_for_ten_minutes() {
    let (_folder, path) = folder();
    let mut opened = open_at(&path, 0);
    let call = Note { task: false, ..ended("call", b"") };
    let running = Note { task: false, ..note("running call", Says::Begun) };
    opened.file.append_at(vec![ended("task", b""), call, running], 0).unwrap();
    drop(opened);
    assert_eq!(intents(&open_at(&path, 599_999).past), ["task", "call", "running call"]);
    assert_eq!(intents(&open_at(&path, 24 * HOUR - 1).past), ["task", "running call"]);
    assert_eq!(intents(&open_at(&path, 24 * HOUR).past), [""; 0]);
}

#[test]
fn the_file_stays_within_its_bound_and_keeps_the_newest() {
    let (_folder, path) = folder();
    let mut opened = open_at(&path, 0);
    let body: &'static [u8] = &[0; 900];
    for n in 0..100 {
        opened.file.append_at(vec![ended(&format!("{n}"), body)], 0).unwrap();
        assert!(fs::metadata(&path).unwrap().len() <= MOST as u64);
    }
    drop(opened);
    let past = open_at(&path, 0).past;
    let kept = intents(&past);
    assert!((4..=6).contains(&kept.len()), "{kept:?}");
    assert_eq!(kept.last(), Some(&"99"));
}

#[test]
fn another_agent_s_file_another_kind_of_file_and_one_in_use_are_refused_and_left_alone() {
    let (folder, path) = folder();
    let opened = open_at(&path, 0);
    let refused = |path: &std::path::Path, agent: &str| {
        DedupeFile::open_bounded(path, agent, "i", MOST, 0).err().unwrap()
    };
    assert!(refused(&path, "a").contains("another agent uses it"));
    drop(opened);
    assert!(refused(&path, "b").contains("of agent \"a\""));
    let notes = folder.path().join("notes.txt");
    fs::write(&notes, "not mine").unwrap();
    assert!(refused(&notes, "a").contains("this is no dedupe file"));
    assert_eq!(fs::read(&notes).unwrap(), b"not mine");
    let _again: Arc<Opened> = Arc::new(open_at(&path, 0));
}
