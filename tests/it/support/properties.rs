//! The proptest configuration of these tests: failing cases are saved in `proptest-regressions/it/`, beside those of
//! `src`.

use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};

/// The folder of saved cases, relative to `tests/`, from which proptest resolves it.
const REGRESSIONS: &str = "../proptest-regressions/it";

/// `file` is `file!()` in the module of the property.
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
