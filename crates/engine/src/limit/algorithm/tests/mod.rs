//! Tests of all kernels: their laws, and answers that are known.

mod changed_numbers;
mod edges;
mod known_answers;
mod laws;
mod settle_laws;
pub(super) mod testing;
