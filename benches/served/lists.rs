//! What a list over a million counters costs the calls that are decided meanwhile, by gRPC and by `/json`.
//!
//! The same load runs without a list and with one, in turn, so that late calls of a busy machine are in both rows.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::load::{self, Load, Pace, Tally};
use crate::processes::{Process, Redis, free_port};
use crate::scenario::{Scenario, Store};
use crate::servers::{Program, Served, Server};
use crate::usage::memory_mb;

const COUNTERS: u64 = 1_000_000;
/// Copies the first counter.
const COPY: &str = r"
local first = redis.call('KEYS', '*user0*')[1]
local state, expires_ms = redis.call('GET', first), redis.call('PTTL', first)
local before, after = first:match('^(.*=u)%d+(.*)$')
for i = 1, tonumber(ARGV[1]) - 1 do
  redis.call('SET', before .. string.format('%06d', i) .. after, state, 'PX', expires_ms)
end";
/// Admits every call.
const SCENARIO: Scenario = Scenario {
    store: Store::Redis,
    algorithm: "fixed_window",
    limit: 1_000_000_000,
    unit: "day",
    pace: Pace::Open { per_second: 2_000 },
    ..Scenario::DEFAULT
};
const TOKEN: &str = "of-this-benchmark";
/// Rounds of which the table shows the medians, if the options ask for fewer.
const LEAST_ROUNDS: usize = 5;

/// Microseconds of each round.
#[derive(Default)]
struct Rounds {
    p50: Vec<u64>,
    p99: Vec<u64>,
    not_decided: u64,
}

/// Prints a row without and one with a list for each protocol.
///
/// # Panics
/// If the list ends before the load.
pub fn run(program: Program<'_>, ratelimitctl: &Path, duration: Duration, rounds: usize) {
    let redis = Redis::start();
    println!("| calls | list | p50 ms | p99 ms | not decided |\n|---|---|--:|--:|--:|");
    for server in [Server::Ratelimitd, Server::Json] {
        let scenario = Scenario { server, ..SCENARIO };
        let service = Listed::start(program, &scenario, &redis);
        let load = scenario.load(vec![service.served.address], "bench", duration);
        let warm_up = || load::generate(&Load { duration: Duration::from_secs(2), ..load.clone() });
        warm_up();
        redis.command(&["EVAL", COPY, "0", &COUNTERS.to_string()]);
        // Redis did not answer meanwhile, which opens breakers.
        warm_up();
        let mut measured = [Rounds::default(), Rounds::default()];
        for _ in 0..rounds.max(LEAST_ROUNDS) {
            measured[0].add(&load::generate(&load));
            let mut list = service.list(ratelimitctl);
            std::thread::sleep(Duration::from_secs(1));
            measured[1].add(&load::generate(&load));
            assert!(list.runs(), "the list ended before the load");
        }
        for (mut rounds, list) in measured.into_iter().zip(["", "beside"]) {
            let calls = if server == Server::Json { "`/json`" } else { "gRPC" };
            let [p50, p99] =
                [&mut rounds.p50, &mut rounds.p99].map(|of_rounds| median(of_rounds) as f64 / 1e3);
            println!("| {calls} | {list} | {p50:.2} | {p99:.2} | {} |", rounds.not_decided);
        }
        let process = service.served.process.id();
        println!(
            "resident memory: {} MB, at most {} MB",
            memory_mb(process, "VmRSS"),
            memory_mb(process, "VmHWM")
        );
    }
}

impl Rounds {
    fn add(&mut self, tally: &Tally) {
        self.p50.push(tally.latency.value_at_quantile(0.5));
        self.p99.push(tally.latency.value_at_quantile(0.99));
        self.not_decided += tally.failed + tally.broken;
    }
}

fn median(of_rounds: &mut [u64]) -> u64 {
    of_rounds.sort_unstable();
    of_rounds[of_rounds.len() / 2]
}

/// A service, and what a list from it needs.
struct Listed {
    served: Served,
    admin: String,
    token_file: PathBuf,
    _folder: TempDir,
}

impl Listed {
    fn start(program: Program<'_>, scenario: &Scenario, redis: &Redis) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let token_file = folder.path().join("token");
        std::fs::write(&token_file, TOKEN).expect("room for a token");
        let admin = format!("127.0.0.1:{}", free_port());
        let path = token_file.display().to_string();
        let settings = [
            ("RATELIMITD__SERVER__ADMIN__ADDRESS", admin.as_str()),
            ("RATELIMITD__SERVER__ADMIN__TOKEN_FILE", &path),
        ];
        let (rules, port) = (scenario.rule_file(), Some(redis.port));
        let served = match scenario.server {
            Server::Json => program.serve_check(&rules, port, &settings),
            _ => program.serve(&rules, port, &settings),
        };
        Self { served, admin, token_file, _folder: folder }
    }

    /// Starts a list of all counters.
    fn list(&self, ratelimitctl: &Path) -> Process {
        let mut command = Command::new(ratelimitctl);
        command.args(["usage", "now", "--domain", "bench", "--rule", "user0.path", "--json", "--token-file"]);
        Process::spawn(command.arg(&self.token_file).args(["--admin", &format!("http://{}", self.admin)]))
    }
}
