//! The repository as text.

use std::path::PathBuf;

/// One file.
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Folders that hold nothing written here.
const ELSEWHERE: [&str; 7] =
    ["target", ".git", "node_modules", ".agent-reach", "dist", "build", "screenshots-out"];

/// Where the checkout is now, which need not be where it was built.
pub(crate) fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// The text of one file.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file whose path ends so, in order; `""` takes all of them. What is no text reads as empty.
pub(crate) fn files(end: &str) -> Vec<File> {
    let paths = paths().into_iter().filter(|path| path.ends_with(end));
    let read = |path: String| {
        let text = std::fs::read_to_string(root().join(&path)).unwrap_or_default();
        File { path, text }
    };
    paths.map(read).collect()
}

/// Every path, folders too, in order.
pub(crate) fn paths() -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if ELSEWHERE.contains(&name.as_str()) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

impl File {
    /// Whether all of it is test.
    pub(crate) fn is_test(&self) -> bool {
        let inside = |folder: &str| self.path.split('/').any(|part| part == folder);
        inside("tests") || self.path.ends_with("tests.rs")
    }

    /// The program in it: without comments, and without the tests at its end.
    pub(crate) fn program(&self) -> String {
        if self.is_test() {
            return String::new();
        }
        let (program, _) = self.text.split_once("#[cfg(test)]\nmod ").unwrap_or((&self.text, ""));
        without_comments(program)
    }

    /// The tests in it, without comments.
    pub(crate) fn tests(&self) -> String {
        if self.is_test() {
            return without_comments(&self.text);
        }
        let (_, tests) = self.text.split_once("#[cfg(test)]\nmod ").unwrap_or_default();
        without_comments(tests)
    }
}

fn without_comments(text: &str) -> String {
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned() + "\n";
    text.lines().map(code).collect()
}

/// Whether a word stands in the text, and not as a part of a longer one.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(part)
            && !text[at + word.len()..].chars().next().is_some_and(part)
    })
}
