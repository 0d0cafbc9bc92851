#![no_main]

#[path = "../targets/hub_operations/mod.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
