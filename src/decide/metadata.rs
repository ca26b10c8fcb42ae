//! Dynamic metadata for Envoy's access log: the request, and facts about its decision. It has the fields of
//! envoyproxy/ratelimit and a few more. `delay_ms` and `receipt` are parts of the decision, and a rule file asks for
//! `announce`, so these three are sent even if the settings turn metadata off.

use std::collections::BTreeMap;

use engine::{
    Applied, Attached, Calendar, Code, DecidedBy, Decision, Descriptor, Entry, LimitOverride, LimitResult,
    Metadata, PAUSE_KEY, Pacing, RECEIPT_KEY, RENEW_KEY, Request, UnreadableReceipt, WireUnit,
};
use rules::{derivation_text, limit_text};

use super::announcements::Announcements;

/// `binding` is the limit named as the decision's rule.
pub(super) fn for_decision(
    request: &Request,
    decision: &Decision,
    binding: Option<LimitResult<'_>>,
    announcements: &Announcements,
) -> Metadata {
    let mut fields = for_caller(decision, announcements);
    let mut set = |name: &str, value| fields.insert(name.to_owned(), value);
    set("domain", Metadata::Text(request.domain.clone()));
    let descriptors = request.descriptors.iter().enumerate();
    let descriptors = descriptors.map(|(index, descriptor)| descriptor_metadata(index, descriptor, decision));
    set("descriptors", Metadata::List(descriptors.collect()));
    if request.hits_addend != 0 {
        set("hitsAddend", Metadata::Number(f64::from(request.hits_addend)));
    }
    if let Some(result) = binding {
        set("rule", Metadata::Text(result.limit.label.to_string()));
        // The number may come from a tier, an exception or yesterday's rules.
        if decision.overall == Code::OverLimit {
            set("limit", Metadata::Text(limit_text(result.limit)));
        }
    }
    if let Some(now_us) = decided_at_us(decision) {
        set("decided_at_us", Metadata::Text(now_us.to_string()));
    }
    if let Some(wait_us) = decision.retry_after().us().filter(|&us| us > 0) {
        set("retry_after_ms", milliseconds(wait_us));
    }
    let policies = failure_policies(decision);
    if !policies.is_empty() {
        set("on_store_failure", Metadata::Map(policies));
    }
    let exceptions = exceptions(decision);
    if !exceptions.is_empty() {
        set("exception", Metadata::Map(exceptions));
    }
    if let Some(merged) = rules_metadata(decision) {
        set("metadata", merged);
    }
    one_line(Metadata::Map(fields))
}

/// Replaces control characters with `_`: Envoy writes metadata to access logs and headers unchanged, where a line break
/// would start a new line. All other characters stay, because metadata can be in any language.
fn one_line(metadata: Metadata) -> Metadata {
    match metadata {
        Metadata::Text(text) => Metadata::Text(one_line_text(text)),
        Metadata::List(items) => Metadata::List(items.into_iter().map(one_line).collect()),
        Metadata::Map(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (one_line_text(name), one_line(value)));
            Metadata::Map(fields.collect())
        }
        scalar => scalar,
    }
}

fn one_line_text(text: String) -> String {
    if text.contains(char::is_control) { text.replace(char::is_control, "_") } else { text }
}

/// Returns what the caller needs; `None` if nothing.
pub(super) fn without_facts(decision: &Decision, announcements: &Announcements) -> Option<Metadata> {
    let fields = for_caller(decision, announcements);
    (!fields.is_empty()).then(|| one_line(Metadata::Map(fields)))
}

