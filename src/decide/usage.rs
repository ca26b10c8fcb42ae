//! What is used of a limit, as every JSON answer with such numbers shows it: small letters and underscores, and every
//! field present, also zeros and nulls.

use engine::algorithm::Kernel;
use engine::{
    Change, ChangedBy, CounterSnapshot, Derivation, DerivationStep, ExceptionKind, OnOver, Outcome,
};
use rules::utc_text;
use serde::Serialize;
use serde_json::Value;

use super::counters::AppliedLimit;

/// A limit's name and rate, and what is left of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitNumbers {
    /// The limit's name, or else its rule's path.
    pub name: String,
    pub requests_per_unit: u64,
    /// `second` to `year`
    pub unit: String,
    pub unit_multiplier: u32,
    /// Units that can be taken now; `None` if there is no bound.
    pub remaining: Option<u64>,
}

/// An applied limit, and its counter. Times are in UTC, as in RFC 3339.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitUsage {
    #[serde(flatten)]
    numbers: LimitNumbers,
    /// Its rule's path; `None` for a limit of the request.
    rule: Option<String>,
    algorithm: &'static str,
    /// `enforce`, `shadow`, `soft` or `quota`
    mode: &'static str,
    unlimited: bool,
    /// Most units that can be taken at once, such as a bucket's burst. `None` if unlimited.
    limit: Option<u64>,
    /// Also units above the limit, which postpaid limits and soft limits count.
    pub used: Option<u64>,
    /// Of a fixed window.
    window_start: Option<String>,
    window_end: Option<String>,
    #[serde(flatten)]
    times: CounterTimes,
    tier: Option<String>,
    /// What else changed the limit, in this order.
    exceptions: Vec<AppliedException>,
}

/// When a counter was read, and what becomes of it. `None` without a counter, and if the store did not decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CounterTimes {
    /// When `remaining` grows if nothing more is used; `None` if all units are left, or never.
    pub refills_at: Option<String>,
    /// When all units are left if nothing more is used; `None` if they are now.
    pub resets_at: Option<String>,
    /// When the store read the counter.
    pub read_at: Option<String>,
}

impl From<&Outcome> for CounterTimes {
    fn from(outcome: &Outcome) -> Self {
        let Some(CounterSnapshot { now_us, .. }) = outcome.decided_by.snapshot() else {
            return Self::default();
        };
        let after = |us: u64| (us > 0).then(|| utc_text(now_us.saturating_add(us)));
        Self {
            refills_at: after(outcome.report.next_after_us),
            resets_at: after(outcome.report.reset_after_us),
            read_at: Some(utc_text(now_us)),
        }
    }
}

/// The effect of an exception on a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct AppliedException {
    kind: &'static str,
    /// The new limit, the factor, the granted units, or whether shadow mode is on.
    value: Value,
    until: Option<String>,
}

impl LimitUsage {
    /// `counter`: the limit's kernel and a peek; `None` if nothing is counted.
    pub fn new(applied: &AppliedLimit, counter: Option<(Kernel, &Outcome)>) -> Self {
        let (limit, spec) = (&applied.limit, &applied.limit.spec);
        let bound = counter.filter(|_| !spec.unlimited);
        let read = counter.and_then(|(kernel, outcome)| Some((kernel, outcome.decided_by.snapshot()?)));
        // A limit of 0 and a block read no counter: what the usual one holds is unknown.
        let counted = read.filter(|(kernel, _)| kernel.has_counter());
        let window = read.and_then(|(kernel, read)| kernel.window_us(&read.reading));
        let mode = match spec.on_over {
            _ if limit.blocked => "enforce",
            _ if limit.shadow => "shadow",
            OnOver::Announce => "soft",
            OnOver::Deny if applied.is_quota => "quota",
            OnOver::Deny => "enforce",
        };
        let steps = applied.derivation.iter().flat_map(|derivation: &Derivation| &derivation.steps);
        let tier = steps.clone().find_map(|step| match &step.change {
            Change::Tier(name, _) => Some(name.to_string()),
            _ => None,
        });
        Self {
            numbers: LimitNumbers {
                name: limit.label.to_string(),
                requests_per_unit: spec.requests_per_unit,
                unit: spec.period.unit().into_str().to_owned(),
                unit_multiplier: spec.period.multiplier(),
                remaining: bound.map(|(_, outcome)| outcome.report.remaining),
            },
            rule: applied.rule.as_ref().map(ToString::to_string),
            algorithm: spec.algorithm.into_str(),
            mode,
            unlimited: spec.unlimited,
            limit: bound.map(|(kernel, _)| kernel.max_cost()),
            used: counted.map(|(kernel, read)| kernel.used(&read.reading, read.now_us)),
            window_start: window.map(|(start_us, _)| utc_text(start_us)),
            window_end: window.map(|(_, end_us)| utc_text(end_us)),
            times: counter.map(|(_, outcome)| CounterTimes::from(outcome)).unwrap_or_default(),
            tier,
            exceptions: steps.filter_map(AppliedException::of_step).collect(),
        }
    }

    /// The usage while an exception denies everything: the counter stays as it is, and its times do not count.
    pub(super) fn denied(mut self) -> Self {
        (self.limit, self.numbers.remaining) = (Some(0), Some(0));
        (self.times.refills_at, self.times.resets_at) = (None, None);
        self
    }
}

impl AppliedException {
    /// `None` for a tier, and for a step that changed nothing.
    fn of_step(step: &DerivationStep) -> Option<Self> {
        let kind = step.change.kind().filter(|kind| *kind != ExceptionKind::Tier)?;
        let of_row = match &step.by {
            ChangedBy::Row(row) => row.until_us,
            ChangedBy::Entry | ChangedBy::Tier(_) => None,
        };
        let (value, until_us) = match &step.change {
            Change::Blocked { until_us } => (Value::Null, *until_us),
            Change::Number(number) => ((*number).into(), of_row),
            Change::Multiplied(multiplier, _) => {
                (multiplier.to_string().parse::<f64>().map_or(Value::Null, Value::from), of_row)
            }
            Change::Added { units, until_us, .. } => ((*units).into(), Some(*until_us)),
            Change::Shadow(shadow) => ((*shadow).into(), of_row),
            Change::Exempt | Change::Tier(..) | Change::UnknownTier(_) | Change::Unfit(_) => {
                (Value::Null, of_row)
            }
        };
        Some(Self { kind: kind.into_str(), value, until: until_us.map(utc_text) })
    }
}
