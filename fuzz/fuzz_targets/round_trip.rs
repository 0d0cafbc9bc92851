#![no_main]

#[path = "../../protocol/tests/support/message.rs"]
mod message;
#[path = "../targets/round_trip.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
