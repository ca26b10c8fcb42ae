//! Why the command ends early.

use std::fmt::Display;

/// The rules have problems.
pub(super) const RULES: u8 = 1;
/// The log, the map or the output has, or a bound has tested nothing.
pub(super) const LOG: u8 = 2;

/// The exit code, and what is wrong.
pub(super) struct Failure(pub u8, pub String);

impl Failure {
    pub fn new(code: u8, problem: impl Display) -> Self {
        Self(code, problem.to_string())
    }
}
