//! The usage ledger: what is booked, and what of it stands in the files.

mod command;
pub(crate) mod known_answers;
pub(crate) mod service;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ratelimitd::ledger::{Ledger, LedgerOptions, LedgerOutput, LedgerThread, Line};

pub(crate) use known_answers::check_known_answers;

pub(crate) fn options(directory: &Path) -> LedgerOptions {
    LedgerOptions {
        output: LedgerOutput::Directory(directory.to_owned()),
        interval: Duration::from_secs(900),
        max_keys: 50_000,
        keep: None,
        max_bytes: 1 << 40,
    }
}

/// Writes what was booked, as a process that ends.
pub(crate) fn write(ledger: &Arc<Ledger>, options: LedgerOptions) {
    drop(LedgerThread::start(Arc::clone(ledger), options, |_| ()).expect("a thread"));
}

/// The files of a ledger, by name.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    files.sort_unstable();
    files
}

/// All lines of the plain files.
pub(crate) fn lines(directory: &Path) -> Vec<Line<'static>> {
    let texts = files(directory).into_iter().map(|file| std::fs::read_to_string(file).expect("a text"));
    let text = String::leak(texts.collect());
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}
