//! What is wrong in a file that an operator wrote, and where.

use std::fmt;

/// One fault in a configuration or policy file, or in a variable of the environment.
///
/// Shown as `FILE:LINE: key: message`; a part that is not known is left out. The message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file as it was named, or `environment`.
    pub file: String,
    /// Line from 1, where one can be told.
    pub line: Option<usize>,
    /// `section.key`, or the name of the variable. Empty for the file as a whole.
    pub key: String,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Longest configuration or policy file that is read: 4 MiB.
pub const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Reads a text file of at most [`MAX_FILE_BYTES`], or says why not.
pub(crate) fn read_text(path: &std::path::Path) -> Result<String, Problem> {
    use std::io::Read;
    let file = path.display().to_string();
    let problem = |message| Problem { file: file.clone(), line: None, key: String::new(), message };
    let mut text = String::new();
    let opened = std::fs::File::open(path);
    match opened.and_then(|from| from.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)) {
        Ok(_) if text.len() as u64 > MAX_FILE_BYTES => {
            Err(problem("larger than 4 MiB: is it the right file?".into()))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(problem(format!("cannot be read: {error}; check the path and its permissions"))),
    }
}

/// The line, from 1, in which the byte at `offset` stands.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_what_is_known_of_its_place() {
        let mut problem = Problem {
            file: "a.toml".into(),
            line: Some(3),
            key: "http.listen".into(),
            message: "bad".into(),
        };
        assert_eq!(problem.to_string(), "a.toml:3: http.listen: bad");
        problem.line = None;
        assert_eq!(problem.to_string(), "a.toml: http.listen: bad");
        problem.key.clear();
        assert_eq!(problem.to_string(), "a.toml: bad");
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!([0, 1, 2, 3, 99].map(|at| line_at("a\nb\n", at)), [1, 1, 2, 2, 3]);
    }
}
