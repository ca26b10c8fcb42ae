//! The integration tests: one binary, one module per subject.

mod reload;
mod rules;
