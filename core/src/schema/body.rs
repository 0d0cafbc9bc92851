//! The body of one call, decoded when it is first asked about, and what each schema says of it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use agent_reach_protocol::json::BodyFormat;
use serde_json::{Map, Value};

use super::Schema;
use super::decode::{self, Decoded, Level, Limits, Undecodable};
use super::price::BODY_DEPTH_MAX;
use super::violations::Violations;

/// Largest body that is checked, in bytes. A larger one fits every schema: to decode it alone would hold up all
/// others for longer than a check is worth, and its provider checks it anyway.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024;
/// Most values of a body that is checked. One with more fits every schema.
pub(crate) const BODY_NODES_MAX: u32 = 8192;
/// Most steps of checking that one body gets, over all schemas that it is held against; from there on it fits.
/// Some milliseconds at the very worst.
pub(super) const STEPS_MAX: u64 = 100_000;
/// Steps that a check costs before it looks at anything.
const CHECK_STEPS: u64 = 10;

/// The body of a call. Not for more than one call, as it remembers what was found.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    bytes: Option<&'a [u8]>,
    content_type: Option<&'a str>,
    read: OnceCell<Read>,
    /// What was asked last: the same schema is asked for all agents of one kind, one after the other.
    last: Cell<(usize, bool)>,
    /// Verdicts by the address of their schema, which stays where it is as long as it is held.
    verdicts: RefCell<BTreeMap<usize, Verdict>>,
    steps_left: Cell<u64>,
}

type Verdict = (Arc<Schema>, Result<(), Arc<Violations>>);

/// A body that was looked at.
#[derive(Debug)]
enum Read {
    Value(Decoded),
    /// There is none: it fits where null fits, and where an object without properties does, as for a capability
    /// that needs no arguments.
    Absent,
    /// Nothing can be said of it.
    Unknown,
    Broken(&'static str),
}

impl<'a> Body<'a> {
    /// Of a CALL. Nothing is decoded yet.
    pub(crate) fn new(bytes: Option<&'a [u8]>, content_type: Option<&'a str>) -> Self {
        Self {
            // Some write no body as an empty one; no encoding has a value of no bytes.
            bytes: bytes.filter(|bytes| !bytes.is_empty()),
            content_type,
            read: OnceCell::new(),
            last: Cell::new((0, true)),
            verdicts: RefCell::default(),
            steps_left: Cell::new(STEPS_MAX),
        }
    }

    /// Whether the body fits a schema. The second question about the same schema costs a comparison.
    pub(crate) fn fits(&self, schema: &Arc<Schema>) -> bool {
        let (last, fits) = self.last.get();
        if last == Arc::as_ptr(schema).addr() { fits } else { self.check(schema).is_ok() }
    }

    /// As [`Body::fits`], with the reasons.
    ///
    /// # Errors
    /// Where the body does not fit.
    pub(crate) fn check(&self, schema: &Arc<Schema>) -> Result<(), Arc<Violations>> {
        let address = Arc::as_ptr(schema).addr();
        let known = self.verdicts.borrow().get(&address).map(|(_, verdict)| verdict.clone());
        let verdict = known.unwrap_or_else(|| {
            let verdict = self.judge(schema).map_err(Arc::new);
            self.verdicts.borrow_mut().insert(address, (Arc::clone(schema), verdict.clone()));
            verdict
        });
        self.last.set((address, verdict.is_ok()));
        verdict
    }

    fn judge(&self, schema: &Schema) -> Result<(), Violations> {
        match self.read.get_or_init(|| self.read()) {
            Read::Unknown => Ok(()),
            Read::Broken(why) => Err(Violations::of_body(why)),
            Read::Value(decoded) => self.hold(schema, &decoded.value, &decoded.levels),
            Read::Absent => {
                let levels = [Level { nodes: 1, ..Level::default() }];
                self.hold(schema, &Value::Null, &levels)
                    .or_else(|_| self.hold(schema, &Value::Object(Map::new()), &levels))
            }
        }
    }

    /// Holds a value against a schema, as long as there is budget for it.
    fn hold(&self, schema: &Schema, value: &Value, levels: &[Level]) -> Result<(), Violations> {
        let cost = schema.cost(levels);
        let Some(left) = self.steps_left.get().checked_sub(cost.steps.saturating_add(CHECK_STEPS)) else {
            return Ok(());
        };
        self.steps_left.set(left);
        schema.judge(value, cost)
    }

    fn read(&self) -> Read {
        let limits = Limits { depth: BODY_DEPTH_MAX, nodes: BODY_NODES_MAX };
        let Some(bytes) = self.bytes else { return Read::Absent };
        if bytes.len() > BODY_BYTES_MAX {
            return Read::Unknown;
        }
        let decoded = match BodyFormat::of(self.content_type) {
            BodyFormat::MessagePack => decode::messagepack(bytes, limits),
            BodyFormat::Json => decode::json(bytes, limits),
            BodyFormat::Opaque => return Read::Unknown,
        };
        match decoded {
            Ok(decoded) => Read::Value(decoded),
            Err(Undecodable::TooMuch) => Read::Unknown,
            Err(Undecodable::Malformed(why)) => Read::Broken(why),
        }
    }
}
