#![no_main]

#[path = "../targets/message.rs"]
mod message;
#[path = "../targets/round_trip.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
