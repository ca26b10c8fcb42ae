//! The usage ledger with Redis: the known answers, and the sums of two processes against the counters.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use ::base::clock::{Clock as _, SystemClock};
use engine::{Booking, Cost, Plan};
use fastrand::Rng;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::settle::Timed;
use crate::ledger::service::{metric, plan, stop};
use crate::ledger::{check_known_answers, lines};
use crate::rules;
use crate::support::process::Ratelimitd;
use crate::support::redis::Redis;
use crate::support::wait;

#[test]
fn redis_gives_the_known_answers() {
    let (redis, runtime) = (Redis::start(), Runtime::new().expect("a runtime"));
    let mut server = Timed::connect(&runtime, &redis.url());
    check_known_answers(|charges, now_us| server.decide(charges, now_us));
}

/// Calendar years, so that the time of the test is in one window.
const RULES: &str = "
domain: d
descriptors:
  - key: prepaid
    rate_limit: { unit: year, requests_per_unit: 40, algorithm: fixed_window, calendar: UTC, ledger: true, on_store_failure: allow }
  - key: postpaid
    rate_limit: { unit: year, requests_per_unit: 60, algorithm: fixed_window, calendar: UTC, charging: postpaid, ledger: true, on_store_failure: local }
  - key: soft
    rate_limit: { unit: year, requests_per_unit: 50, algorithm: fixed_window, calendar: UTC, on_over: announce, ledger: true }
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 50, algorithm: fixed_window, calendar: UTC, ledger: true }
  - key: settled
    rate_limit: { unit: year, requests_per_unit: 400, algorithm: fixed_window, calendar: UTC, settle: true, ledger: true, on_store_failure: allow }
  - key: reserved
    rate_limit: { unit: year, requests_per_unit: 400, algorithm: fixed_window, calendar: UTC, reserve: 3, ledger: true, on_store_failure: allow }
";
const KINDS: [&str; 6] = ["prepaid", "postpaid", "soft", "shadow", "settled", "reserved"];
const VALUES: u64 = 12;

/// A client of two processes, and the receipts that it has not returned.
struct Caller<'s> {
    services: &'s [Ratelimitd],
    client: Client,
    random: Rng,
    receipts: Vec<(String, String)>,
    denied: u64,
}

impl Caller<'_> {
    /// Sends a request to one of the processes.
    async fn send(&mut self, descriptors: Value) -> Value {
        let service = &self.services[self.random.usize(..self.services.len())];
        let url = format!("http://127.0.0.1:{}/json", service.http_port());
        let body = json!({"domain": "d", "descriptors": descriptors});
        let answer = self.client.post(url).body(body.to_string()).send().await.expect("an answer");
        let answer: Value = serde_json::from_str(&answer.text().await.expect("a body")).unwrap_or_default();
        self.denied += u64::from(answer["overallCode"] == "OVER_LIMIT");
        answer
    }

    /// Sends what a caller may send: a request of one or two limits, a refund of what was just taken, a receipt.
    async fn step(&mut self) {
        let kind = KINDS[self.random.usize(..KINDS.len())];
        let value = self.random.u64(..VALUES).to_string();
        let units = self.random.u64(1..5);
        let entry = |kind: &str| json!({"key": kind, "value": value});
        let hits = |kind: &str, units: u64| json!({"entries": [entry(kind)], "hitsAddend": units});
        match kind {
            "settled" => {
                let answer = self.send(json!([hits(kind, units)])).await;
                if let Some(receipt) = answer["dynamicMetadata"]["receipt"].as_str() {
                    self.receipts.push((value.clone(), receipt.to_owned()));
                }
                if !self.receipts.is_empty() && self.random.u32(..10) < 9 {
                    let (value, receipt) =
                        self.receipts.swap_remove(self.random.usize(..self.receipts.len()));
                    let receipt = json!({"key": "ratelimitd_receipt", "value": receipt});
                    let settle = json!({"entries": [{"key": kind, "value": value}, receipt], "hitsAddend": self.random.u64(..8)});
                    self.send(json!([settle])).await;
                }
            }
            "reserved" => {
                let check = self.send(json!([hits(kind, 0)])).await;
                if check["overallCode"] == "OK" {
                    self.send(json!([hits(kind, units)])).await;
                }
            }
            "prepaid" if self.random.u32(..4) == 0 => {
                let taken = self.send(json!([hits(kind, units)])).await;
                if taken["overallCode"] == "OK" {
                    let refund = json!({"entries": [entry(kind)], "hitsAddend": self.random.u64(1..=units), "isNegativeHits": true});
                    self.send(json!([refund])).await;
                }
            }
            _ => {
                let other = KINDS[self.random.usize(..4)];
                self.send(json!([hits(kind, units), hits(other, 1)])).await;
            }
        }
    }
}

