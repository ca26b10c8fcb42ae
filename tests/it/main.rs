//! The integration tests: the real binary against a real Redis, a real Envoy and an independent gRPC client.
//!
//! One binary, one module per subject. `support` starts and stops the real things.

mod admission;
mod answers_corpus;
mod check;
mod cluster;
mod counters;
mod decisions;
mod deny_cache;
mod drain;
mod envoy;
mod faults;
mod grpc;
mod http;
mod lua_twin;
mod outage;
mod redis_security;
mod redis_store;
mod reload;
mod replay;
mod rules;
mod sentinel;
mod settings;
mod store_contract;
mod store_page;
mod support;
mod undo;
