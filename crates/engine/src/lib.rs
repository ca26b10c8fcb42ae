//! Rules, matching, counter keys, rate-limit algorithms and decisions, as pure functions.
//!
//! No I/O, no logging, no clock: time is always an argument (`now_us`), and only the traits of stores are
//! asynchronous. Request: [`RawRequest::validate`] -> [`Request`] -> [`Plan::refill`] -> [`Charges`] ->
//! [`Store::decide`] -> [`Outcomes`] -> [`Decision::merge`]. Rule: [`LimitSpec`] -> [`Limit::new`] -> [`DomainSpec`] ->
//! [`RuleSet::compile`].
#![warn(clippy::panic, clippy::print_stderr, clippy::print_stdout)]

mod limit;
mod request;
mod rules;

pub use limit::algorithm;
pub use request::wire;

pub use limit::algorithm::{Cost, Grant, LONGEST_REFILL_US, Pacing, Report, RetryAfter, Verdict};
pub use limit::announce::{Announced, OnOver, Share, Shares};
pub use limit::calendar::{Calendar, CalendarError};
pub use limit::key::{Entry, ShardBy, is_global_key, key_start, without_values};
pub use limit::parse_key::{KeyText, KeyValue, ParsedKey, parse_key};
pub use limit::pauses::{Feedback, PauseScope, PauseTarget, Penalty};
pub use limit::period::{Period, Unit, WireUnit, request_unit, request_units};
pub use limit::space_saving::{HeavyKey, SpaceSaving};
pub use limit::spec::{
    Algorithm, Charging, FailurePolicy, Lease, LeaseObstacle, LimitError, LimitSpec, MAX_LIMIT, Refill,
    ReserveError, Scope, Tier,
};
pub use limit::{Limit, LimitId, Quantity, TierLimit};
pub use request::decision::booking::{BookedCharge, BookedUnits, Booking, BookingMode};
pub use request::decision::level::Level;
pub use request::decision::{Applied, Code, Decision, Enforcement, LimitResult, Status};
pub use request::hold::{Hold, LONGEST_HOLD};
pub use request::pause::{PAUSE_KEY, Pause};
pub use request::plan::charge::{
    Charge, Charges, ChargesPart, CounterSnapshot, DecidedBy, Outcome, Outcomes, Role,
};
pub use request::plan::explanation::{ExplainedDescriptor, ExplainedLimit, Explanation, LimitUse};
pub use request::plan::pauses::{PauseCause, PauseEvent, PausedValue};
pub use request::plan::reserve::ReserveKind;
pub use request::plan::settle::{Settle, SettleResult};
pub use request::plan::{ChargedLimit, Plan, PlanError, PlannedAt};
pub use request::receipt::{RECEIPT_KEY, RENEW_KEY, Receipt, ReceiptItem, UnreadableReceipt};
pub use request::store::{
    KeyPage, Listing, NoConnection, PartialOutcomes, Reservation, Reset, SHOWN_SLOTS, Store, StoreError,
};
pub use request::wire::text_of_bytes;
pub use request::{
    Attached, Bounds, Caller, Descriptor, LimitOverride, RESERVED_KEYS, RawDescriptor, RawLimit, RawRequest,
    Request, RequestError,
};
pub use rules::exceptions::derivation::{Amount, Change, ChangedBy, Derivation, DerivationStep, Unfit};
pub use rules::exceptions::{
    Added, Effect, ExceptionKind, ExceptionRow, Exceptions, ExceptionsBuilder, FileTier, LiveRows,
    Multiplier, MultiplierError, Network, NetworkError, RowSource, RowTerms, RowValue, Space, TierMark,
    TierRow, TierTable, TierTableBuilder, TooManyTiers, address_of,
};
pub use rules::rule_set::{Defaults, DomainRules, Node, Rule, RuleId, RuleSet, Step, Walk};
pub use rules::secret::{HashKey, ValueHashing, is_hidden_value};
pub use rules::spec::{CompileError, DomainSpec, Metadata, NodeSpec, RuleSpec, composite};
pub use rules::wildcards::{Glob, Pattern};
