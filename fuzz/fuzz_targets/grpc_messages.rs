//! For libFuzzer. The target itself is in `src/grpc_messages.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ratelimitd_fuzz::grpc_messages::run(data));
