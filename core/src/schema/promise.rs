//! Whether the output that a capability promises has what a caller expects.
//!
//! A promise is read as it stands: what an `output_schema` lists in `properties`, its own or those of a `$ref` or
//! `allOf` in it, is promised. Nothing is compiled.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::interned::Kept;
use super::reference::percent_decoded;

/// Most properties that one call can expect.
const NEEDS_MAX: usize = 256;
/// Deepest property that is asked for, in properties.
const NEEDS_DEPTH_MAX: usize = 16;
/// Most schemas that are looked through for one property: `$ref` and `allOf` may lead to many.
const LOOKS_MAX: u32 = 32;
/// Most properties that are looked for in one call, over all promises. After that, all are taken for kept.
const SEARCHES_MAX: u32 = 20_000;

/// An `output_schema`.
#[derive(Debug)]
pub(crate) struct Promise {
    source: Box<[u8]>,
    /// Only what can lead to properties.
    document: Value,
}

impl Kept for Promise {
    fn read(source: &[u8]) -> Result<Self, String> {
        let mut document = super::document(source)?;
        if !document.is_object() && !document.is_boolean() {
            return Err("is neither an object nor a boolean".to_owned());
        }
        prune(&mut document);
        Ok(Self { source: source.into(), document })
    }

    fn source(&self) -> &[u8] {
        &self.source
    }
}

/// Takes off what no look is given: most of a schema is description.
fn prune(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.retain(|keyword, _| {
        matches!(
            keyword.as_str(),
            "properties" | "required" | "type" | "$ref" | "allOf" | "$defs" | "definitions"
        )
    });
    for (keyword, value) in map.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(schemas)) => {
                schemas.values_mut().for_each(prune);
            }
            ("allOf", Value::Array(schemas)) => schemas.iter_mut().for_each(prune),
            _ => {}
        }
    }
}

/// The `expected_output` of one call.
#[derive(Debug)]
pub(crate) struct Expected {
    needs: Vec<Need>,
    /// What was asked last, by the address of the promise, which stays where it is as long as it is held.
    last: Cell<(usize, bool)>,
    verdicts: RefCell<BTreeMap<usize, Verdict>>,
    searches_left: Cell<u32>,
}

/// JSON pointer, into the expected output, of the first property that a promise lacks.
pub(crate) type MissingPointer = Arc<str>;

/// What a promise lacks, if anything.
type Verdict = (Arc<Promise>, Option<MissingPointer>);

/// One property that has to be there.
#[derive(Debug)]
struct Need {
    name: String,
    pointer: MissingPointer,
    types: Vec<String>,
    inner: Vec<Self>,
}

impl Expected {
    /// Reads the MessagePack of an `expected_output`.
    ///
    /// # Errors
    /// Why it is no JSON Schema that can be held against a promise, in words.
    pub(crate) fn read(source: &[u8]) -> Result<Self, String> {
        let promise = Promise::read(source)?;
        let mut left = NEEDS_MAX;
        let needs =
            needs(&promise.document, &promise.document, &Around { pointer: "", depth: 0 }, &mut left)?;
        let (last, verdicts) = (Cell::new((0, true)), RefCell::default());
        Ok(Self { needs, last, verdicts, searches_left: Cell::new(SEARCHES_MAX) })
    }

    /// Whether an output has all that is expected. A capability that promises nothing keeps only an expectation
    /// of nothing. The second question about the same promise costs a comparison.
    pub(crate) fn is_kept(&self, promise: Option<&Arc<Promise>>) -> bool {
        let (last, kept) = self.last.get();
        match promise {
            Some(promise) if last == Arc::as_ptr(promise).addr() => kept,
            _ => self.keeps(promise).is_ok(),
        }
    }

    /// As [`Expected::is_kept`], with the first property that is missing.
    ///
    /// # Errors
    /// Where one is missing, or is of a type that does not fit.
    pub(crate) fn keeps(&self, promise: Option<&Arc<Promise>>) -> Result<(), MissingPointer> {
        let Some(promise) = promise else {
            return self.needs.first().map_or(Ok(()), |need| Err(Arc::clone(&need.pointer)));
        };
        let address = Arc::as_ptr(promise).addr();
        let known = self.verdicts.borrow().get(&address).map(|(_, missing)| missing.clone());
        let missing = known.unwrap_or_else(|| {
            let missing = self.missing(&self.needs, &promise.document, &promise.document);
            self.verdicts.borrow_mut().insert(address, (Arc::clone(promise), missing.clone()));
            missing
        });
        self.last.set((address, missing.is_none()));
        missing.map_or(Ok(()), Err)
    }

