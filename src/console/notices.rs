//! What is wrong, in words: the worst first. Red where an alert of severity `page` fires and where the process is not
//! ready, amber where one of severity `ticket` does, plain for what is over.

use std::time::{Duration, UNIX_EPOCH};

use base::{readable_duration, with_commas};
use serde::{Deserialize, Serialize};

use super::marks::{Level, Marks};
use super::observation::Observation;
use super::shapes::UnknownKey;
use super::totals::{Second, Totals};
use crate::telemetry::metrics::RequestFailure;

/// More notices than this are not read.
const MOST_NOTICES: usize = 6;
/// An outage that ended longer ago is only a mark.
const OVER_FOR_S: u64 = 900;
/// A certificate that expires sooner is told.
const WEEK_S: i64 = 7 * 24 * 3_600;
/// The alert on open breakers waits for this time, the one on slow decisions for [`SLOW_S`].
const BREAKERS_OPEN_S: u64 = 120;
const SLOW_S: usize = 300;
const SLOW_US: u64 = 10_000;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Notice {
    pub(crate) level: Level,
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) fix: String,
}

/// What is compared with the state a minute before, and what lasts.
#[derive(Debug, Default)]
pub(super) struct Lasting {
    breakers_open_since: Option<u64>,
    /// The sums of each of the last 60 seconds.
    minute: std::collections::VecDeque<MinuteSums>,
}

#[derive(Clone, Copy, Debug, Default)]
struct MinuteSums {
    overloads: u64,
    refused_connections: u64,
    evictions: u64,
    lost_log_lines: u64,
    unknown_domains: u64,
}

impl Lasting {
    pub(super) fn add(&mut self, now: &Observation) {
        let is_open = now.store.breakers_open > 0;
        self.breakers_open_since = is_open.then(|| self.breakers_open_since.unwrap_or(now.end));
        if self.minute.len() > 60 {
            self.minute.pop_front();
        }
        self.minute.push_back(MinuteSums {
            overloads: now.metrics.store_overloads,
            refused_connections: now.metrics.refused_connections,
            evictions: now.store.evictions,
            lost_log_lines: now.metrics.lost_log_lines,
            unknown_domains: now.metrics.unknown_domains,
        });
    }

    /// Counters that were evicted from memory in the last minute.
    pub(super) fn evictions(&self) -> u64 {
        self.grown(|sums| sums.evictions)
    }

    /// How much a sum grew in the last minute.
    fn grown(&self, sum: impl Fn(&MinuteSums) -> u64) -> u64 {
        let (first, last) = (self.minute.front().map(&sum), self.minute.back().map(&sum));
        last.unwrap_or(0).saturating_sub(first.unwrap_or(0))
    }
}

/// What the notices are made of.
pub(super) struct Facts<'a> {
    pub(super) now: &'a Observation,
    pub(super) totals: &'a Totals,
    pub(super) marks: &'a Marks,
    pub(super) lasting: &'a Lasting,
    pub(super) unknown_key: Option<UnknownKey>,
    pub(super) unknown_domains: Vec<String>,
    pub(super) is_shadow_mode: bool,
}

/// At most [`MOST_NOTICES`], the worst first.
pub(super) fn notices(facts: &Facts<'_>) -> Vec<Notice> {
    let mut all = Vec::new();
    add_store(&mut all, facts);
    add_readiness(&mut all, facts);
    add_rules(&mut all, facts);
    add_requests(&mut all, facts);
    add_process(&mut all, facts);
    all.sort_by_key(|notice| notice.level);
    all.truncate(MOST_NOTICES);
    all
}

fn push(all: &mut Vec<Notice>, level: Level, title: &str, text: String, fix: &str) {
    let sign = match level {
        Level::Bad => "■ ",
        Level::Warn => "▲ ",
        Level::Plain => "",
    };
    all.push(Notice { level, title: format!("{sign}{title}"), text, fix: fix.to_owned() });
}

fn add_store(all: &mut Vec<Notice>, facts: &Facts<'_>) {
    let (now, store) = (facts.now, &facts.now.store);
    let by_policy = || {
        let policy = facts.totals.sum(60, |second| second.policy);
        format!(
            "{} requests of the last minute were admitted by their on_store_failure.",
            with_commas(policy)
        )
    };
    match &facts.marks.outage {
        Some((outage, None)) => {
            let lasted = readable_duration(Duration::from_secs(now.end.saturating_sub(outage.at)));
            let since = clock(outage.at);
            let title = format!("Redis does not answer since {since} ({lasted}): {}.", outage.error);
            push(all, Level::Bad, &title, by_policy(), "");
        }
        Some((outage, Some(ended))) if now.end.saturating_sub(*ended) < OVER_FOR_S => {
            let title = format!("Redis was away from {} to {}.", clock(outage.at), clock(*ended));
            push(
                all,
                Level::Plain,
                &title,
                format!("It was: {}.", outage.error),
                "Counters that Redis lost start unused.",
            );
        }
        _ => {}
    }
    let open_since = facts.lasting.breakers_open_since;
    let has_outage = matches!(facts.marks.outage, Some((_, None)));
    if open_since.is_some_and(|since| now.end - since >= BREAKERS_OPEN_S) && !has_outage {
        let text = format!("{} of {} are open.", store.breakers_open, store.breakers);
        push(
            all,
            Level::Bad,
            "Circuit breakers of Redis have been open for two minutes.",
            text,
            "The page /store names the servers.",
        );
    }
    let overloads = facts.lasting.grown(|sums| sums.overloads);
    if overloads > 0 {
        let text = format!("{} requests of the last minute were not sent to Redis.", with_commas(overloads));
        push(
            all,
            Level::Warn,
            "Redis has more to decide than it can.",
            text,
            "Add servers, or raise the limits of hot keys.",
        );
    }
}

