//! Says what is wrong, worst first: red if an alert of severity `page` fires or the process is not ready, amber for one
//! of severity `ticket`, plain for what is over.

use std::time::{Duration, UNIX_EPOCH};

use base::{readable_duration, with_commas};

use super::marks::Marks;
use super::observation::Observation;
use super::shapes::UnknownKey;
use super::state::{Level, Notice};
use super::totals::{Second, Sums, Totals};
use crate::telemetry::metrics::RequestFailure;

/// Nobody reads more than this.
const MOST_NOTICES: usize = 6;
/// An outage that ended longer ago is only a mark.
const OVER_FOR_S: u64 = 900;
/// A certificate that expires sooner gets a notice.
const WEEK_S: i64 = 7 * 24 * 3_600;
/// Delay of the alert on open breakers; that on slow decisions has [`SLOW_S`].
const BREAKERS_OPEN_S: u64 = 120;
const SLOW_S: usize = 300;
const SLOW_US: u64 = 10_000;

pub(super) struct Facts<'a> {
    pub(super) now: &'a Observation,
    pub(super) totals: &'a Totals,
    pub(super) marks: &'a Marks,
    pub(super) unknown_key: Option<UnknownKey>,
    pub(super) unknown_domains: Vec<String>,
    pub(super) is_shadow_mode: bool,
}

/// At most [`MOST_NOTICES`], worst first.
pub(super) fn notices(facts: &Facts<'_>) -> Vec<Notice> {
    let mut all = Notices::default();
    all.add_store(facts);
    all.add_readiness(facts);
    all.add_rules(facts);
    all.add_requests(facts);
    all.add_process(facts);
    let Notices(mut all) = all;
    all.sort_by_key(|notice| notice.level);
    all.truncate(MOST_NOTICES);
    all
}

#[derive(Default)]
struct Notices(Vec<Notice>);

impl Notices {
    fn bad(&mut self, title: &str, text: impl Into<String>, fix: &str) {
        self.push(Level::Bad, format!("■ {title}"), text, fix);
    }

    fn warn(&mut self, title: &str, text: impl Into<String>, fix: &str) {
        self.push(Level::Warn, format!("▲ {title}"), text, fix);
    }

    fn push(&mut self, level: Level, title: String, text: impl Into<String>, fix: &str) {
        self.0.push(Notice { level, title, text: text.into(), fix: fix.to_owned() });
    }

    fn add_store(&mut self, facts: &Facts<'_>) {
        let (end, store) = (facts.now.end, &facts.now.store);
        match &facts.marks.outage {
            Some((outage, None)) => {
                let lasted = readable_duration(Duration::from_secs(end.saturating_sub(outage.at)));
                let since = clock(outage.at);
                let title = format!("Redis does not answer since {since} ({lasted}): {}.", outage.error);
                let admitted = with_commas(facts.totals.sum(60, |second| second.policy));
                let text = format!(
                    "{admitted} requests of the last minute were admitted by their on_store_failure."
                );
                self.bad(&title, text, "");
            }
            Some((outage, Some(ended))) if end.saturating_sub(*ended) < OVER_FOR_S => {
                let title = format!("Redis was away from {} to {}.", clock(outage.at), clock(*ended));
                let text = format!("It was: {}.", outage.error);
                self.push(Level::Plain, title, text, "Counters that Redis lost start unused.");
            }
            _ => {}
        }
        let open_since = facts.marks.breakers_open_since;
        let has_outage = matches!(facts.marks.outage, Some((_, None)));
        if open_since.is_some_and(|since| end - since >= BREAKERS_OPEN_S) && !has_outage {
            let title = "Circuit breakers of Redis have been open for two minutes.";
            let text = format!("{} of {} are open.", store.breakers_open, store.breakers);
            self.bad(title, text, "The page /store names the servers.");
        }
        let overloads = facts.totals.grown_in_a_minute(|sums| sums.metrics.store_overloads);
        if overloads > 0 {
            let text =
                format!("{} requests of the last minute were not sent to Redis.", with_commas(overloads));
            let fix = "Add servers, or raise the limits of hot keys.";
            self.warn("Redis has more to decide than it can.", text, fix);
        }
    }

    fn add_readiness(&mut self, facts: &Facts<'_>) {
        let service = &facts.now.service;
        if service.is_draining {
            let text = "It was told to stop, and answers until its calls are done.";
            self.warn("This process is draining.", text, "");
        }
        for reason in service.reasons.iter().filter(|reason| *reason != "draining") {
            self.bad(&format!("Not ready: {reason}."), "", "");
        }
    }

