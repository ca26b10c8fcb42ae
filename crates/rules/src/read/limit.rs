//! Reads one limit: an element of `rate_limits`, or the map under `rate_limit`.

use std::collections::HashMap;
use std::fmt;

use engine::{
    Algorithm, Charging, Defaults, FailurePolicy, Limit, LimitError, LimitId, LimitSpec, Pacing, Period,
    Refill, Unit,
};

use super::fields::Fields;
use super::file_report::FileReport;
use crate::keys::{Section, units};

/// The name of a limit, if it has one.
pub(super) fn limit_name<'n>(fields: &Fields<'n>) -> Option<&'n str> {
    fields.text("name").filter(|name| !name.is_empty())
}

/// The algorithm of a limit, with its source for messages: empty if the limit names it.
#[derive(Clone, Copy)]
struct ChosenAlgorithm {
    algorithm: Algorithm,
    source: &'static str,
}

impl fmt::Display for ChosenAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.algorithm, self.source)
    }
}

pub(super) const EMPTY_REPLACES: &str = "should not have an empty replaces entry";
pub(super) const REPLACES_ITSELF: &str = "replaces should not contain name of same descriptor";
pub(super) const UNIT_OF_UNLIMITED: &str = "should not specify rate limit unit when unlimited";

pub(super) fn invalid_unit(text: &str) -> String {
    format!("invalid rate limit unit '{text}': it is one of {}", units().join(", "))
}

fn replaces_in_same_descriptor(name: &str, line: u32) -> String {
    format!(
        "replaces '{name}', a limit of the same descriptor (line {line}), which would then never apply; remove one of them"
    )
}

pub(super) struct LimitReader<'r, 'n> {
    pub fields: &'r Fields<'n>,
    /// The names of all limits of the descriptor, each with its line.
    pub name_lines: &'r HashMap<&'n str, u32>,
    pub report: &'r mut FileReport,
}

