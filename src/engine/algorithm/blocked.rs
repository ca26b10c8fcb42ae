//! A limit of 0 under an algorithm that divides by its rate. Every cost is over; there is no state.

use std::fmt;

use super::report::CounterView;

/// Admits nothing and keeps no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked;

impl CounterView for Blocked {
    fn max_cost(&self) -> u64 {
        0
    }
    fn remaining(&self) -> u64 {
        0
    }
    fn wait_us(&self, _units: u64) -> u64 {
        0
    }
    fn reset_after_us(&self) -> u64 {
        0
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no")
    }
}
