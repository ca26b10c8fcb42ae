//! For libFuzzer. The target itself is in `src/grpc_frames.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ratelimitd_fuzz::grpc_frames::run(data));