/// The queue's delay, the receipt, and the announced limits. Nearly every answer has none of them.
fn for_caller(decision: &Decision, announcements: &Announcements) -> BTreeMap<String, Metadata> {
    let receipt = decision.receipt(|| fastrand::u64(..));
    let fields = [
        ("delay_ms", queue_delay_us(decision).map(milliseconds)),
        ("receipt", receipt.map(|receipt| Metadata::Text(receipt.to_string()))),
        ("announce", announcements.metadata()),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Returns how long an admitted request has to wait in its queues; `None` without a queue, or if denied. Limits that
/// never deny delay nothing.
fn queue_delay_us(decision: &Decision) -> Option<u64> {
    if decision.overall == Code::OverLimit {
        return None;
    }
    let is_queue =
        |result: &LimitResult<'_>| result.limit.spec.pacing == Pacing::Queue && !result.never_denies();
    decision.limit_results().filter(is_queue).map(|result| result.outcome.report.delay_us).max()
}

/// Returns the store's time of the decision, for simulating from logs; `None` if no counter was read. Sent as a string:
/// Envoy may write a number of this size in scientific notation.
fn decided_at_us(decision: &Decision) -> Option<u64> {
    let counters = decision.limit_results().filter_map(|result| result.outcome.decided_by.snapshot());
    counters.map(|counter| counter.now_us).max()
}

/// Returns the limits that a failure policy decided because the store did not answer, each with its policy.
fn failure_policies(decision: &Decision) -> BTreeMap<String, Metadata> {
    let policies = decision.limit_results().filter_map(|result| match result.outcome.decided_by {
        DecidedBy::Policy(policy) => {
            Some((result.limit.label.to_string(), Metadata::Text(policy.into_str().to_owned())))
        }
        DecidedBy::Store(_) | DecidedBy::DenyCache(_) | DecidedBy::Lease(_) => None,
    });
    policies.collect()
}

/// Returns the limits that exceptions or tiers have changed, each with the steps to the limit that applies.
fn exceptions(decision: &Decision) -> BTreeMap<String, Metadata> {
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for derivation in decision.derivations() {
        let (texts, text) = (texts.entry(&*derivation.label).or_default(), derivation_text(derivation));
        // Another descriptor of the same rule, or another unnamed limit, has its own entry.
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let field = |(label, texts): (&str, Vec<String>)| (label.to_owned(), Metadata::Text(texts.join("; ")));
    texts.into_iter().map(field).collect()
}

/// A secret value is replaced with the hash that is also in its counter's key.
fn descriptor_metadata(index: usize, descriptor: &Descriptor, decision: &Decision) -> Metadata {
    let entry = |(place, Entry { key, value }): (usize, &Entry)| {
        let shown = decision.hidden_value(index, place).unwrap_or(value);
        Metadata::Text(format!("{key}={shown}"))
    };
    // A request log is complete only with the receipts that the requests returned.
    let receipt = descriptor.attached.as_deref().map(|attached| match attached {
        Attached::Receipt(Ok(receipt)) => Metadata::Text(format!("{RECEIPT_KEY}={receipt}")),
        Attached::Receipt(Err(UnreadableReceipt)) => Metadata::Text(format!("{RECEIPT_KEY}=")),
        Attached::Renewal(Ok(receipt)) => Metadata::Text(format!("{RENEW_KEY}={receipt}")),
        Attached::Renewal(Err(UnreadableReceipt)) => Metadata::Text(format!("{RENEW_KEY}=")),
        Attached::Pause(_) => Metadata::Text(format!("{PAUSE_KEY}=")),
    });
    let entries = descriptor.entries.iter().enumerate().map(entry).chain(receipt).collect();
    let mut fields = BTreeMap::new();
    fields.insert("entries".to_owned(), Metadata::List(entries));
    if let Some(limit) = descriptor.limit {
        fields.insert("limit".to_owned(), Metadata::Text(override_text(limit)));
    }
    if let Some(hits) = descriptor.hits {
        fields.insert("hitsAddend".to_owned(), number_metadata(hits));
    }
    if let Some(calendar) = calendar(index, decision) {
        fields.insert("calendar".to_owned(), Metadata::Text(calendar.zone().to_owned()));
    }
    Metadata::Map(fields)
}

/// Returns the calendar of the limit in a descriptor's status.
fn calendar(index: usize, decision: &Decision) -> Option<&Calendar> {
    match decision.statuses().nth(index)?.applied {
        Applied::Limited(result) => result.limit.spec.calendar.as_deref(),
        Applied::Nothing | Applied::Unlimited(_) | Applied::Paused(..) => None,
    }
}

/// Formats a limit as protobuf text without zeros, as envoyproxy/ratelimit does.
fn override_text(limit: LimitOverride) -> String {
    let unit = WireUnit::from(limit.period.unit()).name;
    let text = match limit.requests_per_unit {
        0 => format!("unit:{unit}"),
        requests => format!("requests_per_unit:{requests} unit:{unit}"),
    };
    match limit.period.multiplier() {
        1 => text,
        n => format!("{text} unit_multiplier:{{value:{n}}}"),
    }
}

/// In whole milliseconds, rounded up, so that a retry after this time is allowed.
fn milliseconds(us: u64) -> Metadata {
    number_metadata(us.div_ceil(1_000))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a protobuf Struct has no other number; above 2^53 the error does not matter in a log"
)]
fn number_metadata(value: u64) -> Metadata {
    Metadata::Number(value as f64)
}

/// Merges the metadata of all rules that did not deny.
fn rules_metadata(decision: &Decision) -> Option<Metadata> {
    let mut merged = Metadata::Map(BTreeMap::new());
    for metadata in decision.rules_within_limit().filter_map(|rule| rule.metadata.as_ref()) {
        merged.merge(metadata);
    }
    match &merged {
        Metadata::Map(fields) if fields.is_empty() => None,
        _ => Some(merged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Period, Unit};

    #[test]
    fn texts_and_names_have_no_control_characters() {
        let text = |text: &str| Metadata::Text(text.to_owned());
        let map = |name: &str, value| Metadata::Map(BTreeMap::from([(name.to_owned(), value)]));
        let hostile =
            map("a\r\nb", Metadata::List(vec![text("gr\u{fc}n \"x\"\nX: y\u{85}"), Metadata::Number(1.0)]));
        let expected =
            map("a__b", Metadata::List(vec![text("gr\u{fc}n \"x\"_X: y_"), Metadata::Number(1.0)]));
        assert_eq!(one_line(hostile), expected);
    }

    #[test]
    fn a_limit_reads_as_protobuf_text() {
        let limit = |multiplier| LimitOverride {
            requests_per_unit: 7,
            period: Period::new(Unit::Minute, multiplier).expect("a period"),
        };
        assert_eq!(override_text(limit(1)), "requests_per_unit:7 unit:MINUTE");
        assert_eq!(override_text(limit(10)), "requests_per_unit:7 unit:MINUTE unit_multiplier:{value:10}");
        assert_eq!(override_text(LimitOverride { requests_per_unit: 0, ..limit(1) }), "unit:MINUTE");
    }
}
