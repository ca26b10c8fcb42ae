//! The integration tests: the real binary against a real Redis, a real Envoy and an independent gRPC client.
//!
//! One binary, a folder per subject. What needs a redis-server is in `redis`, what needs an Envoy is in `envoy`; all
//! other modules need neither (`make test-fast`). `support` starts and stops the servers.

mod cli;
mod envoy;
mod redis;
mod rules;
mod service;
mod store;
mod support;
