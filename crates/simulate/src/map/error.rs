//! A mistake in a map.

/// Why a map cannot be used: `file:line: reason`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct MapError {
    pub file: String,
    pub line: u32,
    pub reason: String,
}
