//! Reads the limits of a descriptor: the map under `rate_limit`, or the elements of `rate_limits`.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{
    Algorithm, Calendar, Charging, Defaults, Lease, Limit, LimitSpec, Pacing, Period, Quantity, Refill,
    Scope, Share, Unit,
};
use strum::VariantNames as _;

use super::draft::LimitDraft;
use super::fields::Fields;
use super::merge_keys::MergedValue;
use super::pauses::{PathEntry, PauseReader};
use super::tiers::read_tiers;
use super::{FileReport, Position, ReadContext};
use crate::calendar::{CalendarProblem, Calendars};
use crate::keys::{LIMIT_FIELDS, LimitField, Section, WrittenFields, key_of};
use crate::problem::Problem;

/// `true` if a descriptor has limits, valid or not.
pub(super) fn has_limits(descriptor: &Fields<'_>) -> bool {
    ["rate_limit", "rate_limits"].into_iter().any(|name| descriptor.has(name) || descriptor.is_invalid(name))
}

pub(super) fn read_limits(
    descriptor: &Fields<'_>,
    path: &PathEntry<'_>,
    context: ReadContext<'_>,
    report: &mut FileReport,
) -> Vec<LimitDraft> {
    if descriptor.has("rate_limit") && descriptor.has("rate_limits") {
        report.error(
            &descriptor.position_of("rate_limits"),
            "a descriptor cannot have both rate_limit and rate_limits; put every limit into rate_limits",
        );
    }
    let single = descriptor.map("rate_limit").map(|(map, at)| (map.clone(), at));
    let several: Vec<_> = descriptor.list("rate_limits").map(|(node, at)| (node.into(), at)).collect();
    if several.is_empty() && descriptor.has("rate_limits") && !descriptor.is_invalid("rate_limits") {
        report.warn(&descriptor.position_of("rate_limits"), "rate_limits is empty: it limits nothing");
    }
    let limits = read_all(single.into_iter().chain(several), path, context, report);
    check_pairs(&limits, report);
    limits
}

fn read_all<'n>(
    maps: impl Iterator<Item = (MergedValue<'n>, Position)>,
    path: &PathEntry<'_>,
    context: ReadContext<'_>,
    report: &mut FileReport,
) -> Vec<LimitDraft> {
    let maps: Vec<_> = maps.map(|(map, at)| Fields::from_map(&map, Section::RateLimit, at, report)).collect();
    let mut name_lines = HashMap::new();
    for fields in &maps {
        if let Some(name) = limit_name(fields) {
            name_lines.entry(name).or_insert(fields.at.line);
        }
    }
    let mut limits = Vec::with_capacity(maps.len());
    for fields in &maps {
        let mut reader =
            LimitReader { fields, path, name_lines: &name_lines, calendars: context.calendars, report };
        limits.extend(reader.read_limit(context.defaults));
    }
    limits
}

/// Compares the limits of one descriptor.
fn check_pairs(drafts: &[LimitDraft], report: &mut FileReport) {
    for (index, LimitDraft { location, limit, .. }) in drafts.iter().enumerate() {
        if drafts.len() > 1 && limit.quantity == Quantity::Unlimited {
            let reason = "unlimited does nothing beside other limits";
            report.problems.push(Problem::warning(location.clone(), reason));
            continue;
        }
        let streams = drafts.iter().find(|other| other.limit.spec.algorithm == Algorithm::Concurrency);
        if let Some(streams) = streams.filter(|_| limit.spec.charging == Charging::Postpaid) {
            let named = |draft: &LimitDraft| match draft.limit.name() {
                "" => format!("the limit on line {}", draft.location.line.unwrap_or_default()),
                name => format!("'{name}'"),
            };
            let reason = format!(
                "requests that {} denies are counted by {}: write charging: prepaid",
                named(streams),
                named(&drafts[index])
            );
            report.problems.push(Problem::warning(location.clone(), reason));
        }
        let earlier = drafts[..index].iter().find(|other| other.limit.counts_like(limit));
        if let Some(line) = earlier.and_then(|earlier| earlier.location.line) {
            let reason = format!(
                "counts in the same way as the limit on line {line}, so both would share one counter; remove one of them"
            );
            report.problems.push(Problem::error(location.clone(), reason));
        }
    }
}

