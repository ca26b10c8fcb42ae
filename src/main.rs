//! The binary. What it can do is in [`ratelimitd::cli`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Frees and takes small blocks with less work than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ratelimitd::cli::run()
}
