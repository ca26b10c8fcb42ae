//! Tests of all kernels: laws and known answers.

mod changed_numbers;
mod edges;
mod known_answers;
mod laws;
mod lease_laws;
mod settle_laws;
pub(super) mod testing;
