//! Checks the documentation against the program: the sessions are run, links and generated tables are compared.
//!
//! After an intended change: `UPDATE_DOCS=1 cargo test --test docs`.

mod chart;
mod decisions;
mod doctor;
mod pages;
mod readme;
mod runbook;
mod sections;
mod supply_chain;
mod variables;

use std::path::Path;

/// Compares a generated file with the committed one, or writes it if `UPDATE_DOCS` is set.
fn compare_or_update(path: &str, generated: &str) {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the program")]
    if std::env::var("UPDATE_DOCS").is_ok() {
        std::fs::create_dir_all(Path::new(path).parent().expect("a folder")).expect("a writable folder");
        std::fs::write(path, generated).expect("a writable file");
        return;
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(committed == generated, "{path} differs from the program: UPDATE_DOCS=1 cargo test --test docs");
}
