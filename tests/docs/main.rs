//! Holds the documentation to the program: pictures are drawn by the engine itself, sessions are run.
//!
//! After a change that is meant: `UPDATE_DOCS=1 cargo test --test docs`.

mod pages;
mod pictures;
mod readme;

use std::path::Path;

/// Compares a generated file with the one that is committed, or writes it where `UPDATE_DOCS` is set.
fn hold(path: &str, generated: &str) {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the program")]
    if std::env::var("UPDATE_DOCS").is_ok() {
        std::fs::create_dir_all(Path::new(path).parent().expect("a folder")).expect("a writable folder");
        std::fs::write(path, generated).expect("a writable file");
        return;
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == generated,
        "{path} is not what the program says: UPDATE_DOCS=1 cargo test --test docs"
    );
}
