//! What happens in a scene. Times are parts of the story: 0 is its beginning, 1 the moment at which a browser opens it.

use std::f64::consts::TAU;

use fastrand::Rng;
use ratelimitd::console::{LastOutage, RejectedRules, RulesObserved, ServiceObserved, StoreObserved};
use ratelimitd::telemetry::metrics::{DurationBuckets, MetricsSample, RequestFailure, RequestResult};

/// The end of every story: 2026-11-21 14:09:31 UTC.
pub(super) const T_END: u64 = 1_795_270_171;

const RELOADED: f64 = 0.25;
const AWAY: f64 = 0.395;
const BACK: f64 = 0.41;
const REJECTED: f64 = 0.54;
const ATTACK: f64 = 0.66;
/// From now on a row blocks [`BLOCKED_ADDRESS`].
const BLOCKED: f64 = 0.9;
/// In the story of an outage: Redis has gone away for the second time.
const AWAY_AGAIN: f64 = 0.93;

/// Rules of the story with many rules, and those of them that deny.
const MANY: usize = 5_000;
const DENYING: usize = 1_600;

/// The upper bounds of the buckets of calls, in seconds.
const BOUNDS: [f64; 8] = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025];

pub(super) const BLOCKED_ADDRESS: &str = "203.0.113.9";

type Asked = (String, Vec<(String, String)>);

/// A story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// One tenant sends too much; before that Redis was away and newer rules were rejected.
    Incident,
    /// As the incident, and Redis is away at the end.
    Outage,
    /// 5,000 rules, of which 1,600 deny.
    ManyRules,
}

/// Sums that the limiter has no part in.
#[derive(Debug, Default)]
pub(super) struct Added {
    by_policy: u64,
    no_decision: u64,
    calls: [u64; BOUNDS.len()],
    store_calls: [u64; BOUNDS.len()],
}

impl Story {
    pub(super) fn rules(self) -> String {
        let mut rules = include_str!("edge.yaml").to_owned();
        if self == Self::ManyRules {
            for tenant in 0..MANY - 14 {
                let path = tenant % 17;
                rules += &format!(
                    "  - {{ key: tenant_api, value: t{tenant}/{path}, rate_limit: {{ unit: hour, \
                     requests_per_unit: 2, algorithm: gcra }} }}\n"
                );
            }
        }
        rules
    }

    pub(super) fn is_away(self, now: f64) -> bool {
        match self {
            Self::Outage if now >= AWAY_AGAIN => true,
            _ => (AWAY..BACK).contains(&now),
        }
    }

    /// Whether a row of the exceptions is in force.
    pub(super) fn has_row(now: f64) -> bool {
        now >= BLOCKED
    }

    /// The requests of a second.
    pub(super) fn requests(self, now: f64, random: &mut Rng) -> Vec<Asked> {
        if self.is_away(now) {
            return Vec::new();
        }
        let wave = 1.0 + 0.07 * (now * 3.0 * TAU).sin() + 0.04 * (random.f64() - 0.5);
        let mut requests = Vec::new();
        let mut add =
            |domain: &str, count: f64, entries: &dyn Fn(&mut Rng) -> Vec<(&'static str, String)>| {
                let whole = count.floor() + f64::from(u8::from(random.f64() < count.fract()));
                for _ in 0..whole as usize {
                    let entries = entries(random).into_iter().map(|(key, value)| (key.to_owned(), value));
                    requests.push((domain.to_owned(), entries.collect()));
                }
            };
        let tenant = |random: &mut Rng| TENANTS[random.usize(..TENANTS.len())].to_owned();
        add("edge", 160.0 * wave, &|random| vec![("tenant", tenant(random)), ("path", "/search".to_owned())]);
        add("edge", 90.0 * wave, &|random| vec![("tenant", tenant(random)), ("path", "/upload".to_owned())]);
        add("edge", 110.0 * wave, &|random| vec![("remote_address", address(random, 250))]);
        add("edge", 18.0 * wave, &|_| vec![("partner", "northwind".to_owned())]);
        add("edge", 16.0, &|_| vec![("generic_key", "status".to_owned())]);
        add("accounts", 3.0, &|random| vec![("login", format!("user{}@example.org", random.u16(..60_000)))]);
        if now >= ATTACK {
            let force = ((now - ATTACK) * 40.0).min(1.0);
            add("edge", 70.0 * force * wave, &|_| {
                vec![("tenant", "acme-corp".to_owned()), ("path", "/search".to_owned())]
            });
            add("edge", 2.0 * force, &|_| vec![("api_key", "sk-4fa0-the-secret".to_owned())]);
        }
        add("edge", 5.0, &|_| vec![("remote_address", BLOCKED_ADDRESS.to_owned())]);
        add("edge", 2.0, &|random| vec![("remote_address", address(random, 6))]);
        add("edge", 3.0, &|_| vec![("tenant_id", "acme-corp".to_owned())]);
        add("egde", 0.3, &|_| vec![("tenant", "acme-corp".to_owned())]);
        add("accounts", 0.4, &|random| vec![("login", format!("mallory{}@example.net", random.u8(..3)))]);
        if now >= RELOADED {
            add("edge", 1.5, &|random| vec![("trial", tenant(random))]);
        }
        if self == Self::ManyRules {
            add("edge", 45.0, &|random| {
                let number = random.usize(..MANY);
                // Every third rule denies: its requests come three at a time.
                vec![("tenant_api", format!("t{0}/{1}", number, number % 17))]
            });
            let number = random.usize(..DENYING) * 3;
            for _ in 0..6 {
                let value = format!("t{number}/{}", number % 17);
                requests.push(("edge".to_owned(), vec![("tenant_api".to_owned(), value)]));
            }
        }
        requests
    }

