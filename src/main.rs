//! The binary. [`ratelimitd::cli`] has the commands.

use std::process::ExitCode;

/// Allocates and frees small blocks with less work than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ratelimitd::cli::run()
}
