//! The integration tests: the real binary against a real Redis, a real Envoy and an independent gRPC client.
//!
//! One binary, one module per subject. `support` starts and stops the real things.

mod decisions;
mod envoy;
mod reload;
mod rules;
mod settings;
mod support;
