//! The pure core: rules, matching, keys, algorithms in integer microseconds, combining outcomes into a decision.
//!
//! Knows what a request asks, the limits that apply to it, and what the state of each counter allows. Knows nothing of
//! gRPC, Redis, YAML, metrics or logs; awaits nothing and reads no clock (`now_us` is always an argument).
//!
//! The way of a request: [`Request`] -> [`RuleSet::plan`] -> [`Charges`] -> [`Store::decide`] -> [`Outcomes`] ->
//! [`Decision::merge`].
//!
//! The way of a rule: [`LimitSpec`] -> [`Limit::new`], which checks it -> [`DomainSpec`] -> [`RuleSet::compile`].
#![warn(clippy::print_stdout, clippy::print_stderr)]

// A request and its decision.
mod charge;
mod decision;
mod matched;
mod plan;
mod planned;
mod receipt;
mod request;
mod role;
mod settle;
mod store;

// Rules: their specs, compiling them, matching descriptors.
mod compile;
mod rule_set;
mod secret;
mod spec;
mod stat_path;
mod wildcards;

// A limit, its algorithm, the key of its counter; soft limits, and limits that reserve.
pub mod algorithm;
mod announce;
mod calendar;
mod key;
mod limit;
mod parse_key;
mod period;
mod reserve;
mod tier;

// Another limit for some values of requests.
mod exceptions;

// The keys that most hits are of.
mod space_saving;

// Requests as JSON and protobuf have them.
pub mod wire;

pub use algorithm::{Pacing, Report, RetryAfter, Verdict};
pub use announce::{Announced, OnOver, Share};
pub use calendar::{Calendar, CalendarError};
pub use charge::{Charge, Charges};
pub use decision::{Applied, Code, Decision, Enforcement, LimitResult, Status};
pub use exceptions::{
    Added, Amount, Change, ChangedBy, Derivation, DerivationStep, Effect, ExceptionKind, ExceptionRow,
    Exceptions, ExceptionsBuilder, FileTier, Multiplier, MultiplierError, Network, NetworkError, RowSource,
    RowValue, Space, TierMark, TierRow, TierTable, TierTableBuilder, TooManyTiers, Unfit,
};
pub use key::{ShardBy, without_values};
pub use limit::{
    Algorithm, Charging, FailurePolicy, LONGEST_REFILL_US, Limit, LimitError, LimitId, LimitSpec, MAX_LIMIT,
    Quantity, Refill,
};
pub use parse_key::{KeyText, KeyValue, ParsedKey, parse_key};
pub use period::{Period, Unit};
pub use plan::{Plan, PlanError};
pub use planned::ChargedLimit;
pub use receipt::{RECEIPT_KEY, Receipt, ReceiptItem, UnreadableReceipt};
pub use request::{Caller, Cost, Descriptor, Entry, Grant, LimitOverride, Request};
pub use reserve::{ReserveError, ReserveKind};
pub use role::Role;
pub use rule_set::{Defaults, DomainRules, Node, Rule, RuleId, RuleSet, Step, Walk};
pub use secret::{HashKey, ValueHashing};
pub use settle::{ChargesPart, Settle, SettleResult};
pub use space_saving::{HeavyKey, SpaceSaving};
pub use spec::{CompileError, DomainSpec, Metadata, NodeSpec, RuleSpec, composite};
pub use store::{
    CounterSnapshot, DecidedBy, NoConnection, Outcome, Outcomes, PartialOutcomes, Reservation, Reset, Store,
    StoreError,
};
pub use tier::{Tier, TierLimit};
pub use wildcards::{Glob, Pattern};
pub use wire::text_of_bytes;
