//! What a schema may cost: its parts, how they lead to each other, and how much work one value of a body can
//! cause in them.
//!
//! A validator follows `$ref`, `allOf` and their like on one value, and `properties`, `items` and their like
//! into the values inside it. The first kind is followed here once and for all: a way that leads back to where
//! it began would never end, and is refused. The second kind may lead anywhere, since each step uses up one level
//! of the body: for every depth of a body the outline knows the most work that one value there can cause.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::keyword::{Keyword, Shape};
use super::pattern::{KEY_PATTERN_STEPS, Patterns, is_plain};
use super::price::{Load, Price};
use super::reference::References;

/// Most parts that a schema may lead to, each counted as often as it is met on the way.
const PARTS_MAX: usize = 4096;
/// Most `$ref`, `allOf` and their like inside each other on one value.
const CHAIN_MAX: usize = 24;

/// Prices a schema, and collects its patterns.
///
/// # Errors
/// What cannot be bounded, in words.
pub(super) fn price(
    schema: &Value,
    references: &References<'_>,
    patterns: &mut Patterns,
) -> Result<Price, String> {
    let mut outline = Outline { references, patterns, parts: Vec::new(), known: BTreeMap::new(), met: 0 };
    outline.part(schema);
    let mut next = 0;
    // Parts are found while others are looked at.
    while let Some(schema) = outline.parts.get(next).map(|part| part.schema) {
        let mut part = Part::new(schema);
        outline.follow(&mut part, schema, &mut Place::default())?;
        if let Some(place) = outline.parts.get_mut(next) {
            *place = part;
        }
        next += 1;
    }
    Ok(Price::new(&outline.parts))
}

/// A schema that a value can come to from outside, with all that is followed on the same value.
#[derive(Debug)]
pub(super) struct Part<'a> {
    schema: &'a Value,
    /// Work on the value itself.
    pub(super) own: Load,
    /// Longest way on the same value.
    pub(super) chain: u32,
    /// Most choices (`anyOf`, `if` and their like) on one such way.
    pub(super) turns: u32,
    /// Parts where values of maps go by their keys, and where all go.
    pub(super) names: BTreeMap<&'a str, Vec<usize>>,
    pub(super) members: Vec<usize>,
    /// Parts where items of arrays go by their places, and where all go.
    pub(super) places: BTreeMap<usize, Vec<usize>>,
    pub(super) items: Vec<usize>,
}

impl<'a> Part<'a> {
    fn new(schema: &'a Value) -> Self {
        Self {
            schema,
            own: Load::default(),
            chain: 1,
            turns: 0,
            names: BTreeMap::new(),
            members: Vec::new(),
            places: BTreeMap::new(),
            items: Vec::new(),
        }
    }
}

/// Where the outline is on one value.
#[derive(Default)]
struct Place {
    turns: u32,
    /// Addresses of the schemas on the way.
    path: Vec<usize>,
}

struct Outline<'a, 'o> {
    references: &'o References<'a>,
    patterns: &'o mut Patterns,
    parts: Vec<Part<'a>>,
    /// Parts by the address of their schema.
    known: BTreeMap<usize, usize>,
    met: usize,
}

