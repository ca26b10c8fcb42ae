//! Throughput, latency and CPU per decision of the served path, over real sockets.
//!
//! `cargo bench --bench served` prints a table for each question. `--help` shows how to measure one row, several
//! rounds, or any other RLS server with `--target ADDRESS`. All processes share the cores of one machine: compare the
//! ratios and the CPU microseconds, not the rates. `-- overload`, `-- bursts`, `-- fairness`, `-- handshakes` and
//! `-- instructions` measure what their modules describe.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod bursts;
mod cpu;
mod delay;
mod fairness;
mod handshakes;
mod instructions;
mod load;
mod overload;
mod picture;
mod placement;
#[path = "../common/processes.rs"]
mod processes;
mod questions;
mod reference;
mod scenario;
#[path = "../common/svg.rs"]
mod svg;
mod table;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use load::Pace;
use scenario::{Program, Scenario, Spread};

/// The allocator of the service: CPU time that the generator saves is left for the measured processes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is measured.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Subject {
    /// The tables of rates, latencies and CPU.
    Table,
    /// How many calls are decided in time when more come than Redis can decide.
    Overload,
    /// Whether bursts with pauses are decided, before and after faults of Redis.
    Bursts,
    /// What many calls of one connection cost another connection.
    Fairness,
    /// What a rush of TLS handshakes costs an open connection.
    Handshakes,
    /// Instructions of the service for one decision, beside the numbers in the repository.
    Instructions,
}

#[derive(Parser)]
struct Options {
    /// What to measure.
    #[arg(default_value = "table")]
    subject: Subject,
    /// Seconds per measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Times that each row is measured; with several, each figure is `least / median / most`.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Only rows whose title, or the question of whose table, contains this.
    #[arg(long)]
    only: Option<String>,
    /// Write a picture of what a call costs with 256 calls in flight to this file.
    #[arg(long)]
    svg: Option<PathBuf>,
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
    limits: usize,
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
        Subject::Table => match options.target {
            Some(target) => measure_target(target, &options, duration),
            None => print_tables(&options, program, duration),
        },
        Subject::Overload => return overload::run(program, duration),
        Subject::Bursts => return bursts::run(program, duration),
        Subject::Fairness => return fairness::run(program, duration),
        Subject::Handshakes => return handshakes::run(program, duration),
        Subject::Instructions => return instructions::run(program, duration),
    }
    ExitCode::SUCCESS
}

fn print_tables(options: &Options, program: Program<'_>, duration: Duration) {
    let answers = table::measure(program, duration, options.rounds, options.only.as_deref());
    table::print(&answers);
    if let Some(path) = &options.svg {
        std::fs::write(path, picture::draw(&table::bars(&answers))).expect("a file that can be written");
    }
}

fn measure_target(target: SocketAddr, options: &Options, duration: Duration) {
    let pace = match options.rate {
        Some(per_second) => Pace::Open { per_second },
        None => Pace::Closed { in_flight: options.in_flight },
    };
    let Options { connections, keys, spread, limits, .. } = *options;
    let scenario = Scenario { limits, connections, keys, spread, pace, ..Scenario::DEFAULT };
    let measured = scenario.measure(target, &options.domain, duration);
    table::print_one(&target.to_string(), &pace.to_string(), &measured);
}
