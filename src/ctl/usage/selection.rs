//! Which lines count: their times in a zone, and what they are about.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use base::clock::{Clock as _, SystemClock};
use ratelimitd::ledger::Line;
use rules::{local_time, time_zone_name};

use super::ledger::Per;
use super::sums::mode_name;

/// Characters of a date such as 2026-11-27, in a local time, too.
const DATE: usize = 10;

/// A bound of the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The start of this day in the zone.
    Date(String),
    Yesterday,
    /// Seconds since the epoch.
    At(u64),
    Ago(Duration),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_date = text.len() == DATE
            && text
                .bytes()
                .enumerate()
                .all(|(at, byte)| if [4, 7].contains(&at) { byte == b'-' } else { byte.is_ascii_digit() });
        if is_date && humantime::parse_rfc3339(&format!("{text}T00:00:00Z")).is_ok() {
            return Ok(Self::Date(text.to_owned()));
        }
        if text == "yesterday" {
            return Ok(Self::Yesterday);
        }
        if let Ok(time) = humantime::parse_rfc3339(text) {
            return Ok(Self::At(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()));
        }
        let expected =
            "expected a date such as 2026-11-27, a time such as 2026-11-27T15:00:00Z, yesterday, or 7d";
        humantime::parse_duration(text).map(Self::Ago).map_err(|_| expected.to_owned())
    }
}

/// Parses the name of a time zone.
pub(super) fn zone(text: &str) -> Result<String, String> {
    time_zone_name(text)
}

pub(super) struct Selection {
    pub(super) since: Option<Moment>,
    pub(super) until: Option<Moment>,
    pub(super) zone: String,
    pub(super) per: Option<Per>,
    /// `key=value`
    pub(super) entries: Vec<String>,
    pub(super) rule: Option<String>,
    pub(super) domain: Option<String>,
    pub(super) mode: Option<String>,
}

/// Applies a selection, and keeps the local time of each quarter.
pub(super) struct Selector {
    selection: Selection,
    now_s: u64,
    /// By quarter: the period of `--per`, which may be empty; `None` if the quarter does not count.
    periods: HashMap<u64, Option<String>>,
}

impl Selector {
    pub(super) fn new(selection: Selection) -> Self {
        Self { selection, now_s: SystemClock.now_us() / 1_000_000, periods: HashMap::new() }
    }

    pub(super) fn has_periods(&self) -> Option<Per> {
        self.selection.per
    }

    /// Returns the line's period if it counts.
    pub(super) fn period(&mut self, line: &Line<'_>) -> Option<&str> {
        let Selection { entries, rule, domain, mode, .. } = &self.selection;
        let is_same =
            |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        let is_selected = is_same(rule, &line.rule)
            && is_same(domain, &line.domain)
            && is_same(mode, mode_name(line.mode))
            && entries.iter().all(|wanted| line.entries.iter().any(|entry| entry == wanted));
        if !is_selected {
            return None;
        }
        if !self.periods.contains_key(&line.at) {
            let period = self.period_at(line.at);
            self.periods.insert(line.at, period);
        }
        self.periods.get(&line.at)?.as_deref()
    }

    fn period_at(&self, at_s: u64) -> Option<String> {
        let local = self.local(at_s)?;
        let is_before = |moment: &Moment| match moment {
            Moment::Date(date) => local[..DATE] < **date,
            Moment::Yesterday => local[..DATE] < *self.yesterday(),
            Moment::At(time_s) => at_s < *time_s,
            Moment::Ago(time) => at_s < self.now_s.saturating_sub(time.as_secs()),
        };
        let is_too_early = self.selection.since.as_ref().is_some_and(is_before);
        let is_too_late = !self.selection.until.as_ref().is_none_or(is_before);
        if is_too_early || is_too_late {
            return None;
        }
        Some(match self.selection.per {
            None => String::new(),
            Some(Per::Month) => local[..7].to_owned(),
            Some(Per::Day) => local[..DATE].to_owned(),
            // With the offset, because an hour of the clock can come twice.
            Some(Per::Hour) => format!("{}:00{}", &local[..13], &local[19..]),
        })
    }

    /// `2027-03-28 00:00:00 +01:00`
    fn local(&self, at_s: u64) -> Option<String> {
        local_time(&self.selection.zone, at_s.saturating_mul(1_000_000))
    }

    /// The date before today; a day has 23 to 25 hours.
    fn yesterday(&self) -> String {
        let date = |hours: u64| {
            let local = self.local(self.now_s.saturating_sub(hours * 3_600)).unwrap_or_default();
            local.get(..DATE).unwrap_or_default().to_owned()
        };
        let today = date(0);
        (1..=26).map(date).find(|date| *date != today).unwrap_or(today)
    }
}
