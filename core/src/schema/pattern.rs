//! `pattern`, by an engine whose time is linear, and only where it is bounded.
//!
//! A pattern that the engine has no form for (a look around, a back reference), that takes too much, or that meets
//! a long string is taken for matched. Where a schema has `not`, `oneOf` or the like, that could refuse a good body:
//! there the check as a whole is told, and takes no misfit for granted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Value, json};

use super::decode::PATTERN_TEXT_MAX;

/// Most different patterns of one schema that are held against text.
const PATTERNS_MAX: usize = 16;
/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 256;
/// Most classes of Unicode (`\p`) in one pattern: each has hundreds of ranges.
const UNICODE_CLASSES_MAX: usize = 8;
/// Sizes of a compiled pattern in bytes, each with the steps that a byte of text may cost then: in the worst case
/// the engine follows all its states.
const SIZES: [(usize, u64); 3] = [(1 << 10, 2), (1 << 12, 8), (1 << 14, 32)];
/// Size of a compiled pattern of keys, and the steps that a byte of a key may cost.
pub(super) const KEY_PATTERN_SIZE: usize = 1 << 12;
pub(super) const KEY_PATTERN_STEPS: u64 = 8;

/// Whether a check has met a pattern that it could not try.
pub(super) type Unsure = Arc<AtomicBool>;

/// The patterns of one schema, each compiled once.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    compiled: BTreeMap<String, Option<Compiled>>,
    /// Whether the schema has a keyword that a match too many could make refuse.
    pub(super) may_turn: bool,
    pub(super) unsure: Unsure,
}

#[derive(Clone, Debug)]
struct Compiled {
    validator: Arc<Validator>,
    steps: u64,
}

impl Patterns {
    /// Compiles a pattern, and says how many steps a byte of text costs.
    pub(super) fn add(&mut self, pattern: &str) -> u64 {
        if !self.compiled.contains_key(pattern) {
            if self.compiled.len() == PATTERNS_MAX {
                return 0;
            }
            self.compiled.insert(pattern.to_owned(), compile(pattern));
        }
        self.compiled.get(pattern).and_then(Option::as_ref).map_or(0, |compiled| compiled.steps)
    }

    /// The keyword of a pattern.
    pub(super) fn keyword(&self, pattern: &str) -> Pattern {
        let compiled = self.compiled.get(pattern).and_then(Option::as_ref);
        Pattern {
            validator: compiled.map(|compiled| Arc::clone(&compiled.validator)),
            unsure: self.may_turn.then(|| Arc::clone(&self.unsure)),
        }
    }
}

/// Whether a pattern can be compiled in little time. What it would become is bounded by the engine.
pub(super) fn is_plain(pattern: &str) -> bool {
    let (mut classes, mut bytes) = (0, pattern.as_bytes().iter());
    while let Some(byte) = bytes.next() {
        match (byte, bytes.as_slice()) {
            (b'\\', _) => {
                classes += usize::from(bytes.next().is_some_and(|next| next.eq_ignore_ascii_case(&b'p')))
            }
            // Flags: to ignore case is to go through all of Unicode.
            (b'(', [b'?', next, ..]) if !b":=!<P".contains(next) => return false,
            _ => {}
        }
    }
    pattern.len() <= PATTERN_BYTES_MAX && classes <= UNICODE_CLASSES_MAX
}

fn compile(pattern: &str) -> Option<Compiled> {
    if !is_plain(pattern) {
        return None;
    }
    let schema = json!({ "pattern": pattern });
    SIZES.iter().find_map(|(size, steps)| {
        let engine = PatternOptions::regex().size_limit(*size).dfa_size_limit(*size * 8);
        let validator = jsonschema::options().with_pattern_options(engine).offline().build(&schema).ok()?;
        Some(Compiled { validator: Arc::new(validator), steps: *steps })
    })
}

/// The keyword `pattern`.
pub(super) struct Pattern {
    validator: Option<Arc<Validator>>,
    unsure: Option<Unsure>,
}

impl<'i> jsonschema::Keyword<'i> for Pattern {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if jsonschema::Keyword::is_valid(self, instance) {
            Ok(())
        } else {
            Err(ValidationError::custom("does not match the pattern"))
        }
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        let Value::String(text) = instance else { return true };
        match &self.validator {
            Some(validator) if text.len() <= PATTERN_TEXT_MAX => validator.is_valid(instance),
            _ => {
                if let Some(unsure) = &self.unsure {
                    unsure.store(true, Ordering::Relaxed);
                }
                true
            }
        }
    }
}
