//! Which of the two programs a command belongs to.

use ratelimitd::cli::OF_RATELIMITD;

/// The program of a command line that begins with a command.
pub fn program_of(line: &[&str]) -> &'static str {
    if OF_RATELIMITD.commands.contains(&line[0]) {
        env!("CARGO_BIN_EXE_ratelimitd")
    } else {
        env!("CARGO_BIN_EXE_ratelimitctl")
    }
}
