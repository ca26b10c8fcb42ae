//! For libFuzzer. The target itself is in `src/json_bodies.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ratelimitd_fuzz::json_bodies::run(data));
