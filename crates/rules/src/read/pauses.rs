//! Reads `penalty` and `feedback` of a limit, and chooses the entry whose value they pause.

use std::iter::successors;
use std::sync::Arc;

use engine::{Feedback, LimitSpec, OnOver, PauseTarget, Penalty};

use super::FileReport;
use super::fields::Fields;
use crate::keys::Section;

/// The descriptor of a limit and those above it.
pub(super) struct PathEntry<'p> {
    parent: Option<&'p Self>,
    /// Empty if its value cannot be paused: a tier, or a wildcard over key and value.
    key: &'p str,
    /// `true` if every value matches.
    is_open: bool,
}

impl<'p> PathEntry<'p> {
    pub fn new(descriptor: &Fields<'p>, parent: Option<&'p Self>) -> Self {
        let key = descriptor.text("key").filter(|key| !key.contains('*') && !descriptor.flag("tier"));
        Self { parent, key: key.unwrap_or_default(), is_open: !descriptor.has("value") }
    }
}

/// Reads the pauses of one limit.
pub(super) struct PauseReader<'r, 'n> {
    pub limit: &'r Fields<'n>,
    pub path: &'r PathEntry<'r>,
    pub report: &'r mut FileReport,
}

impl<'n> PauseReader<'_, 'n> {
    pub fn read(&mut self, spec: &mut LimitSpec) {
        if let Some(fields) = self.fields("penalty", Section::Penalty, spec.on_over) {
            spec.penalty = self.penalty(&fields).map(Arc::new).filter(|_| !spec.unlimited);
        }
        if let Some(fields) = self.fields("feedback", Section::Feedback, spec.on_over) {
            let max_us = self.required(&fields, "max");
            let target = self.target(&fields);
            let feedback = target.zip(max_us).map(|(target, max_us)| Feedback { target, max_us });
            spec.feedback = feedback.map(Arc::new);
        }
    }

    fn fields(&mut self, name: &str, section: Section, on_over: OnOver) -> Option<Fields<'n>> {
        let (map, at) = self.limit.map(name)?;
        if on_over == OnOver::Announce {
            let reason = format!("{name} and on_over: announce exclude each other");
            self.report.error(&at, reason);
        }
        Some(Fields::from_map(map, section, at, self.report))
    }

    fn penalty(&mut self, fields: &Fields<'_>) -> Option<Penalty> {
        let (after, within_us, for_us) =
            (self.required(fields, "after"), self.required(fields, "within"), self.required(fields, "for"));
        let target = self.target(fields);
        let (after, within_us, for_us) = (after?, within_us?, for_us?);
        let grow = fields.integer("grow").unwrap_or(1);
        let max_us = fields.units("max").unwrap_or(for_us);
        for (key, is_wrong, reason) in [
            ("after", !(1..=1_000).contains(&after), "'after' must be 1 to 1,000"),
            ("grow", !(1..=10).contains(&grow), "'grow' must be 1 to 10"),
            ("for", for_us < within_us, "'for' must be at least 'within'"),
            ("max", max_us < for_us, "'max' must be at least 'for'"),
        ] {
            if is_wrong {
                self.report.error(&fields.position_of(key), reason);
            }
        }
        let after = u32::try_from(after).ok()?;
        Some(Penalty { target: target?, after, within_us, for_us, grow, max_us })
    }

    fn required(&mut self, fields: &Fields<'_>, key: &str) -> Option<u64> {
        let value = fields.units(key);
        if value.is_none() && !fields.is_reported(key) {
            self.report.error(&fields.at, format!("'{key}' is missing"));
        }
        value
    }

    /// The entry to pause: `of`, or the only one without a value.
    fn target(&mut self, fields: &Fields<'_>) -> Option<PauseTarget> {
        let entries = successors(Some(self.path), |entry| entry.parent);
        let mut keys: Vec<_> = entries.filter(|entry| !entry.key.is_empty()).collect();
        keys.reverse();
        let of = fields.text("of");
        let chosen = of.and_then(|of| keys.iter().find(|entry| entry.key == of).copied());
        if keys.iter().any(|entry| entry.is_open) {
            keys.retain(|entry| entry.is_open);
        }
        let Some(entry) =
            chosen.or_else(|| keys.first().copied().filter(|_| of.is_none() && keys.len() == 1))
        else {
            if !fields.is_reported("of") {
                let keys: Vec<_> = keys.iter().map(|entry| entry.key).collect();
                let section = fields.section.label();
                let reason = match keys.as_slice() {
                    [] => format!("{section} needs an entry whose key has no '*'"),
                    keys => format!("{section} needs 'of': {}", keys.join(" or ")),
                };
                self.report.error(&fields.position_of("of"), reason);
            }
            return None;
        };
        Some(PauseTarget { of: entry.key.into(), scope: fields.parsed("scope").unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use engine::{Defaults, ValueHashing};

    use crate::{CalendarOptions, CalendarYears, LoadOptions, RuleDirectory, load_stream, rlconfig};

    const RULES: &str = "domain: d
descriptors:
- key: address
  rate_limit: { unit: minute, requests_per_unit: 5, penalty: { after: 10, within: 1m, for: 15m } }
  descriptors:
  - key: path
    value: /login
    rate_limit: { unit: minute, requests_per_unit: 5, penalty: { after: 10, within: 1m, for: 15m, grow: 2, max: 24h } }
- key: api
  value: stripe
  rate_limit: { unit: second, requests_per_unit: 5, feedback: { max: 10m, scope: domain } }
";

    #[test]
    fn the_only_entry_without_a_value_is_paused() {
        let options = LoadOptions {
            merge_domains: false,
            defaults: Defaults::ENVOY_RATELIMIT,
            upgrades: Vec::new(),
            hashing: ValueHashing::NONE,
            directory: RuleDirectory::default(),
            calendars: CalendarOptions::new(CalendarYears { first: 2020, last: 2031 }),
            has_home: false,
        };
        let loaded = load_stream("rules", RULES.as_bytes(), options).expect("valid rules");
        let shown = rlconfig(&loaded.into_rules());
        for part in [
            "d.address: unit=MINUTE requests_per_unit=5, shadow_mode: false, quota_mode: false, \
             penalty: [10 denials within 1m block the address for 15m]\n",
            "penalty: [10 denials within 1m block the address for 15m, each time 2 times longer, at most 1d]\n",
            "feedback: [a caller may report a pause of the api in the whole domain, at most 10m]\n",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
