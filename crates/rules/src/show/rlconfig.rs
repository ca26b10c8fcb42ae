//! The rules in force in the format of `/rlconfig` of envoyproxy/ratelimit.

use std::fmt::Write as _;

use engine::{Algorithm, Charging, Limit, OnOver, Pacing, Refill, Rule, RuleSet, ShardBy};

/// One line per limit, in the order of the files:
/// `domain.key_value: unit=MINUTE requests_per_unit=3, shadow_mode: false, quota_mode: false`. Keys that
/// envoyproxy/ratelimit does not have follow in the same format, for limits that use them.
#[must_use]
pub fn rlconfig(rules: &RuleSet) -> String {
    let mut out = String::new();
    for rule in rules.rules() {
        for limit in &rule.limits {
            push_limit(&mut out, rule, limit, rules);
        }
    }
    out
}

fn push_limit(out: &mut String, rule: &Rule, limit: &Limit, rules: &RuleSet) {
    let spec = &limit.spec;
    let (unit, requests) = if spec.unlimited {
        ("UNKNOWN".to_owned(), 0)
    } else {
        (spec.period.unit().name().to_ascii_uppercase(), spec.requests_per_unit)
    };
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "{}: unit={unit} requests_per_unit={requests}, shadow_mode: {}, quota_mode: {}",
        rule.path, rule.shadow, rule.quota
    );
    if !spec.unlimited {
        for (name, value) in additions(rule, limit, rules) {
            let _ = write!(out, ", {name}: {value}");
        }
    }
    out.push('\n');
}

/// The properties in which a limit differs from those of envoyproxy/ratelimit, which are all windows aligned to the
/// epoch, postpaid.
fn additions(rule: &Rule, limit: &Limit, rules: &RuleSet) -> Vec<(&'static str, String)> {
    let spec = &limit.spec;
    let multiplier = spec.period.multiplier();
    let burst = spec.capacity();
    let policy = spec.on_store_failure;
    [
        (multiplier != 1).then(|| ("unit_multiplier", multiplier.to_string())),
        spec.calendar.as_ref().map(|calendar| ("calendar", calendar.to_string())),
        (spec.algorithm != Algorithm::FixedWindow).then(|| ("algorithm", spec.algorithm.to_string())),
        (burst != spec.requests_per_unit).then(|| ("burst", burst.to_string())),
        (spec.refill == Refill::Interval).then(|| ("refill", spec.refill.name().to_owned())),
        (spec.pacing == Pacing::Queue).then(|| ("mode", spec.pacing.name().to_owned())),
        (spec.charging != Charging::Postpaid).then(|| ("charging", spec.charging.name().to_owned())),
        spec.settle.then(|| ("settle", "true".to_owned())),
        (spec.on_over != OnOver::Deny).then(|| ("on_over", spec.on_over.name().to_owned())),
        spec.near.map(|near| ("near", near.to_string())),
        spec.reserve.map(|units| ("reserve", units.to_string())),
        (rule.shard_by != ShardBy::FirstEntry).then(|| ("shard_by", rule.shard_by.name().to_owned())),
        (policy != rules.defaults().on_store_failure).then(|| ("on_store_failure", policy.name().to_owned())),
    ]
    .into_iter()
    .flatten()
    .collect()
}
