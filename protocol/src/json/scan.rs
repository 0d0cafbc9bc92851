//! Walking JSON text that is already known to be valid.
//!
//! serde_json checks the syntax first (without recursion, however deep the text is nested), so what is here
//! only has to find where tokens end. Should it ever meet something else it stops at the end of the text.

use std::borrow::Cow;

use serde_json::value::RawValue;

/// Checks that the text is one JSON value with nothing after it.
pub(super) fn check_syntax(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<&RawValue>(text).map(drop)
}

/// What JSON skips between tokens.
pub(super) const WHITE_SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Said of a string that is no text.
pub(super) const LONE_SURROGATE: &str = "a string with half a surrogate pair";

/// A place in valid JSON text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Scanner<'a> {
    /// At the start of the text.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    /// The first byte of the next token, white space skipped; 0 at the end.
    pub(super) fn peek(&mut self) -> u8 {
        for byte in self.rest().bytes() {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return byte;
            }
            self.position += 1;
        }
        0
    }

    /// Takes one byte of structure: a bracket, a comma or a colon, whichever is there.
    pub(super) fn structure(&mut self) {
        self.peek();
        self.take(1);
    }

    /// Takes a string, with its quotes.
    pub(super) fn string(&mut self) -> &'a str {
        self.peek();
        let mut escaped = false;
        // The opening quote comes first and is not the end.
        let end = self.rest().bytes().skip(1).position(|byte| {
            let end = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            end
        });
        self.take(end.map_or(usize::MAX, |end| end + 2))
    }

    /// Takes a number, `true`, `false` or `null`.
    pub(super) fn word(&mut self) -> &'a str {
        self.peek();
        let end = self
            .rest()
            .bytes()
            .position(|byte| !matches!(byte, b'+' | b'-' | b'.') && !byte.is_ascii_alphanumeric());
        self.take(end.unwrap_or(usize::MAX))
    }

    /// Takes whatever is next; None at the end.
    fn token(&mut self) -> Option<Token<'a>> {
        let token = match self.peek() {
            b'[' | b'{' => Token::Open,
            b']' | b'}' => Token::Close,
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'"' => return Some(Token::String(self.string())),
            _ => return Some(self.word()).filter(|word| !word.is_empty()).map(|_| Token::Word),
        };
        self.structure();
        Some(token)
    }

    /// What has not been taken yet.
    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let rest = self.rest();
        let token = rest.get(..bytes).unwrap_or(rest);
        self.position += token.len();
        token
    }
}

/// What JSON text is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Open,
    Close,
    Comma,
    Colon,
    /// With its quotes.
    String(&'a str),
    /// A number, `true`, `false` or `null`.
    Word,
}

/// The text of a string token; None if an escape in it is half a surrogate pair, which is no character.
pub(super) fn unescape(token: &str) -> Option<Cow<'_, str>> {
    if token.contains('\\') {
        return serde_json::from_str(token).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(token.trim_matches('"')))
}

/// How many values (or pairs) each array and object holds, in the order in which they open. MessagePack wants
/// to know before the first one.
pub(super) fn count_children(text: &str) -> Vec<u32> {
    let mut counts: Vec<u32> = Vec::new();
    let mut open = Vec::new();
    // True right after a bracket has opened: whatever comes next but its end is a first child.
    let mut fresh = false;
    let mut scanner = Scanner::new(text);
    while let Some(token) = scanner.token() {
        let grows = token == Token::Comma || (fresh && token != Token::Close);
        if let Some(count) = open.last().filter(|_| grows).and_then(|&at| counts.get_mut(at)) {
            *count = u32::saturating_add(*count, 1);
        }
        fresh = token == Token::Open;
        match token {
            Token::Open => {
                open.push(counts.len());
                counts.push(0);
            }
            Token::Close => {
                open.pop();
            }
            Token::Comma | Token::Colon | Token::String(_) | Token::Word => {}
        }
    }
    counts
}

/// What keeps valid JSON text from being handed to any JSON parser, if something does: nesting beyond
/// `depth_max`, or half a surrogate pair.
pub(super) fn find_unportable(text: &str, depth_max: usize) -> Option<String> {
    let mut depth = 0_usize;
    let mut scanner = Scanner::new(text);
    while let Some(token) = scanner.token() {
        match token {
            Token::Open if depth == depth_max => return Some(format!("nested deeper than {depth_max}")),
            Token::Open => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            Token::String(token) if unescape(token).is_none() => return Some(LONE_SURROGATE.to_owned()),
            Token::Comma | Token::Colon | Token::String(_) | Token::Word => {}
        }
    }
    None
}
