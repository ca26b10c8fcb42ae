//! Reads `rate_limit` and `rate_limits`.

use std::collections::HashMap;
use std::fmt;

use crate::engine::{
    Algorithm, Charging, Defaults, FailurePolicy, Limit, LimitError, LimitId, LimitSpec, Pacing, Period,
    Quantity, Refill, Unit,
};

use super::draft::LimitDraft;
use super::fields::Fields;
use super::report::{At, Report};
use crate::rules::keys::{INTERVAL, QUEUE, Section, units};
use crate::yaml::Node;

/// Whether a descriptor names limits at all.
pub(super) fn are_named(descriptor: &Fields<'_>) -> bool {
    ["rate_limit", "rate_limits"].into_iter().any(|name| descriptor.has(name) || descriptor.is_broken(name))
}

/// The limits of a descriptor that can be kept.
pub(super) fn read(descriptor: &Fields<'_>, defaults: Defaults, report: &mut Report) -> Vec<LimitDraft> {
    if descriptor.has("rate_limit") && descriptor.has("rate_limits") {
        report.error(
            &descriptor.at("rate_limits"),
            "rate_limit and rate_limits cannot stand side by side; put every limit into rate_limits",
        );
    }
    let single = descriptor.map("rate_limit").map(|(parts, at)| (parts.to_vec(), at));
    let several: Vec<_> = descriptor.list("rate_limits").map(|(node, at)| (vec![node], at)).collect();
    if several.is_empty() && descriptor.has("rate_limits") && !descriptor.is_broken("rate_limits") {
        report.warn(&descriptor.at("rate_limits"), "rate_limits is empty: it limits nothing");
    }
    let limits = read_all(single.into_iter().chain(several), defaults, report);
    check_together(&limits, report);
    limits.into_iter().map(|read| read.draft).collect()
}

/// A limit with what the check of a whole list needs to know.
struct Read {
    at: At,
    draft: LimitDraft,
    limit: Limit,
}

fn read_all<'n>(
    maps: impl Iterator<Item = (Vec<&'n Node>, At)>,
    defaults: Defaults,
    report: &mut Report,
) -> Vec<Read> {
    let maps: Vec<_> = maps.map(|(parts, at)| Fields::read(&parts, Section::RateLimit, at, report)).collect();
    let mut lines = HashMap::new();
    for fields in &maps {
        if let Some(name) = named(fields) {
            lines.entry(name).or_insert(fields.at.line);
        }
    }
    let mut limits = Vec::new();
    for fields in &maps {
        let mut reader = Reader { fields, lines: &lines, report };
        if let Some(spec) = reader.spec(defaults)
            && let Some(limit) = reader.checked(&spec)
        {
            let at = fields.at.clone();
            let draft = LimitDraft { place: report.place(&at), spec };
            limits.push(Read { at, draft, limit });
        }
    }
    limits
}

fn named<'n>(fields: &Fields<'n>) -> Option<&'n str> {
    fields.text("name").filter(|name| !name.is_empty())
}

fn check_together(limits: &[Read], report: &mut Report) {
    for (index, read) in limits.iter().enumerate() {
        if limits.len() > 1 && read.limit.quantity == Quantity::Unlimited {
            report.warn(&read.at, "unlimited does nothing beside other limits");
            continue;
        }
        let twin = limits[..index].iter().find(|earlier| earlier.limit.fingerprint == read.limit.fingerprint);
        if let Some(twin) = twin {
            report.error(
                &read.at,
                format!(
                    "counts the same as the limit on line {}, so both would share one counter; leave one out",
                    twin.at.line
                ),
            );
        }
    }
}

/// The algorithm of a limit, and where it is from if the limit does not say.
#[derive(Clone, Copy)]
struct Chosen {
    algorithm: Algorithm,
    source: &'static str,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.algorithm, self.source)
    }
}

fn beside(name: &str, line: u32) -> String {
    format!(
        "replaces '{name}', a limit of the same descriptor (line {line}), which would then never count; leave one out"
    )
}

struct Reader<'r, 'n> {
    fields: &'r Fields<'n>,
    /// The names of all limits of the descriptor, each with its line.
    lines: &'r HashMap<&'n str, u32>,
    report: &'r mut Report,
}

