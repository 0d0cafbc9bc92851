//! Names of capabilities and agents, and patterns over capability names.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::limits::ID_BYTES_MAX;

/// Names below this prefix belong to the hub.
pub const RESERVED_PREFIX: &str = "hub.";
/// The hub's own capabilities that `*` does not cover: they change what others see.
pub const OPERATOR_CAPABILITIES: [&str; 4] =
    ["hub.agents.disconnect", "hub.agents.drain", "hub.config.reload", "hub.tasks.retry"];

/// What is wrong with a name or a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// Longer than 128 bytes.
    #[error("has {0} bytes; at most 128 are allowed")]
    TooLong(usize),
    /// A character outside the grammar.
    #[error(
        "has {0:?}; expected lower-case words of a-z, 0-9 and - joined by dots, like text-analysis.sentiment"
    )]
    Character(char),
    /// A dot at an end, or two in a row.
    #[error("has an empty word; expected words joined by single dots, like text-analysis.sentiment")]
    EmptyWord,
    /// A wildcard where none may stand.
    #[error("has * in an unsupported place; expected a name, prefix.* or *")]
    Wildcard,
}

/// A capability name of the canonical form: lower-case words of `[a-z0-9-]` joined by dots, 1-128 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CapabilityName(Box<str>);

impl CapabilityName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the name belongs to the hub itself (`hub` or below `hub.`).
    pub fn is_reserved(&self) -> bool {
        is_reserved(&self.0)
    }

    /// Reads a name as an agent wrote it: `_` becomes `-` and upper case lower case.
    ///
    /// The flag says whether anything was folded.
    ///
    /// # Errors
    /// When the folded name is outside the grammar.
    pub fn fold(text: &str) -> Result<(Self, bool), NameError> {
        let folded = fold(text);
        check(&folded)?;
        let changed = matches!(folded, Cow::Owned(_));
        Ok((Self(folded.into()), changed))
    }
}

impl FromStr for CapabilityName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check(text)?;
        Ok(Self(text.into()))
    }
}

impl fmt::Display for CapabilityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Folds `_` to `-` and upper case to lower case; borrows when there is nothing to fold.
pub fn fold(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|b| b == b'_' || b.is_ascii_uppercase()) {
        Cow::Owned(text.chars().map(|c| if c == '_' { '-' } else { c.to_ascii_lowercase() }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Whether a canonical name belongs to the hub.
pub fn is_reserved(name: &str) -> bool {
    name == "hub" || name.starts_with(RESERVED_PREFIX)
}

/// Checks a canonical capability name.
///
/// # Errors
/// Says which rule the text breaks.
pub fn check(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > ID_BYTES_MAX {
        return Err(NameError::TooLong(text.len()));
    }
    let mut before = b'.';
    let mut empty_word = false;
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => {}
            b'.' => empty_word |= before == b'.',
            _ => return Err(NameError::Character(first_outside(text))),
        }
        before = byte;
    }
    if empty_word || before == b'.' { Err(NameError::EmptyWord) } else { Ok(()) }
}

/// The first character outside the grammar of names.
fn first_outside(text: &str) -> char {
    text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-' | '.')).unwrap_or_default()
}

/// Whether `text` can be an `agent_id`: 1-128 bytes of ASCII letters, digits and `. _ - : @ + ~`.
pub fn is_agent_id(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= ID_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-:@+~".contains(&b))
}

/// Stands between the name of a token and its window. No `agent_id` of a certificate or a policy has one.
pub const WINDOW_SEPARATOR: char = '/';
/// Longest name of a window, in bytes.
const WINDOW_BYTES_MAX: usize = 32;

/// The parts of `NAME/WINDOW`, the `agent_id` of one of several windows that come with the token of one name. WINDOW
/// is 1-32 of ASCII letters, digits, `-` and `_`, and the whole as long as an `agent_id` may be. `None`: `text` is
/// none.
pub fn split_window(text: &str) -> Option<(&str, &str)> {
    let (name, window) = text.split_once(WINDOW_SEPARATOR)?;
    let is_window = !window.is_empty()
        && window.len() <= WINDOW_BYTES_MAX
        && window.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    (text.len() <= ID_BYTES_MAX && is_agent_id(name) && is_window).then_some((name, window))
}

/// A set of capability names: one name, all below a prefix, or all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// `*`: every name but the [`OPERATOR_CAPABILITIES`].
    All,
    /// `prefix.*`: every name below the prefix, not the prefix itself. Holds the prefix with its dot.
    Below(Box<str>),
    /// One name.
    Name(CapabilityName),
}

