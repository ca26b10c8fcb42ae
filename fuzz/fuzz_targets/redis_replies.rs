//! For libFuzzer. The target itself is in `src/redis_replies.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ratelimitd_fuzz::redis_replies::run(data));
