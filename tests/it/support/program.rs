//! The two programs, and which of them a command belongs to.

use std::ffi::OsString;

use ratelimitd::cli::OF_RATELIMITD;

/// The path of another `ratelimitd`, such as one of `make dist`, for the services that tests start.
const OVERRIDE: &str = "RATELIMITD_TEST_SERVICE";

/// The binary of the services that tests start.
#[expect(clippy::disallowed_methods, reason = "a switch of the test run, not a setting of the program")]
pub fn service() -> OsString {
    std::env::var_os(OVERRIDE).unwrap_or_else(|| env!("CARGO_BIN_EXE_ratelimitd").into())
}

/// The program of a command line that begins with a command.
pub fn program_of(line: &[&str]) -> &'static str {
    if OF_RATELIMITD.commands.split(' ').any(|command| command == line[0]) {
        env!("CARGO_BIN_EXE_ratelimitd")
    } else {
        env!("CARGO_BIN_EXE_ratelimitctl")
    }
}