    pub(super) fn rules_observed(self, now: f64, seconds: u64) -> RulesObserved {
        let time = |part: f64| T_END - seconds + (part * seconds as f64) as u64;
        let is_reloaded = now >= RELOADED;
        let problem = "rules/edge.yaml:41: requests_per_unit must be a whole number, not \"6OO\"";
        let rejected = (now >= REJECTED)
            .then(|| RejectedRules { at: time(REJECTED), problems: vec![problem.to_owned()] });
        RulesObserved {
            generation: if is_reloaded { 17 } else { 16 },
            loaded_at: if is_reloaded { time(RELOADED) } else { T_END - 86_400 },
            files: 2,
            domains: 2,
            rejected,
            ..RulesObserved::default()
        }
    }

    pub(super) fn store_observed(self, now: f64, seconds: u64, end: u64) -> StoreObserved {
        let time = |part: f64| T_END - seconds + (part * seconds as f64) as u64;
        let is_away = self.is_away(now);
        let began = if self == Self::Outage && now >= AWAY_AGAIN { AWAY_AGAIN } else { AWAY };
        let outage = (now >= AWAY).then(|| LastOutage {
            at: time(began),
            error: "cannot be reached".to_owned(),
            is_over: !is_away,
        });
        let since_attack = end.saturating_sub(time(ATTACK));
        StoreObserved {
            kind: "redis",
            answers: !is_away,
            breakers: 8,
            breakers_open: if is_away { 8 } else { 0 },
            deny_hits: since_attack * 61,
            deny_keys: 14,
            server: Some("Redis 7.0.15, standalone".to_owned()),
            last_outage: outage,
            ..StoreObserved::default()
        }
    }

    pub(super) fn service_observed(self) -> ServiceObserved {
        ServiceObserved::default()
    }
}

impl Added {
    /// Adds what a second has of these, and puts the sums into the sample.
    pub(super) fn add_second(
        &mut self,
        story: Story,
        now: f64,
        metrics: &mut MetricsSample,
        random: &mut Rng,
    ) {
        let is_away = story.is_away(now);
        if is_away {
            self.by_policy += random.u64(370..410);
            self.no_decision += random.u64(8..14);
        }
        let slow = if is_away { 0.9 } else { 0.012 + 0.006 * random.f64() };
        count(&mut self.calls, [0.08, 0.47, 0.3, 0.09], slow, random);
        count(&mut self.store_calls, [0.02, 0.33, 0.5, 0.11], slow / 3.0, random);
        metrics.results[RequestResult::OkByPolicy as usize] += self.by_policy;
        metrics.results[RequestResult::NoDecision as usize] += self.no_decision;
        metrics.failures[RequestFailure::Store as usize] += self.no_decision;
        metrics.calls = buckets(&self.calls);
        metrics.store_calls = buckets(&self.store_calls);
        (metrics.batches, metrics.batched_requests) = (self.calls[1], self.calls[1] * 9);
        metrics.queued = if is_away { 0 } else { random.u64(0..5) };
    }
}

/// Adds 400 calls to buckets: the shares of the first ones, and the share of slow calls.
fn count(sums: &mut [u64; BOUNDS.len()], shares: [f64; 4], slow: f64, random: &mut Rng) {
    let fast = shares.iter().map(|share| share * (1.0 - slow));
    let all = fast.chain([0.04 * (1.0 - slow), slow * 0.7, slow * 0.2, slow * 0.1]);
    for (sum, share) in sums.iter_mut().zip(all) {
        *sum += (400.0 * share * (0.9 + 0.2 * random.f64())) as u64;
    }
}

fn buckets(sums: &[u64; BOUNDS.len()]) -> DurationBuckets {
    let mut calls = 0;
    let up_to = BOUNDS.iter().zip(sums).map(|(bound, sum)| {
        calls += sum;
        (*bound, calls)
    });
    let up_to = up_to.collect();
    DurationBuckets { calls, up_to }
}

const TENANTS: [&str; 8] =
    ["globex-inc", "initech", "umbrella", "acme-corp", "wayne-ent", "stark-ind", "tyrell", "cyberdyne"];

fn address(random: &mut Rng, of: u8) -> String {
    format!("198.51.100.{}", random.u8(..of))
}
