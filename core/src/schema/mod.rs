//! JSON Schema in routing: who is able to take a body, and whose answer has what the caller needs.
//!
//! A [`Schema`] is compiled once, when a capability is registered, and shared by all who registered the same
//! bytes ([`Interned`]). A [`Body`] is decoded once, when the first candidate with a schema is looked at, and
//! remembers what each schema says. An [`Expected`] output is held against each [`Promise`] in the same way.
//!
//! This is a filter before a provider, and no guard in front of it: what a check cannot decide in bounded time fits.
//!
//! # What is checked
//!
//! Drafts 4 to 2020-12, by `$schema`; without one, 2020-12. `format` and `content*` say nothing. References lead
//! to places in the same document (`#`, `#/…`, `#anchor`). `$dynamicRef`, `$recursiveRef`, documents inside the
//! document (`$id`, `$schema`) and references out of it are refused.
//!
//! # What keeps it bounded
//!
//! | what | bound |
//! | --- | --- |
//! | a schema | 65,536 bytes, 8192 values, 32 levels |
//! | `$ref`, `allOf` and the like on one value | 24 inside each other, none that leads back to itself |
//! | schemas that one leads to, each as often as it is met | 4096; 512 `$ref`s |
//! | patterns | 16 of 256 bytes in linear time, held against strings of up to 1024 bytes |
//! | a body | 256 KiB, 8192 values, 64 levels |
//! | work on one body, over all schemas | 100,000 steps of some ten nanoseconds, estimated before (`price`) |
//! | recursion | 640 schemas inside each other |
//!
//! A schema over its bounds is refused. A body over its bounds, a check over its budget, and one whose only misfit
//! hangs on a pattern that could not be tried, fit.

mod allowance;
mod body;
mod decode;
mod interned;
mod keyword;
mod outline;
mod pattern;
mod price;
mod promise;
mod reference;
#[cfg(test)]
mod tests;
mod violations;

use std::fmt;
use std::sync::atomic::Ordering;

use agent_reach_protocol::limits::SCHEMA_BYTES_MAX;
use jsonschema::{Draft, PatternOptions, ValidationError, ValidationOptions, Validator};
use serde_json::Value;

use decode::{Level, Limits, Undecodable};
use pattern::{Patterns, Unsure};
use price::{Cost, Price};
use reference::References;
use violations::{Short, UNEXPLAINED, Violation};

pub(crate) use allowance::Allowance;
pub(crate) use body::Body;
pub(crate) use interned::Interned;
use interned::Kept;
pub(crate) use promise::{Expected, Promise};
pub(crate) use violations::Violations;

/// Most values in a schema, and its deepest nesting. A header is no deeper either.
const LIMITS: Limits = Limits { depth: 32, nodes: 8192 };
/// Most schemas inside each other in a check: bounds its stack.
const RECURSION_MAX: u32 = 640;
/// Most steps of a check that is done again for its reasons.
const REASONS_STEPS_MAX: u64 = 20_000;

/// A compiled `input_schema`.
pub(crate) struct Schema {
    source: Box<[u8]>,
    validator: Validator,
    price: Price,
    unsure: Unsure,
}

impl Schema {
    /// Compiles the MessagePack of a JSON Schema.
    ///
    /// # Errors
    /// Why it cannot be used, in words for the one who registered it, of at most 200 bytes.
    pub(crate) fn compile(source: &[u8]) -> Result<Self, String> {
        let mut document = document(source)?;
        let draft = take_draft(&mut document)?;
        let references = References::new(&document, draft)?;
        let mut patterns = Patterns::default();
        let price = outline::price(&document, &references, &mut patterns)?;
        let unsure = Unsure::clone(&patterns.unsure);
        let validator = options(draft, patterns).build(&document).map_err(|error| {
            Short::of(&format_args!("is no JSON Schema: {}: {}", error.instance_path(), error.masked()))
        })?;
        Ok(Self { source: source.into(), validator, price, unsure })
    }

