//! What each part says, and what hostile peers get.

mod bodies;
mod checks;
mod hostile;
mod promises;
mod sharing;

use std::sync::Arc;

use serde_json::Value;

use super::{Body, Schema, Violations};

fn msgpack(value: &Value) -> Vec<u8> {
    rmp_serde::to_vec(value).unwrap()
}

fn compile(schema: &Value) -> Result<Schema, String> {
    Schema::compile(&msgpack(schema))
}

fn schema(schema: &Value) -> Arc<Schema> {
    Arc::new(compile(schema).unwrap())
}

fn check(schema: &Arc<Schema>, body: &Value) -> Result<(), Arc<Violations>> {
    Body::new(Some(&msgpack(body)), None).check(schema)
}

fn fits(schema: &Arc<Schema>, body: &Value) -> bool {
    check(schema, body).is_ok()
}

/// Where a body does not fit.
fn pointers(schema: &Arc<Schema>, body: &Value) -> Vec<String> {
    check(schema, body).unwrap_err().iter().map(|violation| violation.pointer.clone()).collect()
}
