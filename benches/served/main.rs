//! Throughput, latency and CPU per decision of the served path, over real sockets.
//!
//! `cargo bench --bench served` prints one table. `--help` shows how to measure one row, or any other RLS server with
//! `--target ADDRESS`. All processes share the cores of one machine: compare the ratios and the CPU microseconds, not
//! the rates. `-- overload`, `-- bursts` and `-- fairness` measure what their modules describe.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod bursts;
mod cpu;
mod delay;
mod fairness;
mod load;
mod overload;
#[path = "../common/processes.rs"]
mod processes;
mod reference;
mod scenario;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use load::Pace;
use scenario::{ALGORITHMS, Measured, Program, Scenario, Spread, Store};

/// The allocator of the service: CPU time that the generator saves is left for the measured processes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is measured.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Subject {
    /// The table of rates, latencies and CPU.
    Table,
    /// How many calls are decided in time when more come than Redis can decide.
    Overload,
    /// Whether bursts with pauses are decided, before and after faults of Redis.
    Bursts,
    /// What many calls of one connection cost another connection.
    Fairness,
}

#[derive(Parser)]
struct Options {
    /// What to measure.
    #[arg(default_value = "table")]
    subject: Subject,
    /// Seconds per measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Only rows whose title contains this.
    #[arg(long)]
    only: Option<String>,
    /// Measure this binary instead of the one that cargo built.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Send the load to this server instead of starting one; the options below describe the load.
    #[arg(long)]
    target: Option<SocketAddr>,
    /// With `--target`: the domain of the requests.
    #[arg(long, default_value = "bench", requires = "target")]
    domain: String,
    /// With `--target`: HTTP/2 connections.
    #[arg(long, default_value_t = 4, requires = "target")]
    connections: usize,
    /// With `--target`: calls in flight, all connections together.
    #[arg(long, default_value_t = 256, requires = "target")]
    in_flight: usize,
    /// With `--target`: an open loop with this number of calls per second, instead of calls in flight.
    #[arg(long, requires = "target")]
    rate: Option<u64>,
    /// With `--target`: number of different keys.
    #[arg(long, default_value_t = 1_000, requires = "target")]
    keys: usize,
    /// With `--target`: how the calls choose among the keys.
    #[arg(long, default_value = "even", requires = "target")]
    spread: Spread,
    /// With `--target`: descriptors of each request, user0 to user4 with a path.
    #[arg(long, default_value_t = 1, requires = "target")]
    rules: usize,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let duration = Duration::from_secs(options.seconds);
    let built = Path::new(env!("CARGO_BIN_EXE_ratelimitd"));
    let program = Program(options.program.as_deref().unwrap_or(built));
    match options.subject {
        Subject::Table => print_table(&options, program, duration),
        Subject::Overload => return overload::run(program, duration),
        Subject::Bursts => return bursts::run(program, duration),
        Subject::Fairness => return fairness::run(program, duration),
    }
    ExitCode::SUCCESS
}

fn print_table(options: &Options, program: Program<'_>, duration: Duration) {
    println!(
        "| what | in flight | decisions/s | service µs | Redis µs | p50 µs | p99 µs | denied | failed |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    if let Some(target) = options.target {
        let pace = match options.rate {
            Some(per_second) => Pace::Open { per_second },
            None => Pace::Closed { in_flight: options.in_flight },
        };
        let Options { connections, keys, spread, rules, .. } = *options;
        let scenario = Scenario { rules, connections, keys, spread, pace, ..Scenario::default() };
        let measured = scenario.measure(target, &options.domain, duration);
        print_row(&target.to_string(), &scenario, &measured);
        return;
    }
    let is_wanted = |title: &str| options.only.as_deref().is_none_or(|only| title.contains(only));
    let title = "redis-benchmark, 1 GCRA decision per EVALSHA, -P 64";
    if is_wanted(title) {
        let reference = reference::run(100_000 * options.seconds);
        println!("| {title} | 256 | {:.0} | | {:.2} | | | | |", reference.per_second, reference.redis_us);
    }
    for (title, scenario) in table() {
        if is_wanted(&title) {
            print_row(&title, &scenario, &scenario.run(program, duration));
        }
    }
}

/// All rows except the row of redis-benchmark.
fn table() -> Vec<(String, Scenario)> {
    let plain = Scenario::default();
    let redis = Scenario { store: Store::Redis, ..plain };
    let mut rows = Vec::new();
    for in_flight in [64, 256] {
        let none = Scenario { store: Store::None, pace: Pace::Closed { in_flight }, ..plain };
        rows.push(("no rules, no store".to_owned(), none));
    }
    for (name, store) in [("memory", Store::Memory), ("Redis", Store::Redis)] {
        for algorithm in ALGORITHMS {
            for rules in [1, 3] {
                for in_flight in [64, 256] {
                    let pace = Pace::Closed { in_flight };
                    let title =
                        format!("{name}, `{algorithm}`, {rules} rule{}", if rules == 1 { "" } else { "s" });
                    rows.push((title, Scenario { store, algorithm, rules, pace, ..plain }));
                }
            }
        }
    }
    rows.extend([1, 4, 32].map(|connections| {
        (format!("Redis, connections: {connections}"), Scenario { connections, ..redis })
    }));
    rows.push(("Redis, 0.5 ms network delay".to_owned(), Scenario { store: Store::DelayedRedis, ..redis }));
    let high = Scenario { limit: 1_000_000_000, ..redis };
    rows.push(("Redis, keys by Zipf".to_owned(), Scenario { spread: Spread::Zipf, ..high }));
    rows.push(("Redis, one hot key".to_owned(), Scenario { spread: Spread::One, ..high }));
    let attack = Scenario { spread: Spread::One, limit: 10, ..redis };
    rows.push(("Redis, attack on one key".to_owned(), attack));
    let open = Pace::Open { per_second: 2_000 };
    rows.push(("open loop, no rules".to_owned(), Scenario { store: Store::None, pace: open, ..plain }));
    rows.push(("open loop, memory".to_owned(), Scenario { pace: open, ..plain }));
    rows.push(("open loop, Redis".to_owned(), Scenario { pace: open, ..redis }));
    rows
}

fn print_row(title: &str, scenario: &Scenario, measured: &Measured) {
    let tally = &measured.tally;
    let each = |cpu: Option<Duration>| {
        let us = |cpu: Duration| cpu.as_secs_f64() * 1e6 / tally.answered.max(1) as f64;
        cpu.map_or_else(String::new, |cpu| format!("{:.2}", us(cpu)))
    };
    let pace = match scenario.pace {
        Pace::Closed { in_flight } => in_flight.to_string(),
        Pace::Open { per_second } => format!("{per_second}/s"),
        Pace::Bursts { calls, every } => format!("{calls} every {every:?}"),
    };
    let rate = tally.answered as f64 / tally.elapsed.as_secs_f64();
    let quantile = |q| tally.latency.value_at_quantile(q);
    println!(
        "| {title} | {pace} | {rate:.0} | {} | {} | {} | {} | {} | {} |",
        each(measured.service),
        each(measured.redis),
        quantile(0.5),
        quantile(0.99),
        tally.over_limit,
        tally.failed + tally.broken
    );
}
