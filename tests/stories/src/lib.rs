//! Tests of whole stories: all features together, in random order.
//!
//! [`story`](mod@story) is a story as data, [`generate`] makes random ones, and [`play`] decides one on a store, as
//! the service does. [`relations`] changes a story in a way that must not change its answers, [`model`] computes the
//! answers without the engine, [`explain`] compares what `explain` says with what is charged, and [`shrink`] makes a
//! story that fails as small as it can. `tests/` runs them on memory; the integration tests of the service run them on
//! Redis.
//!
//! A story that has failed is a line of `known/*.jsonl`, and stays there as a test.

pub mod answer;
pub mod explain;
pub mod generate;
pub mod lasting;
pub mod model;
pub mod play;
pub mod random;
pub mod relations;
pub mod run;
pub mod shrink;
pub mod story;