fn start_two(redis: &Redis, directory: &Path) -> Vec<Ratelimitd> {
    let start = |_| plan(RULES, directory).redis(&redis.url()).set("store.redis.key_prefix", "it:").start();
    (0..2).map(start).collect()
}

/// The sums of each key in the lines of all processes.
fn booked(directory: &Path) -> BTreeMap<String, Booking> {
    let mut sums = BTreeMap::<String, Booking>::new();
    for line in lines(directory).iter().filter(|line| line.at > 0) {
        *sums.entry(line.entries.join(",")).or_default() += line.sums();
    }
    sums
}

/// Reads the counters of these keys.
fn counters(redis: &Redis, keys: impl Iterator<Item = String>) -> HashMap<String, u64> {
    let (runtime, rules) = (Runtime::new().expect("a runtime"), rules::rules(RULES));
    let mut server = Timed::connect(&runtime, &redis.url());
    let counter = |key: String| {
        let now_us = SystemClock.now_us();
        let mut plan = Plan::new(&rules, &rules::request("d", &[&key]), now_us).expect("a plan");
        plan.charges.values_mut().for_each(|charge| charge.cost = Cost::refund(0));
        let outcome = server.decide(&plan.charges, now_us).by_charge[0];
        let capacity = plan.charges.charge(0).kernel.max_cost();
        (key, capacity - outcome.report.remaining + outcome.report.over_by)
    };
    keys.map(counter).collect()
}

/// Two processes, one Redis: what their lines say is what the counters say.
#[test]
fn the_sums_of_two_processes_are_what_the_counters_say() {
    let (redis, directory) = (Redis::start(), tempfile::tempdir().expect("a directory"));
    let services = start_two(&redis, directory.path());
    let runtime = Runtime::new().expect("a runtime");
    let denied = runtime.block_on(async {
        let (client, random) = (Client::new(), Rng::with_seed(42));
        let mut caller = Caller { services: &services, client, random, receipts: Vec::new(), denied: 0 };
        for _ in 0..3_000 {
            caller.step().await;
        }
        caller.denied
    });
    assert!(denied > 300, "{denied}");
    services.into_iter().for_each(stop);
    let booked = booked(directory.path());
    assert_eq!(booked.len() as u64, KINDS.len() as u64 * VALUES);
    let counters = counters(&redis, booked.keys().cloned());
    for (key, sums) in booked {
        assert_eq!(
            (sums.units - sums.back, sums.unknown + sums.policy),
            (counters[&key], 0),
            "{key}: {sums:?}"
        );
    }
}

/// While Redis hangs, the counters are between the sums without and with what nobody knows.
#[test]
fn the_counters_are_between_the_sums_after_an_outage() {
    let (redis, directory) = (Redis::start(), tempfile::tempdir().expect("a directory"));
    let services = start_two(&redis, directory.path());
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (client, random) = (Client::new(), Rng::with_seed(7));
        let mut caller = Caller { services: &services, client, random, receipts: Vec::new(), denied: 0 };
        for number in 0..600 {
            match number {
                200 => redis.signal("STOP"),
                400 => redis.signal("CONT"),
                _ => {}
            }
            caller.step().await;
        }
    });
    wait::expect("both decide again", || {
        services.iter().all(|service| metric(service, "ratelimitd_ready") == 1)
    });
    services.into_iter().for_each(stop);
    let booked = booked(directory.path());
    let counters = counters(&redis, booked.keys().cloned());
    let unknown: u64 = booked.values().map(|sums| sums.policy + sums.unknown).sum();
    assert!(unknown > 100, "{unknown}");
    for (key, sums) in booked {
        let Booking { units, back, policy, unknown, .. } = sums;
        let counter = counters[&key];
        let range = (units - back).saturating_sub(unknown)..=units - back + policy + unknown;
        assert!(range.contains(&counter), "{key}: {counter}, {sums:?}");
    }
}
