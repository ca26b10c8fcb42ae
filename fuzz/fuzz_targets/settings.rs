//! For libFuzzer. The target itself is in `src/settings.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ratelimitd_fuzz::settings::run(data));
