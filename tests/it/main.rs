//! The integration tests: the real binary against a real Redis, a real Envoy and an independent gRPC client.
//!
//! One binary, one folder per subject. Tests that need a program are in modules of these names: `redis`, `envoy`,
//! `nginx`, and `browser` for Chromium. All other modules need none (`make test-fast`). `support` starts and stops the
//! servers.

mod calendar;
mod check;
mod cli;
mod conformance;
mod console;
mod envoy;
mod holds;
mod ledger;
mod metrics;
mod notify;
mod recipes;
mod redis;
mod report_page;
mod rules;
mod service;
mod settle;

mod simulate;
mod slots;
mod store;
mod support;
mod xds;
