//! The active rules in the format of envoyproxy/ratelimit's `/rlconfig`.

use std::fmt::Write as _;

use engine::{Defaults, Limit, LimitSpec, Rule, RuleSet, ShardBy};

use crate::keys::{LIMIT_FIELDS, Rlconfig};

/// One line per limit, in file order: `domain.key_value: unit=MINUTE requests_per_unit=3, shadow_mode: false,
/// quota_mode: false`. Keys that envoyproxy/ratelimit does not have follow in the same format, for limits that use
/// them.
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
        (spec.period.unit().into_str().to_ascii_uppercase(), spec.requests_per_unit)
    };
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "{}: unit={unit} requests_per_unit={requests}, shadow_mode: {}, quota_mode: {}",
        rule.path, rule.shadow, rule.quota
    );
    if spec.is_counted() {
        push_options(out, rule, spec, &rules.defaults());
    }
    out.push('\n');
}

/// Appends the options in which a limit and its rule differ from envoyproxy/ratelimit, where all are epoch-aligned
/// windows and postpaid.
fn push_options(out: &mut String, rule: &Rule, spec: &LimitSpec, defaults: &Defaults) {
    let mut last = String::new();
    for field in LIMIT_FIELDS {
        let (options, text) = match field.rlconfig {
            Rlconfig::Option(text) => (&mut *out, text),
            Rlconfig::LastOption(text) => (&mut last, text),
            Rlconfig::Hidden => continue,
        };
        if let Some(text) = text(spec, defaults) {
            let _ = write!(options, ", {}: {text}", field.name);
        }
    }
    if rule.shard_by != ShardBy::FirstEntry {
        let _ = write!(out, ", shard_by: {}", rule.shard_by.into_str());
    }
    out.push_str(&last);
}