    fn cost(&self, levels: &[Level]) -> Cost {
        self.price.of(levels)
    }

    /// Holds a value against the schema, of which the cost is known to be bearable.
    fn judge(&self, value: &Value, cost: Cost) -> Result<(), Violations> {
        if cost.chain > RECURSION_MAX {
            return Ok(());
        }
        self.unsure.store(false, Ordering::Relaxed);
        if self.validator.is_valid(value) || self.unsure.load(Ordering::Relaxed) {
            return Ok(());
        }
        let again = cost.steps.saturating_mul(u64::from(cost.turns) + 1);
        if again > REASONS_STEPS_MAX {
            return Err(Violations::of_body(&UNEXPLAINED));
        }
        Err(Violations::first(self.validator.iter_errors(value).map(|error| violation(&error))))
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was compiled is long, and says nothing to a reader.
        f.debug_struct("Schema").field("source_bytes", &self.source.len()).finish_non_exhaustive()
    }
}

impl Kept for Schema {
    fn read(source: &[u8]) -> Result<Self, String> {
        Self::compile(source)
    }

    fn source(&self) -> &[u8] {
        &self.source
    }
}

/// The message leaves the value out: a body is nobody's business but its provider's.
fn violation(error: &ValidationError<'_>) -> Violation {
    Violation::new(error.instance_path().as_str(), &error.masked())
}

/// Decodes a schema's bytes.
fn document(source: &[u8]) -> Result<Value, String> {
    if source.len() > SCHEMA_BYTES_MAX {
        return Err(format!("is larger than {SCHEMA_BYTES_MAX} bytes"));
    }
    match decode::messagepack(source, LIMITS) {
        Ok(decoded) => Ok(decoded.value),
        Err(Undecodable::Malformed(why)) => Err(format!("is {why}")),
        Err(Undecodable::TooMuch) => {
            Err(format!("has more than {} values, or is nested deeper than {}", LIMITS.nodes, LIMITS.depth))
        }
    }
}

/// Takes `$schema` and `$id` off a document: the name of a document means nothing here, and one that takes the
/// name of a known document must not stand for it.
fn take_draft(document: &mut Value) -> Result<Draft, String> {
    let Value::Object(map) = document else { return Ok(Draft::Draft202012) };
    let draft = match map.remove("$schema") {
        None => Draft::Draft202012,
        Some(Value::String(name)) => dialect(&name).ok_or("names a $schema that the hub does not know")?,
        Some(_) => return Err("has a $schema that is no string".to_owned()),
    };
    map.remove(if draft == Draft::Draft4 { "id" } else { "$id" });
    Ok(draft)
}

fn dialect(name: &str) -> Option<Draft> {
    let name = name.strip_suffix('#').unwrap_or(name);
    let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://"))?;
    Some(match name {
        "json-schema.org/draft-04/schema" => Draft::Draft4,
        "json-schema.org/draft-06/schema" => Draft::Draft6,
        "json-schema.org/draft-07/schema" => Draft::Draft7,
        "json-schema.org/draft/2019-09/schema" => Draft::Draft201909,
        "json-schema.org/draft/2020-12/schema" => Draft::Draft202012,
        _ => return None,
    })
}

fn options(draft: Draft, patterns: Patterns) -> ValidationOptions<'static> {
    let engine = PatternOptions::regex()
        .size_limit(pattern::KEY_PATTERN_SIZE)
        .dfa_size_limit(pattern::KEY_PATTERN_SIZE * 8);
    jsonschema::options()
        .with_draft(draft)
        .offline()
        .with_pattern_options(engine)
        .should_validate_formats(false)
        .without_content_media_type_support("application/json")
        .without_content_encoding_support("base64")
        .with_keyword("pattern", move |_, value, _| {
            Ok(Box::new(patterns.keyword(value.as_str().unwrap_or_default())))
        })
}
