//! Which lines count: their times in a zone, and what they are about.

use std::collections::HashMap;
use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use base::clock::{Clock as _, SystemClock};
use clap::Args;
use engine::{Entry, RuleSet};
use ratelimitd::cli::rule_options::{RuleOptions, settings_rules};
use ratelimitd::ledger::Line;
use rules::{local_time, time_zone_name};

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

#[derive(Clone, Debug, Args)]
pub(super) struct Selection {
    /// Count from here on: a date, an RFC 3339 time in UTC, `yesterday`, or a time ago such as 7d
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,

    /// Count what was before this, written as for --since
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,

    /// Time zone of dates, hours, days and months
    #[arg(long, value_name = "ZONE", default_value = "UTC", value_parser = time_zone_name)]
    zone: String,

    /// Add a column with the hour, day or month
    #[arg(long, value_name = "PERIOD", value_parser = ["hour", "day", "month"])]
    pub(super) per: Option<String>,

    /// Only keys with this entry; repeat the option for several
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = entry)]
    entries: Vec<Entry>,

    /// Hash the secret values of --where, as in the ledger, with the rules and the key that this settings file names
    #[arg(long, value_name = "FILE", requires = "entries")]
    config: Option<PathBuf>,

    /// Only the limit with this name, or of the rule with this path
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    /// Only this domain
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// Only limits of this mode: enforced, shadow (the rule is in shadow mode) or soft (on_over: announce)
    #[arg(long, value_name = "MODE", value_parser = ["enforced", "shadow", "soft"])]
    mode: Option<String>,
}

fn entry(text: &str) -> Result<Entry, &'static str> {
    let (key, value) = text.split_once('=').ok_or("expected key=value")?;
    Ok(Entry { key: key.to_owned(), value: value.to_owned() })
}

/// Applies a selection, and keeps the local time of each quarter.
pub(super) struct Selector {
    pub(super) selection: Selection,
    now_s: u64,
    /// The rules of `--config`, which hash secret values.
    rules: Option<RuleSet>,
    /// By domain: the entries of `--where` as they are in lines.
    wanted: HashMap<String, Vec<String>>,
    /// By quarter: the period of `--per`, which may be empty; `None` if the quarter does not count.
    periods: HashMap<u64, Option<String>>,
}

impl Selector {
    /// # Errors
    /// The settings or rules of `--config` are unreadable or invalid.
    pub(super) fn new(selection: Selection) -> Result<Self, Box<dyn Error>> {
        let rules = match &selection.config {
            Some(_) => {
                let config = selection.config.clone();
                let (settings, options) = RuleOptions { config, ..RuleOptions::default() }.load()?;
                Some(settings_rules(&settings, options)?.loaded.rules)
            }
            None => None,
        };
        let now_s = SystemClock.now_us() / 1_000_000;
        Ok(Self { selection, now_s, rules, wanted: HashMap::new(), periods: HashMap::new() })
    }

    /// Returns the line's period if it counts.
    pub(super) fn period(&mut self, line: &Line<'_>) -> Option<&str> {
        let Selection { entries, rule, domain, mode, .. } = &self.selection;
        if !entries.is_empty() && !self.wanted.contains_key(&*line.domain) {
            let written = |entry: &Entry| {
                let hash = self.rules.as_ref().and_then(|rules| rules.hidden_value(&line.domain, entry));
                format!("{}={}", entry.key, hash.as_deref().unwrap_or(&entry.value))
            };
            self.wanted.insert(line.domain.to_string(), entries.iter().map(written).collect());
        }
        let is_same =
            |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        let is_selected = is_same(rule, &line.rule)
            && is_same(domain, &line.domain)
            && is_same(mode, mode_name(line))
            && (self.wanted.get(&*line.domain).into_iter().flatten())
                .all(|wanted| line.entries.iter().any(|entry| entry == wanted));
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
        // An hour includes the offset, because an hour of the clock can come twice.
        Some(match self.selection.per.as_deref() {
            Some("month") => local[..7].to_owned(),
            Some("day") => local[..DATE].to_owned(),
            Some(_) => format!("{}:00{}", &local[..13], &local[19..]),
            None => String::new(),
        })
    }

    /// `2027-03-28 00:00:00 +01:00`
    fn local(&self, at_s: u64) -> Option<String> {
        local_time(&self.selection.zone, at_s.saturating_mul(1_000_000))
    }

    /// The date before today; a day is 23 to 25 hours long.
    fn yesterday(&self) -> String {
        let date = |hours: u64| {
            let local = self.local(self.now_s.saturating_sub(hours * 3_600)).unwrap_or_default();
            local.get(..DATE).unwrap_or_default().to_owned()
        };
        let today = date(0);
        (1..=26).map(date).find(|date| *date != today).unwrap_or(today)
    }
}