impl<'n> Reader<'_, 'n> {
    fn spec(&mut self, defaults: Defaults) -> Option<LimitSpec> {
        let fields = self.fields;
        let named_algorithm = fields.text("algorithm").and_then(Algorithm::parse);
        let algorithm = named_algorithm.unwrap_or(defaults.algorithm);
        let name = named(fields);
        // Read before anything is given up, so that all problems of the limit are named.
        let period = self.period(fields.flag("unlimited"));
        let source = if named_algorithm.is_some() { "" } else { " (from defaults.algorithm)" };
        let chosen = Chosen { algorithm, source };
        let burst = self.burst(chosen);
        let refill = self.only_for(Algorithm::TokenBucket, chosen, "refill");
        let mode = self.only_for(Algorithm::LeakyBucket, chosen, "mode");
        let replaces = self.replaces(name);
        let charging = fields.text("charging").and_then(Charging::parse);
        let policy = fields.text("on_store_failure").and_then(FailurePolicy::parse);
        self.check_use();
        Some(LimitSpec {
            requests_per_unit: fields.number("requests_per_unit").unwrap_or(0),
            period: period?,
            unlimited: fields.flag("unlimited"),
            algorithm,
            burst,
            refill: if refill == Some(INTERVAL) { Refill::Interval } else { Refill::Continuous },
            pacing: if mode == Some(QUEUE) { Pacing::Queue } else { Pacing::Meter },
            charging: charging.unwrap_or_else(|| defaults.charging(named_algorithm.is_some())),
            on_store_failure: policy.unwrap_or(defaults.on_store_failure),
            name: name.map(str::to_owned),
            replaces,
        })
    }

    fn period(&mut self, unlimited: bool) -> Option<Period> {
        let text = self.fields.text("unit").unwrap_or_default();
        let unit = Unit::parse(text);
        let at = self.fields.at("unit");
        match (unit, unlimited) {
            (Some(_), true) => {
                self.report.error(&at, "should not specify rate limit unit when unlimited");
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
            (Some(unit), false) => self.multiplied(unit),
            (None, false) if self.fields.is_broken("unit") => None,
            (None, false) => {
                let reason = format!("invalid rate limit unit '{text}': it is one of {}", units().join(", "));
                self.report.error(&at, reason);
                None
            }
        }
    }

    fn multiplied(&mut self, unit: Unit) -> Option<Period> {
        let multiplier = self.fields.number("unit_multiplier").unwrap_or(1);
        let period = Period::new(unit, multiplier);
        if period.is_none() {
            let reason = format!(
                "unit_multiplier {multiplier} with unit {}: a period is at least one unit and at most 366 days",
                unit.name()
            );
            self.report.error(&self.fields.at("unit_multiplier"), reason);
        }
        period
    }

    fn burst(&mut self, chosen: Chosen) -> Option<u32> {
        let burst = self.fields.number("burst")?;
        if !chosen.algorithm.has_burst() && !self.fields.is_broken("algorithm") {
            let reason =
                format!("burst does nothing with {chosen}; it is for gcra, token_bucket and leaky_bucket");
            self.report.warn(&self.fields.at("burst"), reason);
            return None;
        }
        Some(burst)
    }

    /// The text under a key that one algorithm alone knows.
    fn only_for(&mut self, owner: Algorithm, chosen: Chosen, name: &str) -> Option<&'n str> {
        let text = self.fields.text(name)?;
        if chosen.algorithm != owner && !self.fields.is_broken("algorithm") {
            let reason = format!("'{name}' needs algorithm {owner}; this limit's is {chosen}");
            self.report.error(&self.fields.at(name), reason);
            return None;
        }
        Some(text)
    }

    fn replaces(&mut self, own_name: Option<&str>) -> Vec<String> {
        let mut replaces = Vec::new();
        for (node, at) in self.fields.list("replaces") {
            let entry = Fields::read(&[node], Section::Replaces, at, self.report);
            match entry.text("name") {
                None | Some("") => self.report.error(&entry.at, "should not have an empty replaces entry"),
                name if name == own_name => {
                    let reason = "replaces should not contain name of same descriptor";
                    self.report.error(&entry.at("name"), reason);
                }
                Some(name) => match self.lines.get(name) {
                    Some(line) => self.report.error(&entry.at("name"), beside(name, *line)),
                    None => replaces.push(name.to_owned()),
                },
            }
        }
        replaces
    }

    /// Warns of limits that can be kept but hardly mean what was meant.
    fn check_use(&mut self) {
        let fields = self.fields;
        if fields.flag("unlimited") {
            let counting =
                ["requests_per_unit", "unit_multiplier", "algorithm", "burst", "refill", "mode", "charging"];
            for name in counting.into_iter().filter(|name| fields.has(name)) {
                let reason = format!("'{name}' does nothing: the limit is unlimited");
                self.report.warn(&fields.at(name), reason);
            }
            return;
        }
        if !fields.has("requests_per_unit") && !fields.has_errors() {
            let reason = "requests_per_unit is missing, so everything is blocked; write 'requests_per_unit: 0' if that is meant";
            self.report.warn(&fields.at, reason);
        }
        if fields.number("requests_per_unit") == Some(u32::MAX) {
            let reason = "requests_per_unit is the largest number there is; write 'unlimited: true' if nothing is to be limited";
            self.report.warn(&fields.at("requests_per_unit"), reason);
        }
    }

    /// The limit as the engine keeps it, which shows whether its numbers stay in range.
    fn checked(&mut self, spec: &LimitSpec) -> Option<Limit> {
        Limit::new(LimitId(0), spec.clone(), "")
            .map_err(|error| {
                let key = match error {
                    LimitError::LogTooLong { .. } => "requests_per_unit",
                    LimitError::ZeroBurst | LimitError::RefillTooLong { .. } => "burst",
                };
                self.report.error(&self.fields.at(key), error.to_string());
            })
            .ok()
    }
}
