//! The table of limit fields, which drives the readers, the JSON Schema, `show` and `upgrade`.
//!
//! A row has everything about a field: its key with type and description, how a value sets it, how `/rlconfig` and
//! explanations show it, and whether upgrades may set it.

use std::str::FromStr;
use std::time::Duration;

use base::readable_duration;
use engine::{
    Algorithm, Charging, Defaults, FailurePolicy, Feedback, Lease, Limit, LimitSpec, OnOver, Pacing,
    PauseScope, PauseTarget, Penalty, Refill, Scope, Share, Tier,
};
use strum::VariantNames as _;

use super::key::{Key, PlainValue, Section, ValueType};

pub(crate) struct LimitField {
    /// The key in rule files, and the name in `/rlconfig`, explanations and the table of upgrades.
    pub name: &'static str,
    pub value_type: ValueType,
    /// The description in the JSON Schema.
    pub doc: &'static str,
    /// `true` if the field does nothing in an unlimited limit.
    pub is_for_counting: bool,
    /// Sets the field to a value of the key's type. `None`: `read::limit` reads the key together with others.
    pub set: Option<fn(&mut LimitSpec, PlainValue<'_>)>,
    pub rlconfig: Rlconfig,
    pub explain: Explain,
    /// Whether upgrades may set the field.
    pub is_upgradable: bool,
}

impl LimitField {
    pub fn key(&self) -> Key {
        let Self { name, value_type, doc, .. } = *self;
        Key { section: Section::RateLimit, name, value_type, doc }
    }
}

/// The value in `/rlconfig`; `None` if it is that of a limit of envoyproxy/ratelimit.
type OptionText = fn(&LimitSpec, &Defaults) -> Option<String>;

/// Where a line of `/rlconfig` shows the field.
pub(crate) enum Rlconfig {
    /// At the start, as in envoyproxy/ratelimit, or not at all.
    Hidden,
    /// Among the options of the limit.
    Option(OptionText),
    /// After the options of the rule.
    LastOption(OptionText),
}

/// The field's line in an explanation; `None` if a limit does not use the field.
type ExplainText = fn(&Limit) -> Option<String>;

/// Which limits have a line for the field in an explanation.
pub(crate) enum Explain {
    /// None: the line `admits` covers the field, or `show::describe` writes it.
    Elsewhere,
    /// Limits with a counter.
    OfCounter(ExplainText),
    /// All but unlimited limits.
    OfLimit(ExplainText),
}

/// The fields that the rule sets itself. The others have defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenFields {
    pub algorithm: bool,
    pub charging: bool,
    pub on_store_failure: bool,
}

