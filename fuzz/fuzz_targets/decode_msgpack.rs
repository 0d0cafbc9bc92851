#![no_main]

#[path = "../targets/decode_msgpack.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
