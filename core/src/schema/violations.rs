//! Why a body does not fit, for the `details` of `schema_mismatch`.

use std::fmt::{self, Write};

use agent_reach_protocol::codec::Writer;

/// Most violations that are told.
pub(crate) const VIOLATIONS_MAX: usize = 8;
/// Longest pointer, in bytes. A longer one is told as far as its last whole step: it names what is around.
pub(crate) const POINTER_BYTES_MAX: usize = 256;
/// Longest message, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 200;

/// One thing that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// JSON pointer into the body.
    pub(crate) pointer: String,
    /// What is wrong there. Never the values of the body; names of its keys at most.
    pub(crate) message: String,
}

/// At most [`VIOLATIONS_MAX`] of them, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violations(Vec<Violation>);

impl Violations {
    /// One, of the body as a whole.
    pub(crate) fn of_body(message: &dyn fmt::Display) -> Self {
        Self(vec![Violation::new("", message)])
    }

    /// The first ones; one of the body as a whole where there are none.
    pub(super) fn first(violations: impl Iterator<Item = Violation>) -> Self {
        let first: Vec<_> = violations.take(VIOLATIONS_MAX).collect();
        if first.is_empty() { Self::of_body(&UNEXPLAINED) } else { Self(first) }
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Violation> {
        self.0.iter()
    }

    /// One: a property that no output has.
    pub(crate) fn of_output(pointer: &str) -> Self {
        let message = "expected_output requires it, and no output_schema has it so".to_owned();
        Self(vec![Violation { pointer: pointer.to_owned(), message }])
    }

    /// Writes the `details` of RESULT: `{violations: [{pointer, message}]}`.
    pub(crate) fn write_details(&self, out: &mut Writer) {
        out.map(1);
        out.str("violations");
        out.array(self.0.len());
        for violation in &self.0 {
            out.map(2);
            out.str("pointer");
            out.str(&violation.pointer);
            out.str("message");
            out.str(&violation.message);
        }
    }
}

/// What is said where the reasons would take too long to find.
pub(super) const UNEXPLAINED: &str = "does not fit the input_schema";

impl Violation {
    pub(super) fn new(pointer: &str, message: &dyn fmt::Display) -> Self {
        Self { pointer: shortened(pointer).to_owned(), message: Short::of(message) }
    }
}

/// Text that stops its writer when it is full.
pub(super) struct Short(String);

impl Short {
    /// At most [`MESSAGE_BYTES_MAX`] bytes of a message.
    pub(super) fn of(message: &dyn fmt::Display) -> String {
        let mut short = Self(String::new());
        // An error means that the message is longer: the rest of it is not even made.
        if write!(short, "{message}").is_err() {
            short.0.push('…');
        }
        short.0
    }
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MESSAGE_BYTES_MAX - '…'.len_utf8() - self.0.len();
        let fitting = head(text, room);
        self.0.push_str(fitting);
        if fitting.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// As much of a text as there is room for, in whole characters.
fn head(text: &str, room: usize) -> &str {
    let end = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

fn shortened(pointer: &str) -> &str {
    if pointer.len() <= POINTER_BYTES_MAX {
        return pointer;
    }
    let within = head(pointer, POINTER_BYTES_MAX);
    within.rfind('/').and_then(|end| within.get(..end)).unwrap_or_default()
}
