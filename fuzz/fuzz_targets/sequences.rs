//! For libFuzzer. The target itself is in `src/sequences.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ratelimitd_fuzz::sequences::run(data));
