//! For libFuzzer. The target itself is in `src/rule_files.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ratelimitd_fuzz::rule_files::run(data));
