//! The usage ledger: what limits with `ledger: true` admitted and refused, by key and quarter hour, in files that
//! outlive the store. `cells` holds each worker's bookings, `writer` is the thread that writes them, `line` is the
//! format, which `ratelimitctl usage` also uses. Knows the engine, but no store and no port.

mod cells;
mod files;
mod line;
#[cfg(test)]
mod tests;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

pub use cells::{Ledger, LimitLabels, WorkerLedger};
pub(crate) use line::entries_of;
pub use line::{Begin, Line};
pub use writer::LedgerThread;

/// Quarters of an hour: every time zone starts its hours, days and months at one.
pub const QUARTER_S: u64 = 900;

/// `ledger.*`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerOptions {
    pub output: LedgerOutput,
    /// Between two writes.
    pub interval: Duration,
    /// Keys of one interval, and of one worker; the units of more are written without a key.
    pub max_keys: usize,
    /// Older files are removed; `None`: never.
    pub keep: Option<Duration>,
    /// Bytes of all files, above which the oldest are removed.
    pub max_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerOutput {
    /// The output of the process's log.
    Log,
    Directory(PathBuf),
}
