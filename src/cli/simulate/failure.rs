//! Why `simulate` ends early.

use std::fmt::Display;

/// The exit code if the log, the map or the output has problems, or a bound has tested nothing.
pub(super) const LOG: u8 = 2;

/// Why the command ends early: the exit code, and what is wrong.
pub(super) struct Failure(pub(super) u8, pub(super) String);

impl Failure {
    pub(super) fn new(code: u8, problem: impl Display) -> Self {
        Self(code, problem.to_string())
    }
}
