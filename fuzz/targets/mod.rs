//! What the fuzzer runs, as plain functions of bytes: `fuzz_targets/` gives them to libFuzzer, and an ordinary
//! test of the workspace runs them over the corpus. A target fails by a panic.
//!
//! A further target is a module here, a line in [`ALL`], a file in `fuzz_targets/` and a `[[bin]]` in
//! `fuzz/Cargo.toml`.

pub(crate) mod decode_json;
pub(crate) mod decode_msgpack;
pub(crate) mod hub_operations;
#[path = "../../protocol/tests/support/message.rs"]
mod message;
pub(crate) mod round_trip;
pub(crate) mod websocket;

/// A target: the name of its folder in the corpus, and what it does with bytes.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Every target.
pub(crate) const ALL: [Target; 5] = [
    ("decode_json", decode_json::run),
    ("decode_msgpack", decode_msgpack::run),
    ("hub_operations", hub_operations::run),
    ("round_trip", round_trip::run),
    ("websocket", websocket::run),
];