fn add_readiness(all: &mut Vec<Notice>, facts: &Facts<'_>) {
    let service = &facts.now.service;
    if service.is_draining {
        let text = "It was told to stop, and answers until its calls are done.".to_owned();
        push(all, Level::Warn, "This process is draining.", text, "");
    }
    for reason in service.reasons.iter().filter(|reason| *reason != "draining") {
        push(all, Level::Bad, &format!("Not ready: {reason}."), String::new(), "");
    }
}

fn add_rules(all: &mut Vec<Notice>, facts: &Facts<'_>) {
    let rules = &facts.now.rules;
    if let Some(rejected) = &rules.rejected {
        let title = format!("Newer rules rejected at {}.", clock(rejected.at));
        let first = rejected.problems.first().cloned().unwrap_or_default();
        let fix = match rules.generation {
            0 => "There are no rules in force.".to_owned(),
            _ => format!("The rules of {} stay in force.", clock(rules.loaded_at)),
        };
        push(all, Level::Warn, &title, first, &fix);
    }
    if rules.generation > 0 && rules.domains == 0 {
        push(
            all,
            Level::Warn,
            "The rules in force have no domain.",
            "Every request is admitted.".to_owned(),
            "",
        );
    }
    if rules.xds_connected == Some(false) {
        let text = "The rules in force stay, but no change arrives.".to_owned();
        push(
            all,
            Level::Warn,
            "There is no stream to the xDS server.",
            text,
            "The page /rules has the reason.",
        );
    }
    if facts.is_shadow_mode {
        let text = "Every request is admitted; the numbers show what would be denied.".to_owned();
        push(all, Level::Warn, "shadow_mode is on: nothing is denied.", text, "");
    }
}

fn add_requests(all: &mut Vec<Notice>, facts: &Facts<'_>) {
    let failures = facts.totals.failures_of_a_minute();
    if !failures.is_empty() {
        let is_store = |(reason, _): &(RequestFailure, u64)| *reason == RequestFailure::Store;
        let level = if failures.iter().any(is_store) { Level::Bad } else { Level::Warn };
        let sum = failures.iter().map(|(_, count)| count).sum();
        let title = format!("{} requests of the last minute got no decision.", with_commas(sum));
        let causes: Vec<_> = match failures[..] {
            [(reason, _)] => vec![format!("{}.", cause(reason))],
            _ => failures.iter().map(|(reason, count)| format!("{} ({count}).", cause(*reason))).collect(),
        };
        let fix = "Envoy admits them unless failure_mode_deny is set.";
        push(all, level, &title, causes.join(" "), fix);
    }
    let is_slow = |second: &Second| second.p99_us.is_some_and(|us| us > SLOW_US);
    let last = || facts.totals.seconds().rev().take(SLOW_S);
    if last().len() == SLOW_S && last().all(is_slow) {
        let us = facts.totals.newest().p99_us.unwrap_or_default();
        let text = format!("One call of 100 takes {} ms or more.", us / 1_000);
        push(
            all,
            Level::Warn,
            "Decisions have been slow for five minutes.",
            text,
            "Envoy gives up after 20 ms by default.",
        );
    }
    let unknown = facts.lasting.grown(|sums| sums.unknown_domains);
    if unknown > 0 {
        let names = facts.unknown_domains.join(", ");
        let title =
            format!("{} requests of the last minute name a domain without rules.", with_commas(unknown));
        push(all, Level::Warn, &title, names, "A misspelt domain is admitted without a limit.");
    }
    if let Some(UnknownKey { domain, key, known, rate }) = &facts.unknown_key {
        let title = format!("{} requests/s meet no limit because of one key.", rate_text(*rate));
        let text = format!("{domain}: {key} is in no rule; the first level has: {}.", shortened(known));
        push(all, Level::Warn, &title, text, "A misspelt descriptor is admitted without a limit.");
    }
}

/// Why requests got no decision.
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

fn add_process(all: &mut Vec<Notice>, facts: &Facts<'_>) {
    let lasting = facts.lasting;
    let mut grown = |sum: fn(&MinuteSums) -> u64, title: &str, fix: &str| {
        let count = lasting.grown(sum);
        if count > 0 {
            push(all, Level::Warn, title, format!("{} in the last minute.", with_commas(count)), fix);
        }
    };
    grown(
        |sums| sums.refused_connections,
        "Connections are refused.",
        "Add instances, or raise LimitNOFILE.",
    );
    grown(
        |sums| sums.evictions,
        "Counters are evicted.",
        "Their limits admit too much: raise store.memory.max_keys.",
    );
    grown(
        |sums| sums.lost_log_lines,
        "Log lines are lost.",
        "The disk is full, or the reader of the log is too slow.",
    );
    for certificate in &facts.now.service.certificates {
        let left = certificate.expires_at - facts.now.end.cast_signed();
        if left < WEEK_S {
            let days = left.max(0) / (24 * 3_600);
            let title = format!("The certificate of the port {} expires in {days} d.", certificate.port);
            push(all, Level::Warn, &title, String::new(), "The page /tls has its file.");
        }
    }
}

fn shortened(names: &[String]) -> String {
    let more = if names.len() > 8 { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(8)].join(", "))
}

/// A rate with one decimal if it is below 10, else without.
pub(crate) fn rate_text(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { with_commas(rate.round() as u64) }
}

/// The time of day in UTC.
pub(crate) fn clock(seconds: u64) -> String {
    let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string();
    time.get(11..19).unwrap_or_default().to_owned()
}
