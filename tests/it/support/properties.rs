//! How the properties of these tests are checked: failing cases are kept in `proptest-regressions/it/`, beside those of
//! `src`.

use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};

/// The folder, seen from `tests/`, which is where proptest starts.
const REGRESSIONS: &str = "../proptest-regressions/it";

/// `file` is the caller's `file!()`.
pub fn config(file: &'static str) -> Config {
    Config {
        source_file: Some(file),
        failure_persistence: Some(Box::new(FileFailurePersistence::SourceParallel(REGRESSIONS))),
        ..Config::default()
    }
}

pub fn runner(file: &'static str) -> TestRunner {
    TestRunner::new(config(file))
}
