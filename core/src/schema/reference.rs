//! Where the `$ref`s of a document lead: to places in it, and nowhere else.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jsonschema::Draft;
use serde_json::Value;

/// Most `$ref`s in one document: each costs its compilation some fifteen microseconds.
const REFERENCES_MAX: usize = 512;

/// A document and the names in it.
#[derive(Debug)]
pub(super) struct References<'a> {
    document: &'a Value,
    found: usize,
    anchors: BTreeMap<&'a str, &'a Value>,
}

impl<'a> References<'a> {
    /// Of a document whose own `$schema` and `$id` are taken off.
    ///
    /// # Errors
    /// A document of several, or a reference that only a validator at work can resolve, in words.
    pub(super) fn new(document: &'a Value, draft: Draft) -> Result<Self, String> {
        let mut references = Self { document, found: 0, anchors: BTreeMap::new() };
        references.collect(document, draft)?;
        Ok(references)
    }

    /// The schema that the value of a `$ref` names.
    ///
    /// # Errors
    /// Anything but a place in this document, in words.
    pub(super) fn target(&self, reference: &Value) -> Result<&'a Value, String> {
        let fragment = reference.as_str().and_then(|reference| reference.strip_prefix('#'));
        let fragment = fragment.ok_or("has a $ref that leads out of the document")?;
        let nowhere = || "has a $ref that leads nowhere".to_owned();
        let fragment = percent_decoded(fragment).ok_or_else(nowhere)?;
        if fragment.is_empty() || fragment.starts_with('/') {
            return self.document.pointer(&fragment).ok_or_else(nowhere);
        }
        self.anchors.get(&*fragment).copied().ok_or_else(nowhere)
    }

    fn collect(&mut self, value: &'a Value, draft: Draft) -> Result<(), String> {
        if let Value::Array(items) = value {
            return items.iter().try_for_each(|item| self.collect(item, draft));
        }
        let Value::Object(map) = value else { return Ok(()) };
        for (key, inner) in map {
            match (key.as_str(), inner) {
                ("$schema", Value::String(_)) => return Err("has a $schema inside".to_owned()),
                ("$id", Value::String(_)) => return Err("has an $id inside".to_owned()),
                ("id", Value::String(_)) if draft == Draft::Draft4 => {
                    return Err("has an id inside".to_owned());
                }
                ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                    return Err(format!("has a {key}, which the hub does not follow"));
                }
                ("$ref", Value::String(_)) => {
                    self.found += 1;
                    if self.found > REFERENCES_MAX {
                        return Err(format!("has more than {REFERENCES_MAX} $refs"));
                    }
                }
                ("$anchor" | "$dynamicAnchor", Value::String(name)) => {
                    if self.anchors.insert(name, value).is_some() {
                        return Err("has one anchor twice".to_owned());
                    }
                }
                _ => self.collect(inner, draft)?,
            }
        }
        Ok(())
    }
}

/// `None` when what it stands for is no text.
pub(super) fn percent_decoded(fragment: &str) -> Option<Cow<'_, str>> {
    if !fragment.contains('%') {
        return Some(Cow::Borrowed(fragment));
    }
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        // Two digits and nothing else: the number parser would also take a sign.
        let digits = str::from_utf8(digits).ok().filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}
