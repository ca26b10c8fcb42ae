//! More calls than Redis can decide: how many are decided in time, at multiples of its saturation.
//!
//! Redis is the limit, not the cores: it has one to itself, and each call meets [`LIMITS`] limits, which cost Redis
//! several times the CPU that they cost the service. The table shows the CPU of both: a saturated Redis uses one core.

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::load::{self, Load, Pace, Protocol, Tally};
use crate::placement;
use crate::processes::Redis;
use crate::scenario::message;
use crate::servers::{Program, Served};
use crate::usage::Usage;

/// The limits that each call meets.
const LIMITS: u32 = 40;
/// Calls of a closed loop: some always wait for Redis, and none waits as long as the timeout of the store.
const SATURATING: usize = 40;
const CONNECTIONS: usize = 8;
const KEYS: usize = 1_000;
/// The offered load, in tenths of what saturates Redis.
const TENTHS: [u64; 6] = [5, 10, 15, 20, 30, 40];
/// A burst is the load of this time, all at once.
const BURSTS_EVERY: Duration = Duration::from_millis(20);
/// Envoy's default timeout: a later answer is lost.
const IN_TIME: Duration = Duration::from_millis(20);
/// What must be decided at twice the saturation and above, in percent of the best row.
const LEAST_PERCENT: u64 = 90;

#[derive(Clone, Copy, Debug)]
enum Pattern {
    Steady,
    Bursts,
}

impl Pattern {
    fn pace(self, per_second: u64) -> Pace {
        match self {
            Self::Steady => Pace::Open { per_second },
            Self::Bursts => {
                let calls = per_second * micros(BURSTS_EVERY) / 1_000_000;
                Pace::Bursts { calls, every: BURSTS_EVERY }
            }
        }
    }
}

/// A row of the table.
struct Row {
    pattern: Pattern,
    tenths: u64,
    duration: Duration,
    tally: Tally,
    service: Duration,
    redis: Duration,
}

impl Row {
    fn in_time(&self) -> u64 {
        self.tally.latency.count_between(1, micros(IN_TIME))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pattern, tenths, duration, tally, .. } = self;
        let rate = |count| per_second(count, *duration);
        let ms = |us: u64| us as f64 / 1e3;
        let decided = |q| ms(tally.latency.value_at_quantile(q));
        let failed = ms(tally.failure_latency.value_at_quantile(0.99));
        let percent = |cpu: Duration| micros(cpu) * 100 / micros(tally.elapsed);
        let offered = rate(tally.answered + tally.failed);
        let late = rate(tally.answered - self.in_time());
        let name = format!("{pattern:?}").to_lowercase();
        write!(f, "| {name} | {}.{} | {offered} ", tenths / 10, tenths % 10)?;
        write!(f, "| {} | {late} | {} ", rate(self.in_time()), rate(tally.failed))?;
        write!(f, "| {:.1} | {:.1} | {failed:.1} ", decided(0.5), decided(0.99))?;
        write!(f, "| {} | {} |", percent(self.redis), percent(self.service))
    }
}

/// The processes, and what they are asked.
struct Bench {
    redis: Redis,
    service: Served,
    messages: Arc<Vec<Bytes>>,
}

impl Bench {
    fn start(program: Program<'_>) -> Self {
        let limit = |n| {
            format!(
                "      - {{ name: l{n}, unit: second, requests_per_unit: {}, algorithm: sliding_log }}\n",
                1_000 + n
            )
        };
        let limits: String = (0..LIMITS).map(limit).collect();
        let rules = format!(
            "domain: bench\ndescriptors:\n  - key: user0\n    descriptors:\n    - key: path\n      rate_limits:\n{limits}"
        );
        placement::leave_first_core().expect("two cores");
        let redis = Redis::start();
        placement::give_first_core(&redis.process).expect("the right to place a process");
        let service = program.serve(&rules, Some(redis.port), &[]);
        let messages = Arc::new((0..KEYS).map(|key| message("bench", key, 1)).collect());
        Self { redis, service, messages }
    }

    fn generate(&self, pace: Pace, duration: Duration) -> Tally {
        let tally = load::generate(&Load {
            targets: vec![self.service.address],
            connections: CONNECTIONS,
            pace,
            duration,
            protocol: Protocol::Grpc,
            messages: Arc::clone(&self.messages),
            tls: None,
        });
        assert_eq!(tally.broken, 0, "calls without an answer");
        tally
    }

    /// Calls per second that Redis decides when some always wait.
    fn saturation(&self, duration: Duration) -> u64 {
        let pace = Pace::Closed { in_flight: SATURATING };
        self.generate(pace, Duration::from_millis(500));
        let tally = self.generate(pace, duration);
        per_second(tally.answered, tally.elapsed)
    }

    fn row(&self, pattern: Pattern, tenths: u64, (saturation, duration): (u64, Duration)) -> Row {
        let cpu = || [self.service.process.id(), self.redis.process.id()].map(|id| Usage::now([id]).cpu);
        let before = cpu();
        let tally = self.generate(pattern.pace(saturation * tenths / 10), duration);
        let after = cpu();
        Row { pattern, tenths, duration, tally, service: after[0] - before[0], redis: after[1] - before[1] }
    }
}

/// Prints the table, and whether the rate of decisions falls under overload.
pub fn run(program: Program<'_>, duration: Duration) -> ExitCode {
    let bench = Bench::start(program);
    let saturation = bench.saturation(duration);
    println!(
        "Redis decides {saturation} calls per second, each with {LIMITS} limits. Rates are per second.\n"
    );
    println!(
        "| load | times saturation | offered | decided in {} ms | decided later | failed by policy | p50 ms | p99 ms \
         | p99 ms of failures | Redis CPU % | service CPU % |",
        IN_TIME.as_millis()
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut verdicts = Vec::new();
    for pattern in [Pattern::Steady, Pattern::Bursts] {
        let mut rows = Vec::new();
        for tenths in TENTHS {
            let row = bench.row(pattern, tenths, (saturation, duration));
            println!("{row}");
            rows.push(row);
        }
        verdicts.push((pattern, percent_under_overload(&rows)));
    }
    println!();
    for (pattern, percent) in &verdicts {
        println!(
            "{pattern:?}: from twice the saturation, at least {percent} % of the best row are decided in time"
        );
    }
    let holds = verdicts.iter().all(|(_, percent)| *percent >= LEAST_PERCENT);
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The worst row from twice the saturation, relative to the best of all rows.
fn percent_under_overload(rows: &[Row]) -> u64 {
    let best = rows.iter().map(Row::in_time).max().unwrap_or_default();
    let worst = rows.iter().filter(|row| row.tenths >= 20).map(Row::in_time).min().unwrap_or_default();
    worst * 100 / best.max(1)
}

fn per_second(count: u64, time: Duration) -> u64 {
    count * 1_000_000 / micros(time)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}
