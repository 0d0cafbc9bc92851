#![no_main]

#[path = "../targets/websocket.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
