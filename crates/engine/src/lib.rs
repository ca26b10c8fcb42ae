//! The pure core: rules, matching, keys, algorithms in integer microseconds, combining outcomes into a decision.
//!
//! Knows what a request asks, the limits that apply to it, and what the state of each counter allows. Knows nothing of
//! gRPC, Redis, YAML, metrics or logs; awaits nothing and reads no clock (`now_us` is always an argument).
#![warn(clippy::print_stdout, clippy::print_stderr)]

// The pipeline of a request, in order:
// Request -> RuleSet::plan -> Charges -> Store::decide -> Outcomes -> Decision::merge.
mod charge;
mod decision;
mod outcome;
mod plan;
mod request;
mod store;
mod text;

// Compiling rules, matching descriptors.
mod matcher;
mod metadata;
mod pattern;
mod rule;
mod rule_set;
mod secret;
mod spec;
mod stat_path;
mod wildcards;

// The vocabulary: a limit, its algorithm, its counter's key.
pub mod algorithm;
mod cost;
mod key;
mod limit;
mod period;
mod shard;
pub mod wire;

pub use algorithm::{Pacing, Report, RetryAfter, Verdict};
pub use charge::{Charge, Charges, Role};
pub use cost::Cost;
pub use decision::{Applied, Code, Decision, Enforcement, LimitResult, Status};
pub use key::without_values;
pub use limit::{
    Algorithm, Charging, FailurePolicy, LONGEST_REFILL_US, Limit, LimitError, LimitId, LimitSpec, Quantity,
    Refill,
};
pub use matcher::{Step, Walk};
pub use metadata::Metadata;
pub use outcome::{CounterSnapshot, DecidedBy, Outcome, Outcomes};
pub use pattern::Pattern;
pub use period::{Period, Unit};
pub use plan::{ChargedLimit, Plan, PlanError};
pub use request::{Caller, Descriptor, Entry, LimitOverride, Request};
pub use rule::{Rule, RuleId, StatPath};
pub use rule_set::{Defaults, DomainRules, Node, RuleSet};
pub use secret::{HashKey, ValueHashing};
pub use shard::ShardBy;
pub use spec::{CompileError, DomainSpec, NodeSpec, RuleSpec};
pub use store::{NoConnection, PartialOutcomes, Reservation, Reset, Store, StoreError};
pub use text::text_of_bytes;