impl Pattern {
    /// Whether the pattern covers a canonical name. Compares whole words, never parts of one.
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => own.as_str() == name,
            Self::All => !OPERATOR_CAPABILITIES.contains(&name),
            Self::Below(prefix) if OPERATOR_CAPABILITIES.contains(&name) => &**prefix == RESERVED_PREFIX,
            Self::Below(prefix) => name.len() > prefix.len() && name.starts_with(&**prefix),
        }
    }
}

impl FromStr for Pattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text == "*" {
            return Ok(Self::All);
        }
        let Some(prefix) = text.strip_suffix(".*") else {
            if text.contains('*') {
                return Err(NameError::Wildcard);
            }
            return text.parse().map(Self::Name);
        };
        if prefix.contains('*') {
            return Err(NameError::Wildcard);
        }
        check(prefix)?;
        Ok(Self::Below(format!("{prefix}.").into()))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Below(prefix) => write!(f, "{prefix}*"),
            Self::Name(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_the_grammar_are_refused_with_the_rule() {
        assert_eq!(check(""), Err(NameError::Empty));
        assert_eq!(check("text-analysis."), Err(NameError::EmptyWord));
        assert_eq!(check("text-analysis..x"), Err(NameError::EmptyWord));
        assert_eq!(check(".text"), Err(NameError::EmptyWord));
        assert_eq!(check("."), Err(NameError::EmptyWord));
        assert_eq!(check("a..B"), Err(NameError::Character('B')));
        assert_eq!(check("a b"), Err(NameError::Character(' ')));
        assert_eq!(check("é"), Err(NameError::Character('é')));
        assert_eq!(check(&"a".repeat(128)), Ok(()));
        assert_eq!(check(&"a".repeat(129)), Err(NameError::TooLong(129)));
    }

    #[test]
    fn a_window_is_no_agent_id_that_anybody_else_could_have() {
        assert_eq!(split_window("alice/w-1_X"), Some(("alice", "w-1_X")));
        for text in ["alice", "alice/", "/w", "alice/w/x", "alice/w.x", "alice/ w", "a b/w", "alice/é"] {
            assert_eq!(split_window(text), None, "{text}");
        }
        assert!(!is_agent_id("alice/w"));
        let long = |name: usize, window: usize| format!("{}/{}", "a".repeat(name), "w".repeat(window));
        assert!(split_window(&long(95, 32)).is_some());
        assert!(split_window(&long(96, 32)).is_none() && split_window(&long(1, 33)).is_none());
    }

    #[test]
    fn underscores_and_upper_case_are_folded() {
        let (name, folded) = CapabilityName::fold("Text_Analysis.V2").unwrap();
        assert_eq!((name.as_str(), folded), ("text-analysis.v2", true));
        let (name, folded) = CapabilityName::fold("text-analysis").unwrap();
        assert_eq!((name.as_str(), folded), ("text-analysis", false));
    }

    #[test]
    fn a_prefix_pattern_covers_what_is_below_and_not_the_prefix() {
        let pattern: Pattern = "text.*".parse().unwrap();
        assert!(pattern.covers("text.sentiment"));
        assert!(pattern.covers("text.sentiment.deep"));
        assert!(!pattern.covers("text"));
        assert!(!pattern.covers("textual.x"));
    }

    #[test]
    fn the_operators_capabilities_need_their_name_or_the_whole_hub() {
        for name in OPERATOR_CAPABILITIES {
            assert!(!Pattern::All.covers(name));
            assert!(!"hub.agents.*".parse::<Pattern>().unwrap().covers(name));
            assert!("hub.*".parse::<Pattern>().unwrap().covers(name));
            assert!(name.parse::<Pattern>().unwrap().covers(name));
        }
        assert!(Pattern::All.covers("hub.agents.list"));
    }

    #[test]
    fn patterns_that_would_mean_something_else_are_refused() {
        for text in ["text-*", "text.*.x", "**", "", "text.", "*.x", "Text.*", ".*", "a.**"] {
            assert!(text.parse::<Pattern>().is_err(), "{text} was taken");
        }
    }

    #[test]
    fn a_pattern_prints_as_it_was_written() {
        for text in ["*", "text.*", "order.create"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
    }
}
