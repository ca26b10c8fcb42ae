//! Says what is wrong, worst first: red if an alert of severity `page` fires or the process is not ready, amber for one
//! of severity `ticket`, plain for what is over.

use std::time::Duration;

use base::{readable_duration, with_commas};
use rules::utc_text;

use super::marks::Marks;
use super::observation::{Certificate, Observation};
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
/// If live exceptions were read longer ago, the console shows a notice.
const OLD_ROWS_S: u64 = 10;
/// This many bans in five minutes cause a notice.
const MANY_BANS: u64 = 100;

pub(super) struct Facts<'a> {
    pub(super) now: &'a Observation,
    pub(super) totals: &'a Totals,
    pub(super) marks: &'a Marks,
    pub(super) unknown_key: Option<UnknownKey>,
    pub(super) unknown_domains: Vec<String>,
    pub(super) is_shadow_mode: bool,
    /// When the process started, seconds since the epoch.
    pub(super) started_at: u64,
    /// By this process in the last five minutes.
    pub(super) bans: u64,
}

/// At most [`MOST_NOTICES`], worst first.
pub(super) fn notices(facts: &Facts<'_>) -> Vec<Notice> {
    let mut all = Notices::default();
    all.add_store(facts);
    all.add_readiness(facts);
    all.add_rules(facts);
    all.add_live_rows(facts);
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
                let title = format!("Redis has not answered since {since} ({lasted}): {}.", outage.error);
                let admitted = with_commas(facts.totals.sum(60, |second| second.policy));
                let text = format!("on_store_failure admitted {admitted} requests in the last minute.");
                self.bad(&title, text, "");
            }
            Some((outage, Some(ended))) if end.saturating_sub(*ended) < OVER_FOR_S => {
                let title = format!("Redis was unavailable from {} to {}.", clock(outage.at), clock(*ended));
                let text = format!("{}. Counters that Redis lost restarted at zero.", outage.error);
                self.push(Level::Plain, title, text, "");
            }
            _ => {}
        }
        let has_outage = matches!(facts.marks.outage, Some((_, None)));
        if facts.marks.breakers_open_s > BREAKERS_OPEN_S && !has_outage {
            let (open, all) = (store.breakers_open, store.breakers);
            let title = format!("{open} of {all} circuit breakers of Redis open, for two minutes or more.");
            let text = "Calls to these servers are answered by on_store_failure.";
            self.bad(&title, text, "See the servers on /store.");
        }
        let overloads = facts.totals.grown_in_a_minute(|sums| sums.metrics.store_overloads);
        if overloads > 0 {
            let title = format!(
                "Redis is overloaded: {} requests not sent in the last minute.",
                with_commas(overloads)
            );
            let fix = "Add servers, or raise the limits of hot keys.";
            self.warn(&title, "on_store_failure answered them.", fix);
        }
    }

    fn add_readiness(&mut self, facts: &Facts<'_>) {
        let service = &facts.now.service;
        if service.is_draining {
            let text = "Shutting down: finishing calls in flight.";
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
            let first = rejected.problems.first().map_or("", String::as_str);
            let text = match rules.generation {
                0 => format!("{first}. No rules are active."),
                _ => format!("{first}. The rules of {} stay active.", clock(rules.loaded_at)),
            };
            self.warn(&title, text, "Correct the rules.");
        }
        if rules.generation > 0 && rules.domains == 0 {
            self.warn("The active rules have no domain.", "Every request is admitted.", "Add a domain.");
        }
        if rules.xds_connected == Some(false) {
            let text = "The active rules stay, but changes do not arrive.";
            self.warn("The xDS server is disconnected.", text, "See the reason on /rules.");
        }
        if facts.is_shadow_mode {
            let text = "Every request is admitted; the numbers show what would be denied.";
            self.warn("shadow_mode is on: nothing is denied.", text, "");
        }
    }

    fn add_live_rows(&mut self, facts: &Facts<'_>) {
        let Some(live) = &facts.now.live else { return };
        let since_start = facts.now.end.saturating_sub(facts.started_at);
        let old_s = live.age_s.map_or(since_start, |age_s| age_s as u64);
        if live.source == "redis" && old_s > OLD_ROWS_S {
            let title = match live.age_s {
                Some(_) => format!("The exceptions in Redis were last read {old_s} s ago."),
                None => "The exceptions in Redis are not known yet.".to_owned(),
            };
            let text = "Active rows stay, and end on time. Changes by other instances do not arrive.";
            self.warn(&title, text, "");
        }
        if facts.bans >= MANY_BANS {
            let title = format!("{} values banned in 5 minutes.", with_commas(facts.bans));
            self.warn(&title, "A limit that bans many: is it too low?", "See ratelimitd_bans_total.");
        }
    }

    fn add_requests(&mut self, facts: &Facts<'_>) {
        self.add_failures(&facts.totals.failures_of_a_minute());
        let is_slow = |second: &Second| second.p99_us.is_some_and(|us| us > SLOW_US);
        let last = || facts.totals.seconds().rev().take(SLOW_S);
        if last().len() == SLOW_S && last().all(is_slow) {
            let us = facts.totals.newest().p99_us.unwrap_or_default();
            let title = format!("p99 latency is {} ms, and has been high for five minutes.", us / 1_000);
            self.warn(&title, "Envoy gives up after 20 ms by default.", "");
        }
        let unknown = facts.totals.grown_in_a_minute(|sums| sums.metrics.unknown_domains);
        if unknown > 0 {
            let unknown = with_commas(unknown);
            let title = format!("{unknown} requests named a domain without rules in the last minute.");
            // Requests are sampled, so perhaps none of them left its name.
            let names = facts.unknown_domains.join(", ");
            let colon = if names.is_empty() { "" } else { ": " };
            let text = format!("Admitted without a limit{colon}{names}.");
            self.warn(&title, text, "Check the spelling of the domain.");
        }
        if let Some(UnknownKey { domain, key, known, rate }) = &facts.unknown_key {
            let title = format!("{} requests/s match no limit because of one key.", rate_text(*rate));
            let text = format!("{domain}: no rule has {key}; the first level has: {}.", shortened(known));
            self.warn(&title, text, "Check the spelling of the key.");
        }
    }

    fn add_failures(&mut self, failures: &[(RequestFailure, u64)]) {
        let texts: Vec<_> = match failures {
            [] => return,
            [(reason, _)] => vec![format!("{}.", cause(*reason))],
            _ => failures.iter().map(|(reason, count)| format!("{} ({count}).", cause(*reason))).collect(),
        };
        let sum = failures.iter().map(|(_, count)| count).sum();
        let title = format!("{} requests got no decision in the last minute.", with_commas(sum));
        let text = texts.join(" ") + " Envoy admits them unless failure_mode_deny is set.";
        if failures.iter().any(|(reason, _)| *reason == RequestFailure::Store) {
            self.bad(&title, text, "")
        } else {
            self.warn(&title, text, "")
        }
    }

    fn add_process(&mut self, facts: &Facts<'_>) {
        let mut grown = |sum: fn(&Sums) -> u64, event: &str, effect: &str, fix: &str| {
            let count = facts.totals.grown_in_a_minute(sum);
            if count > 0 {
                self.warn(&format!("{} {event} in the last minute.", with_commas(count)), effect, fix);
            }
        };
        let fix = "Add instances, or raise LimitNOFILE.";
        grown(|sums| sums.metrics.refused_connections, "connections refused", "", fix);
        let fix = "Raise store.memory.max_keys.";
        grown(|sums| sums.evictions, "counters evicted", "Their limits admit too much.", fix);
        let fix = "Free disk space, or speed up the reader of the log.";
        grown(|sums| sums.metrics.lost_log_lines, "log lines lost", "", fix);
        for certificate in &facts.now.service.certificates {
            let Certificate { port, expires_at } = certificate;
            let left = expires_at - facts.now.end.cast_signed();
            let fix = "Renew it; /tls names its file.";
            if left <= 0 {
                self.bad(&format!("The certificate of port {port} has expired."), "", fix);
            } else if left < WEEK_S {
                let days = left / (24 * 3_600);
                self.warn(&format!("The certificate of port {port} expires in {days} d."), "", fix);
            }
        }
    }
}

/// Why requests failed.
fn cause(reason: RequestFailure) -> &'static str {
    match reason {
        RequestFailure::Invalid => "Invalid requests",
        RequestFailure::Store => "Redis did not answer",
        RequestFailure::Incomplete => "Incomplete requests",
        RequestFailure::Overloaded => "Too many unfinished requests",
        RequestFailure::Unauthenticated => "Callers have no token, or a wrong one",
        RequestFailure::Forbidden => "Callers lack a right",
        RequestFailure::Untaken => "Callers did not read the answer",
        RequestFailure::NoRules => "No rules were loaded",
        RequestFailure::Deadline => "Deadline exceeded",
        RequestFailure::Panic => "Internal error",
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
    utc_text(seconds.saturating_mul(1_000_000)).get(11..19).unwrap_or_default().to_owned()
}
