//! An outage as callers see it: answers per second, by their source, while Redis is killed, stopped, demoted to a
//! replica and restored, under a steady load.
//!
//! `cargo bench --bench outage` prints a table; `-- --svg FILE` also draws the picture, as `make outage` does for
//! docs/outage.svg. It uses real processes, real signals and the default settings.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod callers;
#[path = "../common/over_time.rs"]
mod over_time;
mod picture;
#[path = "../common/processes.rs"]
mod processes;
#[path = "../common/svg.rs"]
mod svg;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;

use callers::{Answer, Outcome};
use processes::{Plan, Redis, Service, free_port};

/// Calls per second, a quarter for each failure policy.
const RATE: u64 = 2_000;

/// The length of a bin: the answers to calls that were due in it are counted together.
const BIN_MS: u64 = 100;

const RULES: &str = "
domain: outage
descriptors:
  - { key: allow, rate_limit: { unit: second, requests_per_unit: 400, algorithm: gcra, burst: 20, on_store_failure: allow } }
  - { key: deny, rate_limit: { unit: second, requests_per_unit: 400, algorithm: gcra, burst: 20, on_store_failure: deny } }
  - { key: local, rate_limit: { unit: second, requests_per_unit: 400, algorithm: gcra, burst: 20, on_store_failure: local } }
  - { key: error, rate_limit: { unit: second, requests_per_unit: 400, algorithm: gcra, burst: 20, on_store_failure: error } }
";

#[derive(Parser)]
struct Options {
    /// Write the picture to this file.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// An event of the run: its time and its action.
pub struct Event {
    pub at_ms: u64,
    pub name: &'static str,
    act: fn(&mut Redis),
}

const DURATION_MS: u64 = 20_000;

fn events() -> [Event; 6] {
    let event = |at_ms, name, act| Event { at_ms, name, act };
    [
        event(2_000, "killed", Redis::kill),
        event(5_000, "started", Redis::start_again),
        event(8_000, "SIGSTOP", |redis| redis.signal("STOP")),
        event(11_000, "SIGCONT", |redis| redis.signal("CONT")),
        event(14_000, "REPLICAOF", |redis| redis.command(&["REPLICAOF", "127.0.0.1", "1"])),
        event(17_000, "NO ONE", |redis| redis.command(&["REPLICAOF", "NO", "ONE"])),
    ]
}

/// The answers of one bin.
#[derive(Clone, Debug, Default)]
pub struct Bin {
    /// Number of answers, by the index of the outcome in [`Outcome::ALL`].
    pub answers: [u64; Outcome::ALL.len()],
    /// The latency of each answer.
    latencies: Vec<Duration>,
}

impl Bin {
    /// The 99th percentile of the latencies.
    pub fn p99(&self) -> Duration {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len().saturating_sub(1) * 99 / 100).copied().unwrap_or_default()
    }
}

fn main() {
    let options = Options::parse();
    let mut redis = Redis::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, RULES).expect("a rule file");
    let program = Path::new(env!("CARGO_BIN_EXE_ratelimitd"));
    // The metadata of an answer says whether a policy has answered.
    let settings = [("RATELIMITD__RESPONSE__DYNAMIC_METADATA", "true")];
    let plan = Plan {
        program,
        redis_port: Some(redis.port),
        http_port: free_port(),
        rules: &rules,
        settings: &settings,
    };
    let mut service = Service::start(&plan);
    let (port, started) = (service.port, Instant::now());
    let callers = std::thread::spawn(move || callers::call(port, RATE, DURATION_MS));
    for event in events() {
        std::thread::sleep(Duration::from_millis(event.at_ms).saturating_sub(started.elapsed()));
        (event.act)(&mut redis);
    }
    let answers = callers.join().expect("no caller panics");
    assert!(service.process.runs(), "the service ended");
    let bins = bins(&answers);
    print(&bins);
    if let Some(path) = options.svg {
        std::fs::write(&path, picture::draw(&bins)).expect("a writable file");
    }
}

fn bins(answers: &[Answer]) -> Vec<Bin> {
    let count = usize::try_from(DURATION_MS / BIN_MS).expect("few");
    let mut bins = vec![Bin::default(); count];
    for answer in answers {
        // By the due time of the call, so that calls during an outage are counted in the outage.
        let place = answer.due.as_millis() / u128::from(BIN_MS);
        let bin = usize::try_from(place).ok().and_then(|place| bins.get_mut(place));
        if let Some(bin) = bin {
            bin.answers[answer.outcome as usize] += 1;
            bin.latencies.push(answer.latency);
        }
    }
    bins
}

fn print(bins: &[Bin]) {
    print!("{:>8}", "second");
    for outcome in Outcome::ALL {
        print!("{:>18}", outcome.name());
    }
    println!("{:>12}", "p99 us");
    for (second, bins) in bins.chunks(10).enumerate() {
        print!("{second:>8}");
        for outcome in Outcome::ALL {
            print!("{:>18}", bins.iter().map(|bin| bin.answers[outcome as usize]).sum::<u64>());
        }
        let whole = Bin {
            latencies: bins.iter().flat_map(|bin| bin.latencies.iter().copied()).collect(),
            ..Bin::default()
        };
        println!("{:>12}", whole.p99().as_micros());
    }
    for event in events() {
        println!("{:>6} ms: {}", event.at_ms, event.name);
    }
}
