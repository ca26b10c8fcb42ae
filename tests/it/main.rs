//! The integration tests: the real binary against a real Redis, a real Envoy and an independent gRPC client.
//!
//! One binary, one folder per subject. Tests that need a redis-server are in `redis`, tests that need an Envoy are in
//! `envoy`. All other modules need neither (`make test-fast`). `support` starts and stops the servers.

mod cli;
mod conformance;
mod envoy;
mod metrics;
mod redis;
mod rules;
mod service;
mod simulate;
mod store;
mod support;
mod xds;