/// A row per key of a limit, in the order of explanations and `/rlconfig`.
pub(crate) const LIMIT_FIELDS: &[LimitField] = &[
    LimitField {
        name: "requests_per_unit",
        value_type: ValueType::Units,
        doc: "Units (requests, tokens, bytes) per period. 0 blocks everything. At most 2^52 for fixed_window, 2^46 for sliding_window, 10,000 for sliding_log and concurrency, else 2^32 - 1. A change keeps the used units; gcra, token_bucket and leaky_bucket keep the used share, and with refill: interval counters start unused.",
        is_for_counting: true,
        set: Some(|spec, value| spec.requests_per_unit = value.units().unwrap_or_default()),
        rlconfig: Rlconfig::Hidden,
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
    LimitField {
        name: "unit",
        value_type: ValueType::Unit,
        doc: "The period. Without calendar a month has 30 days and a year 365, and windows are counted from the Unix epoch. With concurrency: the longest time for which a request keeps its slot, at most a day.",
        is_for_counting: false,
        set: None,
        rlconfig: Rlconfig::Hidden,
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
    LimitField {
        name: "unit_multiplier",
        value_type: ValueType::Integer(1),
        doc: "How many units make the period: 10 with unit minute is ten minutes. At most 366 days in all. Default 1.",
        is_for_counting: true,
        set: None,
        rlconfig: Rlconfig::Option(|spec, _| {
            (spec.period.multiplier() != 1).then(|| spec.period.multiplier().to_string())
        }),
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
    LimitField {
        name: "calendar",
        value_type: ValueType::Text,
        doc: "A time zone such as Europe/Berlin or UTC: the windows are the days, weeks, months or years of its calendar. Needs algorithm fixed_window, unit day, week, month or year, and unit_multiplier 1. Another zone starts a fresh counter.",
        is_for_counting: true,
        set: None,
        rlconfig: Rlconfig::Option(|spec, _| spec.calendar.as_ref().map(ToString::to_string)),
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
    LimitField {
        name: "starts",
        value_type: ValueType::Text,
        doc: "With calendar, the first day of each window. Month: a day from 1 to 31, and a shorter month starts on its last day (default 1). Week: a weekday (default monday). Year: month and day, such as 04-01 (default 01-01). Another start starts a fresh counter.",
        is_for_counting: true,
        set: None,
        rlconfig: Rlconfig::Hidden,
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
    LimitField {
        name: "unlimited",
        value_type: ValueType::Flag,
        doc: "Always admitted, and never counted unless count is true.",
        is_for_counting: false,
        set: Some(|spec, value| spec.unlimited = value.flag()),
        rlconfig: Rlconfig::Hidden,
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
    LimitField {
        name: "count",
        value_type: ValueType::Flag,
        doc: "Counts what is used although the limit, or a tier of it, is unlimited: needs unit, and algorithm fixed_window.",
        is_for_counting: false,
        set: Some(|spec, value| spec.count = value.flag()),
        rlconfig: Rlconfig::LastOption(|spec, _| spec.count.then(|| "true".to_owned())),
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
    LimitField {
        name: "algorithm",
        value_type: ValueType::Choice(Algorithm::VARIANTS),
        doc: "How to count. concurrency counts requests at once: each takes a slot, and its receipt releases it. A limit that names an algorithm is prepaid unless charging says otherwise. A limit without an algorithm has the default of the settings: fixed_window and postpaid, unless changed.",
        is_for_counting: true,
        set: Some(|spec, value| choose(&mut spec.algorithm, value)),
        rlconfig: Rlconfig::Option(|spec, _| {
            unless(Algorithm::FixedWindow, spec.algorithm, Algorithm::into_str)
        }),
        explain: Explain::OfCounter(|limit| Some(limit.spec.algorithm.to_string())),
        is_upgradable: true,
    },
    LimitField {
        name: "burst",
        value_type: ValueType::Integer(1),
        doc: "Units that an idle key may take at once: gcra, token_bucket and leaky_bucket only. Default: requests_per_unit.",
        is_for_counting: true,
        set: Some(|spec, value| spec.burst = value.integer()),
        rlconfig: Rlconfig::Option(|spec, _| {
            (spec.capacity() != spec.requests_per_unit).then(|| spec.capacity().to_string())
        }),
        explain: Explain::Elsewhere,
        is_upgradable: true,
    },
    LimitField {
        name: "refill",
        value_type: ValueType::Choice(Refill::VARIANTS),
        doc: "token_bucket only. continuous: tokens flow in evenly (default). interval: requests_per_unit tokens arrive at the end of every period, up to burst.",
        is_for_counting: true,
        set: Some(|spec, value| choose(&mut spec.refill, value)),
        rlconfig: Rlconfig::Option(|spec, _| unless(Refill::Continuous, spec.refill, Refill::into_str)),
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
    LimitField {
        name: "mode",
        value_type: ValueType::Choice(Pacing::VARIANTS),
        doc: "leaky_bucket only. meter: a hit fits or it does not (default). queue: a hit that fits is admitted with the delay to wait.",
        is_for_counting: true,
        set: Some(|spec, value| choose(&mut spec.pacing, value)),
        rlconfig: Rlconfig::Option(|spec, _| unless(Pacing::Meter, spec.pacing, Pacing::into_str)),
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
    LimitField {
        name: "charging",
        value_type: ValueType::Choice(Charging::VARIANTS),
        doc: "prepaid: a hit that is denied is not counted. postpaid: every hit is counted, for costs known only afterwards.",
        is_for_counting: true,
        set: Some(|spec, value| choose(&mut spec.charging, value)),
        rlconfig: Rlconfig::Option(|spec, _| unless(Charging::Postpaid, spec.charging, Charging::into_str)),
        explain: Explain::OfCounter(|limit| Some(charging(limit.spec.charging).to_owned())),
        is_upgradable: true,
    },
    LimitField {
        name: "tiers",
        value_type: ValueType::Tiers,
        doc: "Other numbers for the tiers of customers, by name: a number, base (the number of the limit), unlimited, or a map with requests_per_unit and burst. The tier comes from an entry with tier: true, or from a row of the exceptions. Without a tier, and for an unknown one, the number of the limit counts. burst is scaled with the number unless the tier names it.",
        is_for_counting: true,
        set: None,
        rlconfig: Rlconfig::LastOption(|spec, _| {
            (!spec.tiers.is_empty()).then(|| format!("[{}]", tiers(spec)))
        }),
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
    LimitField {
        name: "settle",
        value_type: ValueType::Flag,
        doc: "The hits of a request are an estimate. The answer has a receipt, with which the caller reports the real cost at the end: only the difference is booked, in the window of the estimate. Not for a leaky_bucket with mode: queue. concurrency always gives a receipt.",
        is_for_counting: true,
        set: Some(|spec, value| spec.settle = value.flag()),
        rlconfig: Rlconfig::Option(|spec, _| {
            (spec.settle && spec.algorithm != Algorithm::Concurrency).then(|| "true".to_owned())
        }),
        explain: Explain::OfCounter(|limit| {
            let text = if limit.spec.algorithm == Algorithm::Concurrency { RELEASE } else { SETTLE };
            limit.spec.settle.then(|| text.to_owned())
        }),
        is_upgradable: false,
    },
    LimitField {
        name: "on_store_failure",
        value_type: ValueType::Choice(FailurePolicy::VARIANTS),
        doc: "What to answer when the store does not: allow, deny, decide from local memory, or fail the call.",
        is_for_counting: false,
        set: Some(|spec, value| choose(&mut spec.on_store_failure, value)),
        rlconfig: Rlconfig::LastOption(|spec, defaults| {
            unless(defaults.on_store_failure, spec.on_store_failure, FailurePolicy::into_str)
        }),
        explain: Explain::OfCounter(|limit| {
            let written = limit.spec.on_store_failure;
            let applied = if limit.never_denies() { written.allow_for_error() } else { written };
            Some(policy(applied).to_owned())
        }),
        is_upgradable: true,
    },
    LimitField {
        name: "on_over",
        value_type: ValueType::Choice(OnOver::VARIANTS),
        doc: "What happens to a hit that does not fit. deny: it is denied (default). announce: it is admitted, and the answer announces the limit as over, in the header of response.announce_header and in metadata. An announced limit is postpaid unless charging says otherwise.",
        is_for_counting: true,
        set: Some(|spec, value| choose(&mut spec.on_over, value)),
        rlconfig: Rlconfig::Option(|spec, _| unless(OnOver::Deny, spec.on_over, OnOver::into_str)),
        explain: Explain::OfLimit(|limit| on_over(limit).map(str::to_owned)),
        is_upgradable: false,
    },
    LimitField {
        name: "near",
        value_type: ValueType::Share,
        doc: "Answers announce the limit as near while more than this share of it is used: 0.8 is four fifths. Also for limits that deny.",
        is_for_counting: true,
        set: Some(|spec, value| spec.near = value.share()),
        rlconfig: Rlconfig::Option(|spec, _| spec.near.map(|near| near.to_string())),
        explain: Explain::OfCounter(|limit| Some(near(limit.spec.near?, &limit.spec))),
        is_upgradable: false,
    },
    LimitField {
        name: "reserve",
        value_type: ValueType::Integer(1),
        doc: "For callers that check before a request (hits_addend 0) and charge its cost after it: the check takes this number of units, and the charge books the difference to the real cost. Only for prepaid limits.",
        is_for_counting: true,
        set: Some(|spec, value| spec.reserve = value.units()),
        rlconfig: Rlconfig::Option(|spec, _| spec.reserve.map(|units| units.to_string())),
        explain: Explain::OfCounter(|limit| limit.spec.reserve.map(reserve)),
        is_upgradable: true,
    },
    LimitField {
        name: "penalty",
        value_type: ValueType::Map(Section::Penalty),
        doc: "Blocks a value that this limit denies again and again. Only denials that take effect count. Not for on_over: announce; without effect in shadow mode.",
        is_for_counting: true,
        set: None,
        rlconfig: Rlconfig::Option(|spec, _| Some(format!("[{}]", penalty(spec.penalty.as_deref()?)))),
        explain: Explain::OfLimit(|limit| Some(penalty(limit.spec.penalty.as_deref()?))),
        is_upgradable: false,
    },
    LimitField {
        name: "feedback",
        value_type: ValueType::Map(Section::Feedback),
        doc: "Lets callers block a value for a time, such as the Retry-After of a third party, with a last entry ratelimitd_pause. Not for on_over: announce; without effect in shadow mode.",
        is_for_counting: false,
        set: None,
        rlconfig: Rlconfig::Option(|spec, _| Some(format!("[{}]", feedback(spec.feedback.as_deref()?)))),
        explain: Explain::OfLimit(|limit| Some(feedback(limit.spec.feedback.as_deref()?))),
        is_upgradable: false,
    },
    LimitField {
        name: "ledger",
        value_type: ValueType::Flag,
        doc: "Books the usage of each key in the ledger: needs the setting ledger.path.",
        is_for_counting: true,
        set: Some(|spec, value| spec.ledger = value.flag()),
        rlconfig: Rlconfig::Option(|spec, _| spec.ledger.then(|| "true".to_owned())),
        explain: Explain::OfLimit(|limit| limit.spec.ledger.then(|| LEDGER.to_owned())),
        is_upgradable: true,
    },
    LimitField {
        name: "lease",
        value_type: ValueType::Choice(Lease::VARIANTS),
        doc: "auto: an instance takes units of a hot key from Redis ahead of the requests, and decides from them without Redis. The limit stays exact, but may deny while other instances hold unused units. off: every hit is decided in Redis (default: the setting defaults.lease). Not for sliding_log, concurrency, mode: queue or penalty, nor for settle on a sliding_window, nor for a bucket with settle or reserve.",
        is_for_counting: true,
        set: Some(|spec, value| choose(&mut spec.lease, value)),
        rlconfig: Rlconfig::LastOption(|spec, defaults| unless(defaults.lease, spec.lease, Lease::into_str)),
        explain: Explain::OfCounter(|limit| lease(&limit.spec)),
        is_upgradable: true,
    },
    LimitField {
        name: "scope",
        value_type: ValueType::Choice(Scope::VARIANTS),
        doc: "region: each region counts for itself (default). global: one counter for all regions, in the Redis of store.redis.home. Implies lease: auto, and needs a limit that can have it, on_store_failure, and a period of at least 10 seconds. Another scope starts a fresh counter.",
        is_for_counting: true,
        set: Some(|spec, value| choose(&mut spec.scope, value)),
        rlconfig: Rlconfig::Option(|spec, _| unless(Scope::Region, spec.scope, Scope::into_str)),
        explain: Explain::OfCounter(|limit| (limit.spec.scope == Scope::Global).then(|| GLOBAL.to_owned())),
        is_upgradable: false,
    },
    LimitField {
        name: "notify",
        value_type: ValueType::Shares,
        doc: "Tells operators once per key and period when this share of the limit is used: [0.8, 1] is four fifths, and all. By webhook, in the log and in the ledger. 1 to 8 shares. Without effect in shadow mode.",
        is_for_counting: true,
        set: Some(|spec, value| spec.notify = value.shares().unwrap_or_default()),
        rlconfig: Rlconfig::Option(|spec, _| (!spec.notify.is_empty()).then(|| format!("[{}]", spec.notify))),
        explain: Explain::OfLimit(notify),
        is_upgradable: true,
    },
    LimitField {
        name: "unit_name",
        value_type: ValueType::Text,
        doc: "What the units are, for people: a-z and -, at most 32 characters. Default requests.",
        is_for_counting: true,
        set: Some(|spec, value| spec.unit_name = value.text().map(Into::into)),
        rlconfig: Rlconfig::Option(|spec, _| spec.unit_name.as_deref().map(str::to_owned)),
        explain: Explain::OfLimit(|limit| limit.spec.unit_name.as_deref().map(str::to_owned)),
        is_upgradable: false,
    },
    LimitField {
        name: "name",
        value_type: ValueType::Text,
        doc: "Sent back with the answer, the label of its metrics, and what replaces refers to.",
        is_for_counting: false,
        set: Some(|spec, value| spec.name = value.text().filter(|name| !name.is_empty()).map(str::to_owned)),
        rlconfig: Rlconfig::Hidden,
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
    LimitField {
        name: "replaces",
        value_type: ValueType::List(Section::Replaces),
        doc: "Limits that are left out when this one matches in the same request.",
        is_for_counting: false,
        set: None,
        rlconfig: Rlconfig::Hidden,
        explain: Explain::Elsewhere,
        is_upgradable: false,
    },
];

/// Sets a field to one of the names of its type.
fn choose<T: FromStr>(field: &mut T, value: PlainValue<'_>) {
    if let Some(chosen) = value.parsed() {
        *field = chosen;
    }
}

/// `None` for the usual value.
fn unless<T: PartialEq>(usual: T, value: T, name: fn(&T) -> &'static str) -> Option<String> {
    (value != usual).then(|| name(&value).to_owned())
}

/// Formats the tiers of a limit: `internal unlimited, pro 600`.
pub(crate) fn tiers(spec: &LimitSpec) -> String {
    let tier = |(name, tier): (&String, &Tier)| match tier {
        Tier::Unlimited => format!("{name} unlimited"),
        Tier::Limited { requests_per_unit, burst: None } => format!("{name} {requests_per_unit}"),
        Tier::Limited { requests_per_unit, burst: Some(burst) } => {
            format!("{name} {requests_per_unit} (burst {burst})")
        }
    };
    spec.tiers.iter().map(tier).collect::<Vec<_>>().join(", ")
}

fn charging(charging: Charging) -> &'static str {
    match charging {
        Charging::Prepaid => "prepaid: a hit that is denied is not counted",
        Charging::Postpaid => "postpaid: every hit is counted, denied or not",
    }
}

/// `None` for the usual denial.
fn on_over(limit: &Limit) -> Option<&'static str> {
    match limit.spec.on_over {
        OnOver::Deny => None,
        OnOver::Announce if limit.shadow => Some("announce: no effect, because the rule is in shadow mode"),
        OnOver::Announce => Some("announce: the hit goes ahead, and the answer says that the limit is over"),
    }
}

/// When answers announce that the limit is nearly exhausted.
fn near(share: Share, spec: &LimitSpec) -> String {
    format!(
        "{share}: answers announce the limit while more than {} units are used",
        share.part_of(spec.capacity())
    )
}

/// For limits with `notify`.
fn notify(limit: &Limit) -> Option<String> {
    let shares = limit.spec.notify;
    let effect = if limit.shadow {
        "no effect, because the rule is in shadow mode"
    } else {
        "operators are told once per key and period when this share is used"
    };
    (!shares.is_empty()).then(|| format!("{shares}: {effect}"))
}

/// For limits with `reserve`.
fn reserve(units: u64) -> String {
    format!("a check (0 hits) takes {units}, and the charge after it books the difference to its own hits")
}

/// For limits with `lease: auto`, whether the rule or the settings say so.
fn lease(spec: &LimitSpec) -> Option<String> {
    if spec.lease == Lease::Off {
        return None;
    }
    Some(match spec.lease_obstacle() {
        Some(obstacle) => format!("off: {obstacle}"),
        None => "auto: an instance takes units of a hot key from Redis ahead of the hits".to_owned(),
    })
}

/// For limits with `penalty`.
fn penalty(penalty: &Penalty) -> String {
    let Penalty { target, after, within_us, for_us, grow, max_us } = penalty;
    let [within, length, most] = [within_us, for_us, max_us].map(|us| duration(*us));
    let growth = if grow > &1 && max_us > for_us {
        format!(", each time {grow} times longer, at most {most}")
    } else {
        String::new()
    };
    format!("{after} denials within {within} block {} for {length}{growth}", paused(target))
}

/// For limits with `feedback`.
fn feedback(feedback: &Feedback) -> String {
    let Feedback { target, max_us } = feedback;
    format!("a caller may report a pause of {}, at most {}", paused(target), duration(*max_us))
}

fn paused(target: &PauseTarget) -> String {
    let PauseTarget { of, scope } = target;
    match scope {
        PauseScope::Rule => format!("the {of}"),
        PauseScope::Domain => format!("the {of} in the whole domain"),
    }
}

fn duration(us: u64) -> String {
    readable_duration(Duration::from_micros(us))
}

/// For limits with `settle`.
const SETTLE: &str = "an answer has a receipt; the real cost that comes back with it replaces the estimate";

/// For limits with `scope: global`.
const GLOBAL: &str = "global: counted in home, for all regions";

/// For limits with concurrency.
const RELEASE: &str = "an answer has a receipt, which releases the slot when it comes back";

/// For limits with `ledger`.
const LEDGER: &str = "the usage of each key is booked, if the service has a ledger";

/// How the limit answers if the store fails.
fn policy(policy: FailurePolicy) -> &'static str {
    match policy {
        FailurePolicy::Allow => "allow: the hit goes ahead",
        FailurePolicy::Deny => "deny: the hit is over its limit",
        FailurePolicy::Local => "local: this process decides from its own memory",
        FailurePolicy::Error => "error: the call fails, and the caller's failure mode decides",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every limit field's keys. A field that is missing here does not compile.
    macro_rules! keys_of_fields {
        ($($field:ident: $($key:literal)+;)+) => {{
            let _: fn(LimitSpec) = |LimitSpec { $($field: _),+ }| ();
            [$($($key),+),+]
        }};
    }

    #[test]
    fn every_field_has_rows_and_every_row_that_upgrades_may_set_can_be_set() {
        let keys = keys_of_fields! {
            requests_per_unit: "requests_per_unit";
            period: "unit" "unit_multiplier";
            unlimited: "unlimited";
            count: "count";
            algorithm: "algorithm";
            calendar: "calendar" "starts";
            burst: "burst";
            refill: "refill";
            pacing: "mode";
            charging: "charging";
            settle: "settle";
            on_store_failure: "on_store_failure";
            on_over: "on_over";
            near: "near";
            reserve: "reserve";
            penalty: "penalty";
            feedback: "feedback";
            ledger: "ledger";
            lease: "lease";
            scope: "scope";
            notify: "notify";
            unit_name: "unit_name";
            name: "name";
            replaces: "replaces";
            tiers: "tiers";
        };
        for key in keys {
            assert!(LIMIT_FIELDS.iter().any(|field| field.name == key), "no row has the key {key}");
        }
        for field in LIMIT_FIELDS {
            let is_set = field.set.is_some() || !field.is_upgradable;
            assert!(is_set, "{}: upgrades may set the field, but the row has no `set`", field.name);
        }
    }
}