fn limit_name<'n>(fields: &Fields<'n>) -> Option<&'n str> {
    fields.text("name").filter(|name| !name.is_empty())
}

/// The algorithm for messages, with its source if the limit does not name it.
fn named(algorithm: Algorithm, fields: &Fields<'_>) -> String {
    let source = if fields.has("algorithm") { "" } else { " (from defaults.algorithm)" };
    format!("{algorithm}{source}")
}

/// Fields that do nothing in a limit that counts without a number.
const NEED_A_NUMBER: [&str; 7] =
    ["requests_per_unit", "burst", "tiers", "on_over", "near", "penalty", "feedback"];

fn replaces_in_same_descriptor(name: &str, line: u32) -> String {
    format!(
        "replaces '{name}', a limit of the same descriptor (line {line}), which would then never apply; remove one of them"
    )
}

struct LimitReader<'r, 'n> {
    fields: &'r Fields<'n>,
    path: &'r PathEntry<'r>,
    /// The names of all limits of the descriptor, each with its line.
    name_lines: &'r HashMap<&'n str, u32>,
    calendars: &'r Calendars,
    report: &'r mut FileReport,
}

impl<'n> LimitReader<'_, 'n> {
    /// Reads the fields and builds the engine's limit, which rejects values outside the range in which decisions are
    /// exact.
    fn read_limit(&mut self, defaults: Defaults) -> Option<LimitDraft> {
        let mut spec = self.read_spec(defaults)?;
        let fields = self.fields;
        if ["requests_per_unit", "unit_multiplier", "burst"].iter().any(|number| fields.is_invalid(number)) {
            // A mistake in a value that nobody wrote is not a problem of the file.
            return None;
        }
        if let Err(error) = spec.check_reserve() {
            self.report.error(&fields.position_of("reserve"), error.to_string());
            return None;
        }
        PauseReader { limit: fields, path: self.path, report: self.report }.read(&mut spec);
        if spec.scope == Scope::Global && !fields.has("lease") {
            spec.lease = Lease::Auto;
        }
        let obstacle = spec.lease_obstacle().filter(|_| spec.lease == Lease::Auto && !spec.unlimited);
        if let Some(obstacle) = obstacle.filter(|_| fields.has("lease")) {
            self.report
                .error(&fields.position_of("lease"), format!("lease: auto does not work here: {obstacle}"));
            return None;
        }
        if let Some((map, at)) = fields.map("tiers").filter(|_| !spec.unlimited) {
            spec.tiers = read_tiers(map, &at, &spec, self.report);
        }
        match Limit::new(spec) {
            Ok(limit) => {
                let written = WrittenFields {
                    algorithm: fields.has("algorithm"),
                    charging: fields.has("charging"),
                    on_store_failure: fields.has("on_store_failure"),
                };
                Some(LimitDraft { location: self.report.location(&fields.at), limit, written })
            }
            Err(error) => {
                self.report.error(&fields.position_of(key_of(&error)), error.to_string());
                None
            }
        }
    }

    /// The limit as written, with the defaults filled in, without tiers. `None` for an invalid period.
    fn read_spec(&mut self, defaults: Defaults) -> Option<LimitSpec> {
        let fields = self.fields;
        // Unwrapped last, so that the other problems of the limit are reported too.
        let is_counted = !fields.flag("unlimited") || fields.flag("count");
        let period = self.read_period(is_counted);
        let mut spec = defaults.limit(0, period.unwrap_or(Period::one(Unit::Second)));
        for (name, value) in fields.plain_values() {
            let field = LIMIT_FIELDS.iter().find(|field| field.name == name);
            if let Some(set) = field.and_then(|field| field.set) {
                set(&mut spec, value);
            }
        }
        if !fields.has("charging") {
            spec.charging = defaults.charging_of(spec.on_over, fields.has("algorithm"));
        }
        spec.calendar = self.read_calendar(period, spec.algorithm);
        if self.has_useless_burst(spec.algorithm) {
            spec.burst = None;
        }
        if self.is_for_other(Algorithm::TokenBucket, spec.algorithm, "refill") {
            spec.refill = Refill::default();
        }
        if self.is_for_other(Algorithm::LeakyBucket, spec.algorithm, "mode") {
            spec.pacing = Pacing::default();
        }
        if spec.count && self.is_for_other(Algorithm::FixedWindow, spec.algorithm, "count") {
            spec.count = false;
        }
        self.check_unit_name();
        spec.replaces = self.read_replaces(spec.name.as_deref());
        self.warn_of_mistakes(&spec);
        self.warn_of_lost_tokens(&spec);
        period?;
        Some(spec)
    }

    fn read_period(&mut self, is_counted: bool) -> Option<Period> {
        let text = self.fields.text("unit").unwrap_or_default();
        let unit = text.parse().ok();
        let at = self.fields.position_of("unit");
        match (unit, is_counted) {
            (Some(_), false) => {
                self.report.error(&at, "should not specify rate limit unit when unlimited");
                None
            }
            (None, false) => {
                if !text.is_empty() {
                    let reason =
                        format!("invalid rate limit unit '{text}', ignored because the limit is unlimited");
                    self.report.warn(&at, reason);
                }
                Some(Period::one(Unit::Second))
            }
            (Some(unit), true) => self.read_multiplier(unit),
            (None, true) if self.fields.is_reported("unit") || self.fields.is_invalid("unlimited") => None,
            (None, true) => {
                let expected = Unit::VARIANTS.join(", ");
                self.report
                    .error(&at, format!("invalid rate limit unit '{text}'; expected one of {expected}"));
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
                unit.into_str()
            );
            self.report.error(&self.fields.position_of("unit_multiplier"), reason);
        }
        period
    }

    /// The calendar, unless its keys are invalid or have no effect.
    fn read_calendar(&mut self, period: Option<Period>, algorithm: Algorithm) -> Option<Arc<Calendar>> {
        let fields = self.fields;
        let mut report = |key: &str, reason: String| {
            self.report.error(&fields.position_of(key), reason);
            None
        };
        let Some(zone) = fields.text("calendar") else {
            if fields.has("starts") && !fields.is_reported("calendar") {
                return report("starts", "'starts' needs a calendar, such as calendar: UTC".to_owned());
            }
            return None;
        };
        if fields.flag("unlimited") && !fields.flag("count") {
            return None;
        }
        if algorithm != Algorithm::FixedWindow && !fields.is_invalid("algorithm") {
            let reason = format!(
                "a calendar needs algorithm fixed_window, but this limit uses {}",
                named(algorithm, fields)
            );
            return report("calendar", reason);
        }
        let period = period?;
        if period.multiplier() != 1 {
            let reason = format!(
                "a calendar needs unit_multiplier 1: its windows are one {}",
                period.unit().into_str()
            );
            return report("unit_multiplier", reason);
        }
        match self.calendars.get(zone, period.unit(), fields.text("starts")) {
            Ok(calendar) => Some(calendar),
            Err(CalendarProblem { key, reason }) => report(key, reason),
        }
    }

    /// `true` if the limit has a burst that its algorithm ignores.
    fn has_useless_burst(&mut self, algorithm: Algorithm) -> bool {
        let fields = self.fields;
        let is_useless = fields.has("burst") && !algorithm.has_burst() && !fields.is_invalid("algorithm");
        if is_useless {
            let reason = format!(
                "burst has no effect with {}; it is for gcra, token_bucket and leaky_bucket",
                named(algorithm, fields)
            );
            self.report.warn(&fields.position_of("burst"), reason);
        }
        is_useless
    }

    /// `true` if the limit has a key of the algorithm `owner` but another algorithm.
    fn is_for_other(&mut self, owner: Algorithm, algorithm: Algorithm, name: &str) -> bool {
        let fields = self.fields;
        let is_for_other = fields.has(name) && algorithm != owner && !fields.is_invalid("algorithm");
        if is_for_other {
            let reason =
                format!("'{name}' needs algorithm {owner}, but this limit uses {}", named(algorithm, fields));
            self.report.error(&fields.position_of(name), reason);
        }
        is_for_other
    }

    fn check_unit_name(&mut self) {
        let is_plain = |name: &str| {
            (1..=32).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        };
        if self.fields.text("unit_name").is_some_and(|name| !is_plain(name)) {
            let reason = "unit_name: expected 1 to 32 of the characters a-z and -";
            self.report.error(&self.fields.position_of("unit_name"), reason);
        }
    }

    fn read_replaces(&mut self, own_name: Option<&str>) -> Vec<String> {
        let mut replaces = Vec::new();
        for (node, at) in self.fields.list("replaces") {
            let entry = Fields::from_map(&node.into(), Section::Replaces, at, self.report);
            match entry.text("name") {
                None if entry.is_reported("name") => {}
                None | Some("") => self.report.error(&entry.at, "should not have an empty replaces entry"),
                name if name == own_name => {
                    let reason = "replaces should not contain name of same descriptor";
                    self.report.error(&entry.position_of("name"), reason);
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
    fn warn_of_mistakes(&mut self, spec: &LimitSpec) {
        let fields = self.fields;
        let mut warn = |name: &str, reason: &str| self.report.warn(&fields.position_of(name), reason);
        if spec.unlimited {
            let is_idle = |field: &&LimitField| match fields.flag("count") {
                true => NEED_A_NUMBER.contains(&field.name),
                false => field.is_for_counting,
            };
            let counting = LIMIT_FIELDS.iter().filter(is_idle);
            for name in counting.map(|field| field.name).filter(|name| fields.has(name)) {
                warn(name, &format!("'{name}' has no effect: the limit is unlimited"));
            }
            return;
        }
        if spec.count && !fields.has("tiers") {
            warn("count", "count has no effect: what is limited is counted in any case");
        }
        if !fields.has("requests_per_unit") && !fields.has_errors() {
            // A missing key has the line of the limit.
            warn(
                "requests_per_unit",
                "requests_per_unit is missing, so everything is blocked; write 'requests_per_unit: 0' to block on purpose",
            );
        }
        if spec.near == Some(Share::WHOLE) {
            warn("near", "near: 1 never announces: usage above the limit is already over it");
        }
        if spec.requests_per_unit == u64::from(u32::MAX) {
            warn(
                "requests_per_unit",
                "requests_per_unit is the largest number of 32 bits; write 'unlimited: true' for no limit",
            );
        }
        // A prepaid log holds at most as many entries as its limit.
        let is_short = spec.requests_per_unit <= 64 && spec.charging == Charging::Prepaid;
        if spec.algorithm == Algorithm::SlidingLog && spec.settle && !is_short {
            warn(
                "settle",
                "sliding_log cannot refund an estimate that has 64 or more later entries: under load most \
                 estimates stay charged; use sliding_window",
            );
        }
    }

    /// At the end of a period `requests_per_unit` tokens arrive, and those above the burst are lost.
    fn warn_of_lost_tokens(&mut self, spec: &LimitSpec) {
        let tokens = self.fields.integer("requests_per_unit").unwrap_or(0);
        if let (Refill::Interval, Some(burst)) = (spec.refill, spec.burst)
            && burst < tokens
        {
            let reason = format!(
                "the bucket holds {burst} tokens, so {} of the {tokens} that arrive at the end of each period are always \
                 lost; write 'burst: {tokens}' or more, or 'requests_per_unit: {burst}'",
                tokens - burst
            );
            self.report.warn(&self.fields.position_of("burst"), reason);
        }
    }
}
