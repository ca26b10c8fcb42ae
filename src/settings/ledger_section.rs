//! `ledger.*`: where usage is written, and for how long it is kept.

use super::parsers::{count, duration, duration_or_never, text};
use super::reader::Reader;
use crate::ledger::{LedgerOptions, LedgerOutput};

/// `None` without a path.
pub(super) fn ledger_from_reader(reader: &mut Reader) -> Option<LedgerOptions> {
    let path = text::<String>("the path of a directory, - for the output of the log").or_nothing();
    let path = reader.take("ledger.path", "", path);
    // Takes every setting, so that a malformed one is a problem even without a path.
    let interval = reader.take("ledger.interval", "1m", duration("10s", "15m"));
    let max_keys = reader.take("ledger.max_keys", "50000", count(1..=100_000));
    let keep = reader.take("ledger.keep", "35d", duration_or_never("1d", "3660d"));
    let max_bytes = reader.take("ledger.max_bytes", "4294967296", count(1_048_576..=1 << 50));
    let output = match path?.as_str() {
        "-" => LedgerOutput::Log,
        path => LedgerOutput::Directory(path.into()),
    };
    Some(LedgerOptions { output, interval, max_keys, keep, max_bytes })
}
