//! Dynamic metadata: what was asked and what decided it, for the caller's access log. The shape is the reference
//! service's, with `rule`, `retry_after_ms`, `delay_ms` and `on_store_failure` added.

use std::collections::BTreeMap;

use crate::engine::{DecidedBy, Decision, Descriptor, Entry, LimitOverride, Metadata, Request};

use super::summary;

/// The metadata of one answer.
pub(super) fn for_decision(request: &Request, decision: &Decision) -> Metadata {
    let mut fields = BTreeMap::new();
    let mut set = |name: &str, value| fields.insert(name.to_owned(), value);
    set("domain", Metadata::Text(request.domain.clone()));
    set("descriptors", Metadata::List(request.descriptors.iter().map(descriptor).collect()));
    if request.hits_addend != 0 {
        set("hitsAddend", Metadata::Number(f64::from(request.hits_addend)));
    }
    if let Some(judged) = summary::binding_limit(decision) {
        set("rule", Metadata::Text(judged.limit.label.to_string()));
    }
    if let Some(wait_us) = decision.retry_after().us().filter(|&us| us > 0) {
        set("retry_after_ms", milliseconds(wait_us));
    }
    let delays = decision.limit_results().map(|judged| judged.outcome.report.delay_us);
    if let Some(delay_us) = delays.max().filter(|&us| us > 0) {
        set("delay_ms", milliseconds(delay_us));
    }
    let by_policy = by_policy(decision);
    if !by_policy.is_empty() {
        set("on_store_failure", Metadata::Map(by_policy));
    }
    if let Some(merged) = rules(decision) {
        set("metadata", merged);
    }
    Metadata::Map(fields)
}

/// The limits that answered without their store, each with the policy by which it did.
fn by_policy(decision: &Decision) -> BTreeMap<String, Metadata> {
    let answered = decision.limit_results().filter_map(|judged| match judged.outcome.basis {
        DecidedBy::Policy(policy) => {
            Some((judged.limit.label.to_string(), Metadata::Text(policy.name().to_owned())))
        }
        DecidedBy::Store(_) | DecidedBy::Skipped => None,
    });
    answered.collect()
}

fn descriptor(asked: &Descriptor) -> Metadata {
    let entry = |entry: &Entry| Metadata::Text(format!("{}={}", entry.key, entry.value));
    let mut fields = BTreeMap::new();
    fields.insert("entries".to_owned(), Metadata::List(asked.entries.iter().map(entry).collect()));
    if let Some(limit) = asked.limit {
        fields.insert("limit".to_owned(), Metadata::Text(limit_text(limit)));
    }
    if let Some(hits) = asked.hits {
        fields.insert("hitsAddend".to_owned(), number(hits));
    }
    Metadata::Map(fields)
}

/// The protobuf text form, as the reference service writes it.
fn limit_text(limit: LimitOverride) -> String {
    let unit = limit.period.unit().name().to_ascii_uppercase();
    let text = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit);
    match limit.period.multiplier() {
        1 => text,
        n => format!("{text} unit_multiplier:{{value:{n}}}"),
    }
}

/// Rounded up, so that whoever waits that long is admitted.
fn milliseconds(us: u64) -> Metadata {
    number(us.div_ceil(1_000))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a protobuf Struct has no other number; above 2^53 it is near enough for a log"
)]
fn number(value: u64) -> Metadata {
    Metadata::Number(value as f64)
}

/// What the rules that did not deny carry along, put together.
fn rules(decision: &Decision) -> Option<Metadata> {
    let mut merged = Metadata::Map(BTreeMap::new());
    for carried in decision.rules_within_limit().filter_map(|rule| rule.metadata.as_ref()) {
        merged.merge(carried);
    }
    match &merged {
        Metadata::Map(fields) if fields.is_empty() => None,
        _ => Some(merged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Period, Unit};

    #[test]
    fn a_limit_reads_as_protobuf_text() {
        let limit = |multiplier| LimitOverride {
            requests_per_unit: 7,
            period: Period::new(Unit::Minute, multiplier).expect("a period"),
        };
        assert_eq!(limit_text(limit(1)), "requests_per_unit:7 unit:MINUTE");
        assert_eq!(limit_text(limit(10)), "requests_per_unit:7 unit:MINUTE unit_multiplier:{value:10}");
    }
}
