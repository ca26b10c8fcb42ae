//! Why live exceptions were not changed.

use engine::StoreError;
use serde_json::Value;

/// The text is for the caller. Nothing changed, except perhaps after a [`StoreError`].
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Problems of the caller's rows, one per line.
    #[error("{0}")]
    Invalid(String),
    #[error("no row is for this")]
    NoRow,
    /// The row's version differs from the one that the caller named. `row`: as it is, masked.
    #[error("{place}: the row has changed: it has version {version} now\n{row:#}")]
    Changed { place: String, version: u64, row: Value },
    #[error("100,000 rows are set already: remove some")]
    Full,
    #[error("exceptions.redis is off: the row would be in force in one process only")]
    Off,
    #[error("the rows in Redis cannot be changed now: {}", told(.0))]
    Unavailable(#[from] StoreError),
}

fn told(error: &StoreError) -> &str {
    match error {
        StoreError::Timeout => "no answer in time; whether it took effect is not known",
        error => error.brief(),
    }
}