    fn add_rules(&mut self, facts: &Facts<'_>) {
        let rules = &facts.now.rules;
        if let Some(rejected) = &rules.rejected {
            let title = format!("Newer rules rejected at {}.", clock(rejected.at));
            let first = rejected.problems.first().cloned().unwrap_or_default();
            let fix = match rules.generation {
                0 => "There are no rules in force.".to_owned(),
                _ => format!("The rules of {} stay in force.", clock(rules.loaded_at)),
            };
            self.warn(&title, first, &fix);
        }
        if rules.generation > 0 && rules.domains == 0 {
            self.warn("The rules in force have no domain.", "Every request is admitted.", "");
        }
        if rules.xds_connected == Some(false) {
            let text = "The rules in force stay, but no change arrives.";
            self.warn("There is no stream to the xDS server.", text, "The page /rules has the reason.");
        }
        if facts.is_shadow_mode {
            let text = "Every request is admitted; the numbers show what would be denied.";
            self.warn("shadow_mode is on: nothing is denied.", text, "");
        }
    }

    fn add_requests(&mut self, facts: &Facts<'_>) {
        self.add_failures(&facts.totals.failures_of_a_minute());
        let is_slow = |second: &Second| second.p99_us.is_some_and(|us| us > SLOW_US);
        let last = || facts.totals.seconds().rev().take(SLOW_S);
        if last().len() == SLOW_S && last().all(is_slow) {
            let us = facts.totals.newest().p99_us.unwrap_or_default();
            let text = format!("One call of 100 takes {} ms or more.", us / 1_000);
            let title = "Decisions have been slow for five minutes.";
            self.warn(title, text, "Envoy gives up after 20 ms by default.");
        }
        let unknown = facts.totals.grown_in_a_minute(|sums| sums.metrics.unknown_domains);
        if unknown > 0 {
            let unknown = with_commas(unknown);
            let title = format!("{unknown} requests of the last minute name a domain without rules.");
            let names = facts.unknown_domains.join(", ");
            self.warn(&title, names, "A misspelt domain is admitted without a limit.");
        }
        if let Some(UnknownKey { domain, key, known, rate }) = &facts.unknown_key {
            let title = format!("{} requests/s meet no limit because of one key.", rate_text(*rate));
            let text = format!("{domain}: {key} is in no rule; the first level has: {}.", shortened(known));
            self.warn(&title, text, "A misspelt descriptor is admitted without a limit.");
        }
    }

    fn add_failures(&mut self, failures: &[(RequestFailure, u64)]) {
        let texts: Vec<_> = match failures {
            [] => return,
            [(reason, _)] => vec![format!("{}.", cause(*reason))],
            _ => failures.iter().map(|(reason, count)| format!("{} ({count}).", cause(*reason))).collect(),
        };
        let sum = failures.iter().map(|(_, count)| count).sum();
        let title = format!("{} requests of the last minute got no decision.", with_commas(sum));
        let (text, fix) = (texts.join(" "), "Envoy admits them unless failure_mode_deny is set.");
        if failures.iter().any(|(reason, _)| *reason == RequestFailure::Store) {
            self.bad(&title, text, fix)
        } else {
            self.warn(&title, text, fix)
        }
    }

    fn add_process(&mut self, facts: &Facts<'_>) {
        let mut grown = |sum: fn(&Sums) -> u64, title: &str, fix: &str| {
            let count = facts.totals.grown_in_a_minute(sum);
            if count > 0 {
                self.warn(title, format!("{} in the last minute.", with_commas(count)), fix);
            }
        };
        let fix = "Add instances, or raise LimitNOFILE.";
        grown(|sums| sums.metrics.refused_connections, "Connections are refused.", fix);
        let fix = "Their limits admit too much: raise store.memory.max_keys.";
        grown(|sums| sums.evictions, "Counters are evicted.", fix);
        let fix = "The disk is full, or the reader of the log is too slow.";
        grown(|sums| sums.metrics.lost_log_lines, "Log lines are lost.", fix);
        for certificate in &facts.now.service.certificates {
            let left = certificate.expires_at - facts.now.end.cast_signed();
            if left < WEEK_S {
                let days = left.max(0) / (24 * 3_600);
                let title = format!("The certificate of the port {} expires in {days} d.", certificate.port);
                self.warn(&title, "", "The page /tls has its file.");
            }
        }
    }
}

/// Why requests failed.
fn cause(reason: RequestFailure) -> &'static str {
    match reason {
        RequestFailure::Invalid => "They are not valid",
        RequestFailure::Store => "Redis did not answer",
        RequestFailure::Incomplete => "They did not arrive completely",
        RequestFailure::Overloaded => "This process had too many to decide",
        RequestFailure::Untaken => "The callers did not take the answer",
        RequestFailure::NoRules => "There were no rules yet",
        RequestFailure::Deadline => "The time that the caller gave was too short",
        RequestFailure::Panic => "This program has a defect",
    }
}

fn shortened(names: &[String]) -> String {
    let more = if names.len() > 8 { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(8)].join(", "))
}

/// With one decimal below 10, otherwise without.
pub fn rate_text(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { with_commas(rate.round() as u64) }
}

/// Time of day in UTC.
pub fn clock(seconds: u64) -> String {
    let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string();
    time.get(11..19).unwrap_or_default().to_owned()
}
