//! The pure heart: rules, matching, keys, algorithms in integer microseconds, merging of answers.
//!
//! Knows what a request asks, which limits it meets and what each limit's state allows. Knows nothing of gRPC,
//! Redis, YAML, metrics or logs; awaits nothing, reads no clock (`now_us` is always an argument).
//!
//! The order in which a request passes through: [`Request`] -> [`RuleSet::plan`] -> [`Charges`] ->
//! [`Store::decide`] -> [`Outcomes`] -> [`Decision::merge`].

pub mod algorithm;
mod charge;
mod cost;
mod decision;
mod key;
mod limit;
mod matcher;
mod metadata;
mod outcome;
mod pattern;
mod period;
mod plan;
mod request;
mod rule;
mod rule_set;
mod shard;
mod spec;
mod store;

pub use charge::{Charge, Charges, Role};
pub use cost::Cost;
pub use decision::{Applied, Code, Decision, Enforcement, LimitResult, Status};
pub use limit::{
    Algorithm, Charging, FailurePolicy, Limit, LimitError, LimitId, LimitSpec, Pacing, Quantity, Refill,
};
pub use matcher::{Step, Walk};
pub use metadata::Metadata;
pub use outcome::{CounterSnapshot, DecidedBy, Outcome, Outcomes, Report, RetryAfter, Verdict};
pub use pattern::Pattern;
pub use period::{Period, Unit};
pub use plan::{Plan, PlanError};
pub use request::{Descriptor, Entry, LimitOverride, Request};
pub use rule::{Rule, RuleId};
pub use rule_set::{Defaults, DomainRules, Node, RuleSet};
pub use shard::ShardBy;
pub use spec::{CompileError, DomainSpec, NodeSpec, RuleSpec};
pub use store::{Reset, Store, StoreError};
