use std::os::unix::fs::PermissionsExt;

use super::*;

struct World {
    home: tempfile::TempDir,
    file: AuditFile,
}

impl World {
    fn new(rotate_bytes: u64, keep: u32) -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = AuditFile::new(&home.path().join("a.jsonl"), rotate_bytes, keep);
        Self { home, file }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes lines without their ends, together.
    fn write(&mut self, lines: &[&str]) -> Written {
        let (mut buffer, mut ends) = (Vec::new(), Vec::new());
        for line in lines {
            buffer.extend_from_slice(line.as_bytes());
            buffer.push(b'\n');
            ends.push(buffer.len());
        }
        self.file.write(&buffer, &ends)
    }

    fn wrote(&mut self, lines: &[&str]) {
        let written = self.write(lines);
        assert!(
            written.lines == lines.len() && written.error.is_none() && written.stuck.is_none(),
            "{written:?}"
        );
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = fs::read_dir(self.home.path()).unwrap().map(name).collect();
        names.sort();
        names
    }
}

#[test]
fn lines_are_appended_to_what_is_there_and_only_the_owner_may_read() {
    let mut w = World::new(100, 3);
    w.wrote(&["one"]);
    w.wrote(&["two", "three"]);
    w.file = AuditFile::new(&w.at("a.jsonl"), 100, 3);
    w.wrote(&["four"]);
    assert_eq!(w.read("a.jsonl"), "one\ntwo\nthree\nfour\n");
    assert_eq!(fs::metadata(w.at("a.jsonl")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_line_that_a_crash_left_unfinished_gets_its_end_first() {
    let mut w = World::new(100, 3);
    fs::write(w.at("a.jsonl"), "whole\n{\"ti").unwrap();
    w.wrote(&["next"]);
    w.wrote(&["last"]);
    assert_eq!(w.read("a.jsonl"), "whole\n{\"ti\nnext\nlast\n");
}

#[test]
fn a_file_that_would_be_too_large_is_rotated_between_lines_and_so_many_old_ones_are_kept() {
    let mut w = World::new(8, 2);
    w.wrote(&["aaa", "bbb", "ccc"]);
    assert_eq!((w.read("a.jsonl"), w.read("a.jsonl.1")), ("ccc\n".into(), "aaa\nbbb\n".into()));
    w.wrote(&["ddd", "eee", "fff", "ggg"]);
    assert_eq!(w.names(), ["a.jsonl", "a.jsonl.1", "a.jsonl.2"]);
    assert_eq!(w.read("a.jsonl"), "ggg\n");
    assert_eq!((w.read("a.jsonl.1"), w.read("a.jsonl.2")), ("eee\nfff\n".into(), "ccc\nddd\n".into()));
    w.wrote(&["h"]);
    assert_eq!(w.read("a.jsonl"), "ggg\nh\n", "what fits to the byte is not rotated");
    w.wrote(&["j", "k"]);
    assert_eq!((w.read("a.jsonl.1"), w.read("a.jsonl")), ("ggg\nh\nj\n".into(), "k\n".into()));
}

#[test]
fn with_none_to_keep_the_old_file_goes_and_with_fewer_than_before_the_oldest_do() {
    let mut w = World::new(4, 0);
    fs::write(w.at("a.jsonl.7"), "old\n").unwrap();
    fs::write(w.at("a.jsonl.x"), "another's\n").unwrap();
    fs::write(w.at("a.jsonl.01"), "another's\n").unwrap();
    w.wrote(&["aaa", "bbb"]);
    assert_eq!(w.names(), ["a.jsonl", "a.jsonl.01", "a.jsonl.x"]);
    assert_eq!(w.read("a.jsonl"), "bbb\n");
}

#[test]
fn a_line_larger_than_a_file_may_be_has_a_file_of_its_own() {
    let mut w = World::new(8, 5);
    w.wrote(&["a", "0123456789", "b"]);
    let files = ["a.jsonl.2", "a.jsonl.1", "a.jsonl"].map(|name| w.read(name));
    assert_eq!(files, ["a\n", "0123456789\n", "b\n"]);
}

#[test]
fn a_file_that_was_moved_or_taken_away_is_made_anew_and_one_that_was_cut_short_is_gone_on_with() {
    let mut w = World::new(100, 3);
    w.wrote(&["one"]);
    fs::rename(w.at("a.jsonl"), w.at("elsewhere")).unwrap();
    w.wrote(&["two"]);
    assert_eq!((w.read("elsewhere"), w.read("a.jsonl")), ("one\n".into(), "two\n".into()));
    fs::rename(w.at("a.jsonl"), w.at("elsewhere")).unwrap();
    File::create(w.at("a.jsonl")).unwrap();
    w.wrote(&["into the one that was made for it"]);
    assert_eq!((w.read("elsewhere"), w.read("a.jsonl").len()), ("two\n".into(), 34));
    fs::remove_file(w.at("a.jsonl")).unwrap();
    w.wrote(&["three"]);
    assert_eq!(w.read("a.jsonl"), "three\n");
    File::create(w.at("a.jsonl")).unwrap();
    w.wrote(&["four"]);
    assert_eq!(w.read("a.jsonl"), "four\n");
}

#[test]
fn what_cannot_be_written_is_told_and_later_lines_are_written_as_soon_as_it_can() {
    let mut w = World::new(100, 3);
    w.wrote(&["one"]);
    fs::rename(w.at("a.jsonl"), w.at("elsewhere")).unwrap();
    fs::create_dir(w.at("a.jsonl")).unwrap();
    for _ in 0..2 {
        let written = w.write(&["lost", "lost"]);
        assert!(written.lines == 0 && written.error.is_some(), "{written:?}");
    }
    fs::remove_dir(w.at("a.jsonl")).unwrap();
    w.wrote(&["two"]);
    assert_eq!(w.read("a.jsonl"), "two\n");
}

#[test]
fn a_full_disk_loses_lines_and_not_the_hub() {
    let mut file = AuditFile::new(Path::new("/dev/full"), 100, 3);
    file.open().unwrap();
    for _ in 0..2 {
        let written = file.write(b"one\ntwo\n", &[4, 8]);
        assert_eq!(written.lines, 0);
        assert_eq!(written.error.unwrap().kind(), ErrorKind::StorageFull);
    }
}

#[test]
fn a_file_that_cannot_be_rotated_grows_instead_of_losing_lines() {
    let mut w = World::new(4, 1);
    w.wrote(&["aaa"]);
    // A file does not take the place of a folder.
    fs::create_dir_all(w.at("a.jsonl.1/kept")).unwrap();
    let written = w.write(&["bbb", "ccc"]);
    assert!(written.lines == 2 && written.error.is_none() && written.stuck.is_some(), "{written:?}");
    assert_eq!(w.read("a.jsonl"), "aaa\nbbb\nccc\n");
    fs::remove_dir_all(w.at("a.jsonl.1")).unwrap();
    w.wrote(&["ddd"]);
    assert_eq!((w.read("a.jsonl.1"), w.read("a.jsonl")), ("aaa\nbbb\nccc\n".into(), "ddd\n".into()));
}

#[test]
fn a_look_says_whether_it_could_be_written_and_leaves_nothing() {
    let w = World::new(1, 1);
    check(&w.at("a.jsonl")).unwrap();
    assert_eq!(w.names(), [""; 0]);
    assert!(check(w.home.path()).is_err());
    assert!(check(&w.at("nowhere/a.jsonl")).is_err());
    fs::write(w.at("a.jsonl"), "kept").unwrap();
    check(&w.at("a.jsonl")).unwrap();
    assert_eq!(w.read("a.jsonl"), "kept");
    check(Path::new("/dev/null")).unwrap();
}
