//! Known answers: on memory here, on Redis in `redis::calendar`.

use std::time::{Duration, UNIX_EPOCH};

use ::base::clock::SystemClock;
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{Charges, Decision, Enforcement, Outcomes, Plan, Request, Verdict};

use crate::rules::{request, rules};
use crate::settle::hits;

const RULES: &str = "
domain: d
descriptors:
  - { key: day, rate_limit: { unit: day, requests_per_unit: 100, algorithm: fixed_window, calendar: Europe/Berlin } }
  - key: month
    rate_limit: { unit: month, requests_per_unit: 100, algorithm: fixed_window, calendar: UTC, starts: 31 }
";

const HOUR_US: u64 = 3_600_000_000;

/// The key of the rule, the store's time, the hits, and the answer: the units that remain and the seconds until the
/// window ends, or the seconds to wait. The clock of the process is that of the store, or behind by the last number of
/// hours.
const TABLE: [(&str, &str, u64, &str, u64); 16] = [
    ("day", "2027-03-27T22:59:59Z", 60, "OK 40/1", 0),
    ("day", "2027-03-27T23:00:00Z", 60, "OK 40/82800", 0), // a day of 23 hours
    ("day", "2027-03-28T21:59:59Z", 41, "OVER 40 retry 1", 0),
    ("day", "2027-03-28T22:00:00Z", 41, "OK 59/86400", 0),
    ("day", "2027-10-30T22:00:00Z", 100, "OK 0/90000", 0), // a day of 25 hours
    ("day", "2027-10-31T22:30:00Z", 1, "OVER 0 retry 1800", 0),
    ("day", "2027-10-31T23:00:00Z", 1, "OK 99/86400", 0),
    ("month", "2027-02-27T23:59:59Z", 100, "OK 0/1", 0),
    ("month", "2027-02-28T00:00:00Z", 1, "OK 99/2678400", 0),
    ("month", "2027-02-27T23:59:59Z", 1, "OK 98/2678401", 0), // clock back: stays in the later window
    ("month", "2027-03-31T00:00:00Z", 1, "OK 99/2592000", 6), // the process is in the window before
    // A clock that differs by nearly half a day, on both sides of a boundary.
    ("day", "2027-12-01T22:59:59Z", 1, "OK 99/1", 11),
    ("day", "2027-12-01T23:00:00Z", 1, "OK 99/86400", 11),
    ("day", "2027-12-02T10:00:00Z", 1, "OK 98/46800", 11),
    ("day", "2027-12-02T22:59:59Z", 1, "OK 97/1", 11),
    ("day", "2027-12-02T23:00:00Z", 1, "OK 99/86400", 11),
];

fn summary(decision: &Decision) -> String {
    let outcome = decision.limit_results().next().expect("a limit").outcome;
    let (remaining, seconds) = (outcome.report.remaining, |us: u64| us / 1_000_000);
    match outcome.verdict {
        Verdict::Fits => format!("OK {remaining}/{}", seconds(outcome.report.until_reset_us)),
        Verdict::Over => {
            format!("OVER {remaining} retry {}", seconds(outcome.report.retry_after.us().expect("a wait")))
        }
    }
}

/// Plays the table. `value` is the value of the descriptors' entries; `decide` decides charges at the store's time.
pub(crate) fn check_known_answers(value: &str, mut decide: impl FnMut(&Charges, u64) -> Outcomes) {
    let rules = rules(RULES);
    for (row, (key, at, units, expected, hours_behind)) in TABLE.into_iter().enumerate() {
        let at = humantime::parse_rfc3339(at).expect("a time").duration_since(UNIX_EPOCH);
        let now_us = u64::try_from(at.unwrap_or(Duration::ZERO).as_micros()).expect("a time of this century");
        let descriptors = vec![hits(&format!("{key}={value}"), units)];
        let request = Request { descriptors, ..request("d", &[]) };
        let plan = Plan::new(&rules, &request, now_us - hours_behind * HOUR_US).expect("a plan");
        let outcomes = decide(&plan.charges, now_us);
        let decision = Decision::merge(plan, outcomes, Enforcement::Enforce);
        assert_eq!(summary(&decision), expected, "row {}", row + 1);
    }
}

#[test]
fn the_memory_store_gives_the_known_answers() {
    let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
    check_known_answers("acme", |charges, now_us| store.decide_at(charges, now_us));
}