    fn missing(&self, needs: &[Need], schema: &Value, document: &Value) -> Option<MissingPointer> {
        needs.iter().find_map(|need| {
            let left = self.searches_left.get().checked_sub(1)?;
            self.searches_left.set(left);
            let Some(property) = property(schema, document, &need.name, &mut { LOOKS_MAX }) else {
                return Some(Arc::clone(&need.pointer));
            };
            if !is_compatible(&types(property, document, &mut { LOOKS_MAX }), &need.types) {
                return Some(Arc::clone(&need.pointer));
            }
            self.missing(&need.inner, property, document)
        })
    }
}

/// Where in an expectation its reader is.
struct Around<'a> {
    pointer: &'a str,
    depth: usize,
}

/// The properties that a schema requires, as deep as there is a need.
fn needs(
    schema: &Value,
    document: &Value,
    around: &Around<'_>,
    left: &mut usize,
) -> Result<Vec<Need>, String> {
    let mut needs = Vec::new();
    if around.depth == NEEDS_DEPTH_MAX {
        return Ok(needs);
    }
    for map in maps(schema, document, &mut { LOOKS_MAX }) {
        let names = match map.get("required") {
            None => &[],
            Some(Value::Array(names)) => names.as_slice(),
            Some(_) => return Err("has a required that is no list".to_owned()),
        };
        if map.get("properties").is_some_and(|properties| !properties.is_object()) {
            return Err("has properties that are no object".to_owned());
        }
        for name in names {
            let name = name.as_str().ok_or("has a required name that is no string")?;
            *left =
                left.checked_sub(1).ok_or_else(|| format!("requires more than {NEEDS_MAX} properties"))?;
            let pointer = format!("{}/{}", around.pointer, name.replace('~', "~0").replace('/', "~1"));
            let mut need = Need { name: name.to_owned(), pointer: "".into(), types: vec![], inner: vec![] };
            if let Some(inner) = property(schema, document, name, &mut { LOOKS_MAX }) {
                need.types = types(inner, document, &mut { LOOKS_MAX });
                let around = Around { pointer: &pointer, depth: around.depth + 1 };
                need.inner = self::needs(inner, document, &around, left)?;
            }
            need.pointer = pointer.into();
            needs.push(need);
        }
    }
    Ok(needs)
}

/// A schema and those that its `$ref` and `allOf` lead to, as far as there are looks left.
fn maps<'a>(schema: &'a Value, document: &'a Value, left: &mut u32) -> Vec<&'a Map<String, Value>> {
    let mut found = Vec::new();
    let mut waiting = vec![schema];
    while let Some(schema) = waiting.pop() {
        let (Value::Object(map), Some(fewer)) = (schema, left.checked_sub(1)) else { continue };
        *left = fewer;
        found.push(map);
        if let Some(Value::Array(all)) = map.get("allOf") {
            // No more than will be looked at.
            let looks = usize::try_from(*left).unwrap_or(usize::MAX);
            waiting.extend(all.iter().take(looks).rev());
        }
        let reference = map.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
        let pointer = reference.and_then(percent_decoded);
        waiting.extend(pointer.and_then(|pointer| document.pointer(&pointer)));
    }
    found
}

fn property<'a>(schema: &'a Value, document: &'a Value, name: &str, left: &mut u32) -> Option<&'a Value> {
    maps(schema, document, left).into_iter().find_map(|map| map.get("properties")?.get(name))
}

/// The types that a schema names; none where it names none.
fn types(schema: &Value, document: &Value, left: &mut u32) -> Vec<String> {
    let named = maps(schema, document, left).into_iter().find_map(|map| map.get("type"));
    match named {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Whether some value can be of both. Who names no type leaves it open.
fn is_compatible(promised: &[String], expected: &[String]) -> bool {
    let fits = |promised: &str, expected: &str| {
        promised == expected || (promised == "integer" && expected == "number")
    };
    promised.is_empty()
        || expected.is_empty()
        || promised.iter().any(|promised| expected.iter().any(|expected| fits(promised, expected)))
}
