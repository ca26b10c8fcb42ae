//! What the line of a request says besides the request.

/// A request and what its line says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub t_us: u64,
    pub is_good: bool,
    pub was_limited: bool,
}