impl<'a> Outline<'a, '_> {
    fn part(&mut self, schema: &'a Value) -> usize {
        let index = *self.known.entry(address(schema)).or_insert(self.parts.len());
        if index == self.parts.len() {
            self.parts.push(Part::new(schema));
        }
        index
    }

    fn meet(&mut self) -> Result<(), String> {
        self.met += 1;
        if self.met > PARTS_MAX {
            return Err(format!("leads to more than {PARTS_MAX} schemas"));
        }
        Ok(())
    }

    /// Adds a schema, and what it leads to on the same value, to a part.
    fn follow(&mut self, part: &mut Part<'a>, schema: &'a Value, at: &mut Place) -> Result<(), String> {
        self.meet()?;
        part.own.steps = part.own.steps.saturating_add(1);
        let Value::Object(keywords) = schema else { return Ok(()) };
        let address = address(schema);
        if at.path.contains(&address) {
            return Err("has a $ref that leads back to itself on the same value".to_owned());
        }
        if at.path.len() == CHAIN_MAX {
            return Err(format!("has more than {CHAIN_MAX} $ref, allOf and the like inside each other"));
        }
        at.path.push(address);
        part.chain = part.chain.max(u32::try_from(at.path.len()).unwrap_or(u32::MAX));
        part.turns = part.turns.max(at.turns);
        let own = self.load(keywords)?;
        part.own = part.own.and(own);
        for (keyword, value) in keywords {
            let keyword = Keyword::of(keyword);
            match keyword {
                Keyword::Reference => {
                    let target = self.references.target(value)?;
                    self.follow(part, target, at)?;
                }
                Keyword::Same { choice, shape } => {
                    at.turns += u32::from(choice);
                    for inner in shape.schemas(value) {
                        self.follow(part, inner, at)?;
                    }
                    at.turns -= u32::from(choice);
                }
                Keyword::Properties | Keyword::Members(_) | Keyword::Items => {
                    self.lead(part, keyword, value)?
                }
                Keyword::Data | Keyword::Aside => {}
            }
        }
        at.path.pop();
        Ok(())
    }

    /// Adds the ways of one keyword into the values inside.
    fn lead(&mut self, part: &mut Part<'a>, keyword: Keyword, value: &'a Value) -> Result<(), String> {
        match (keyword, value) {
            (Keyword::Properties, Value::Object(properties)) => {
                for (name, schema) in properties {
                    let to = self.way(schema)?;
                    part.names.entry(name).or_default().push(to);
                }
            }
            (Keyword::Members(shape), _) => {
                for schema in shape.schemas(value) {
                    let to = self.way(schema)?;
                    part.members.push(to);
                }
            }
            (Keyword::Items, Value::Array(schemas)) => {
                for (place, schema) in schemas.iter().enumerate() {
                    let to = self.way(schema)?;
                    part.places.entry(place).or_default().push(to);
                }
            }
            (Keyword::Items, _) => {
                let to = self.way(value)?;
                part.items.push(to);
            }
            _ => {}
        }
        Ok(())
    }

    /// The part of a schema for a value inside. One that is a `$ref` and nothing else is the part of its target:
    /// schemas that describe a language name the same few places again and again.
    fn way(&mut self, schema: &'a Value) -> Result<usize, String> {
        self.meet()?;
        let mut schema = schema;
        for _ in 0..CHAIN_MAX {
            let alone = schema.as_object().is_some_and(|keywords| keywords.len() == 1);
            let Some(reference) = schema.get("$ref").filter(|_| alone) else { break };
            schema = self.references.target(reference)?;
        }
        Ok(self.part(schema))
    }

    /// The work of a schema's own keywords on one value.
    fn load(&mut self, keywords: &Map<String, Value>) -> Result<Load, String> {
        let mut load = Load::default();
        for (keyword, value) in keywords {
            load.steps += 1;
            self.patterns.may_turn |= matches!(keyword.as_str(), "not" | "if" | "oneOf" | "maxContains");
            match (Keyword::of(keyword), value) {
                (Keyword::Data, Value::String(pattern)) if keyword == "pattern" => {
                    load.patterns += self.patterns.add(pattern);
                }
                (Keyword::Data, Value::Bool(true)) if keyword == "uniqueItems" => load.whole += 1,
                (Keyword::Data, _) => load.steps += nodes(value),
                (Keyword::Members(Shape::One) | Keyword::Items, _) if keyword.starts_with("unevaluated") => {
                    load.again += 1;
                }
                (Keyword::Properties, Value::Object(properties)) => load.steps += properties.len() as u64,
                (Keyword::Same { shape: Shape::Map, .. }, Value::Object(lists)) => {
                    load.steps += lists.values().filter(|list| list.is_array()).map(nodes).sum::<u64>();
                }
                (Keyword::Members(Shape::Map), Value::Object(patterns)) => {
                    if !patterns.keys().all(|pattern| is_plain(pattern)) {
                        return Err("has a pattern of keys that takes too much".to_owned());
                    }
                    // additionalProperties looks for the keys that no pattern takes.
                    load.keys += patterns.len() as u64 * KEY_PATTERN_STEPS * 2;
                }
                _ => {}
            }
        }
        Ok(load)
    }
}

/// How many values there are in one.
fn nodes(value: &Value) -> u64 {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Tells one place in the document from another.
fn address(schema: &Value) -> usize {
    std::ptr::from_ref(schema).addr()
}
