//! Bursts with pauses on a Redis at rest: whether every call is decided, on a fresh service and after a disturbance.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::load::{self, Load, Pace, Protocol};
use crate::processes::Redis;
use crate::scenario::{Scenario, message};
use crate::servers::Program;

/// Calls of a burst, and milliseconds from one burst to the next.
const BURSTS: [(u64, u64); 6] =
    [(300, 300), (300, 1_000), (1_000, 300), (1_000, 1_000), (2_000, 500), (2_000, 1_000)];
/// Connections of a burst. A connection carries at most 1,024 calls at a time.
const CONNECTIONS: usize = 4;
const KEYS: usize = 1_000;
/// How long a disturbance lasts, and how long Redis rests after it.
const DISTURBANCE: Duration = Duration::from_secs(3);
const REST: Duration = Duration::from_secs(1);
/// Keeps Redis busy for some 30 ms, twice the timeout of the store.
const LONG_SCRIPT: &str = "local n = 0 for i = 1, 2000000 do n = n + i end return n";

/// What happens to Redis before a row is measured, while the bursts go on.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    None,
    /// Redis is killed and started again.
    Outage,
    /// Redis is stopped and continued.
    Stall,
    /// Another client runs long scripts.
    Slow,
}

impl Disturbance {
    const ALL: [Self; 4] = [Self::None, Self::Outage, Self::Stall, Self::Slow];

    fn name(self) -> &'static str {
        match self {
            Self::None => "on a fresh service",
            Self::Outage => "after an outage",
            Self::Stall => "after a stall",
            Self::Slow => "after a slow spell",
        }
    }

    fn happen(self, redis: &mut Redis) {
        match self {
            Self::None => return,
            Self::Outage => {
                redis.kill();
                thread::sleep(DISTURBANCE);
                redis.start_again();
            }
            Self::Stall => {
                redis.signal("STOP");
                thread::sleep(DISTURBANCE);
                redis.signal("CONT");
            }
            Self::Slow => {
                let end = Instant::now() + DISTURBANCE;
                while Instant::now() < end {
                    redis.command(&["EVAL", LONG_SCRIPT, "0"]);
                }
            }
        }
        thread::sleep(REST);
    }
}

/// Prints a row for each size and disturbance, and fails if a call was not decided.
pub fn run(program: Program<'_>, duration: Duration) -> ExitCode {
    println!("| calls at once | every | Redis | calls | not decided | p50 ms | p99 ms | longest ms |");
    println!("|--:|--:|---|--:|--:|--:|--:|--:|");
    let mut refused = 0;
    for (calls, every_ms) in BURSTS {
        let mut redis = Redis::start();
        let rules = Scenario { limit: 1_000_000, ..Scenario::DEFAULT }.rule_file();
        let mut service = program.serve(&rules, Some(redis.port), &[]);
        let load = Load {
            targets: vec![service.address],
            connections: CONNECTIONS,
            pace: Pace::Bursts { calls, every: Duration::from_millis(every_ms) },
            duration,
            protocol: Protocol::Grpc,
            messages: Arc::new((0..KEYS).map(|key| message("bench", key, 1)).collect()),
            tls: None,
        };
        for disturbance in Disturbance::ALL {
            disturb(disturbance, &mut redis, &load);
            let tally = load::generate(&load);
            let ms = |us: u64| us as f64 / 1e3;
            assert!(service.process.runs(), "the service ended");
            let undecided = tally.failed + tally.broken;
            println!(
                "| {calls} | {every_ms} ms | {} | {} | {undecided} | {:.1} | {:.1} | {:.1} |",
                disturbance.name(),
                tally.answered + undecided,
                ms(tally.latency.value_at_quantile(0.5)),
                ms(tally.latency.value_at_quantile(0.99)),
                ms(tally.latency.max()),
            );
            refused += undecided;
        }
    }
    if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Lets the disturbance happen under the load.
fn disturb(disturbance: Disturbance, redis: &mut Redis, load: &Load) {
    if matches!(disturbance, Disturbance::None) {
        return;
    }
    let load = Load { duration: DISTURBANCE, ..load.clone() };
    let under_load = thread::spawn(move || load::generate(&load));
    disturbance.happen(redis);
    under_load.join().expect("no worker panics");
}