impl<'n> LimitReader<'_, 'n> {
    /// The limit as written, with the defaults filled in. `None` for an invalid period.
    pub fn read_spec(&mut self, defaults: Defaults) -> Option<LimitSpec> {
        let fields = self.fields;
        let named_algorithm = fields.text("algorithm").and_then(Algorithm::parse);
        let algorithm = named_algorithm.unwrap_or(defaults.algorithm);
        let name = limit_name(fields);
        // Unwrapped last, so that the other problems of the limit are reported too.
        let period = self.read_period(fields.flag("unlimited"));
        let source = if named_algorithm.is_some() { "" } else { " (from defaults.algorithm)" };
        let chosen = ChosenAlgorithm { algorithm, source };
        let burst = self.read_burst(chosen);
        let refill = self.text_only_for(Algorithm::TokenBucket, chosen, "refill");
        let mode = self.text_only_for(Algorithm::LeakyBucket, chosen, "mode");
        let replaces = self.read_replaces(name);
        let charging = fields.text("charging").and_then(Charging::parse);
        let policy = fields.text("on_store_failure").and_then(FailurePolicy::parse);
        self.warn_of_mistakes();
        Some(LimitSpec {
            requests_per_unit: fields.integer("requests_per_unit").unwrap_or(0),
            period: period?,
            unlimited: fields.flag("unlimited"),
            algorithm,
            burst,
            refill: refill.and_then(Refill::parse).unwrap_or_default(),
            pacing: mode.and_then(Pacing::parse).unwrap_or_default(),
            charging: charging.unwrap_or_else(|| defaults.charging(named_algorithm.is_some())),
            on_store_failure: policy.unwrap_or(defaults.on_store_failure),
            name: name.map(str::to_owned),
            replaces,
        })
    }

    /// Builds the engine's limit. Reports numbers outside the range in which decisions are exact.
    pub fn build_limit(&mut self, spec: &LimitSpec) -> Option<Limit> {
        Limit::new(LimitId(0), spec.clone(), "")
            .map_err(|error| {
                let key = match error {
                    LimitError::LogTooLong { .. } => "requests_per_unit",
                    LimitError::ZeroBurst | LimitError::RefillTooLong { .. } => "burst",
                };
                self.report.error(&self.fields.position_of(key), error.to_string());
            })
            .ok()
    }

    fn read_period(&mut self, unlimited: bool) -> Option<Period> {
        let text = self.fields.text("unit").unwrap_or_default();
        let unit = Unit::parse(text);
        let at = self.fields.position_of("unit");
        match (unit, unlimited) {
            (Some(_), true) => {
                self.report.error(&at, UNIT_OF_UNLIMITED);
                None
            }
            (None, true) => {
                if !text.is_empty() {
                    let reason =
                        format!("invalid rate limit unit '{text}', ignored because the limit is unlimited");
                    self.report.warn(&at, reason);
                }
                Some(Period::one(Unit::Second))
            }
            (Some(unit), false) => self.read_multiplier(unit),
            (None, false) if self.fields.may_be_misspelt("unit") => None,
            (None, false) => {
                self.report.error(&at, invalid_unit(text));
                None
            }
        }
    }

    fn read_multiplier(&mut self, unit: Unit) -> Option<Period> {
        let multiplier = self.fields.integer("unit_multiplier").unwrap_or(1);
        let period = Period::new(unit, multiplier);
        if period.is_none() {
            let reason = format!(
                "unit_multiplier {multiplier} with unit {}: a period is at least one unit and at most 366 days",
                unit.name()
            );
            self.report.error(&self.fields.position_of("unit_multiplier"), reason);
        }
        period
    }

    fn read_burst(&mut self, chosen: ChosenAlgorithm) -> Option<u32> {
        let burst = self.fields.integer("burst")?;
        if !chosen.algorithm.has_burst() && !self.fields.is_invalid("algorithm") {
            let reason =
                format!("burst does nothing with {chosen}; it is for gcra, token_bucket and leaky_bucket");
            self.report.warn(&self.fields.position_of("burst"), reason);
            return None;
        }
        Some(burst)
    }

    /// The text of a key that only the algorithm `owner` has.
    fn text_only_for(&mut self, owner: Algorithm, chosen: ChosenAlgorithm, name: &str) -> Option<&'n str> {
        let text = self.fields.text(name)?;
        if chosen.algorithm != owner && !self.fields.is_invalid("algorithm") {
            let reason = format!("'{name}' needs algorithm {owner}, but this limit uses {chosen}");
            self.report.error(&self.fields.position_of(name), reason);
            return None;
        }
        Some(text)
    }

    fn read_replaces(&mut self, own_name: Option<&str>) -> Vec<String> {
        let mut replaces = Vec::new();
        for (node, at) in self.fields.list("replaces") {
            let entry = Fields::from_map(&node.into(), Section::Replaces, at, self.report);
            match entry.text("name") {
                None if entry.may_be_misspelt("name") => {}
                None | Some("") => self.report.error(&entry.at, EMPTY_REPLACES),
                name if name == own_name => {
                    self.report.error(&entry.position_of("name"), REPLACES_ITSELF);
                }
                Some(name) => match self.name_lines.get(name) {
                    Some(line) => self
                        .report
                        .error(&entry.position_of("name"), replaces_in_same_descriptor(name, *line)),
                    None => replaces.push(name.to_owned()),
                },
            }
        }
        replaces
    }

    /// Warns about valid limits that are probably a mistake.
    fn warn_of_mistakes(&mut self) {
        let fields = self.fields;
        if fields.flag("unlimited") {
            let counting =
                ["requests_per_unit", "unit_multiplier", "algorithm", "burst", "refill", "mode", "charging"];
            for name in counting.into_iter().filter(|name| fields.has(name)) {
                let reason = format!("'{name}' does nothing: the limit is unlimited");
                self.report.warn(&fields.position_of(name), reason);
            }
            return;
        }
        if !fields.has("requests_per_unit") && !fields.has_errors() {
            let reason = "requests_per_unit is missing, so everything is blocked; write 'requests_per_unit: 0' to block on purpose";
            self.report.warn(&fields.at, reason);
        }
        if fields.integer("requests_per_unit") == Some(u32::MAX) {
            let reason =
                "requests_per_unit is the largest possible number; write 'unlimited: true' for no limit";
            self.report.warn(&fields.position_of("requests_per_unit"), reason);
        }
    }
}
