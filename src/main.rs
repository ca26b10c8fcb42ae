//! The service's binary. [`ratelimitd::cli`] has the commands.

use std::process::ExitCode;

/// Cheaper for small blocks than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ratelimitd::cli::run()
}
