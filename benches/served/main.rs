//! Throughput, latency and CPU per decision of the served path, over real sockets.
//!
//! `cargo bench --bench served` prints a table for each question, and `-- pace` those of ordinary days, beside the
//! least that a service can cost (`floor`); `-- peers` measures the same days beside other services
//! (`scripts/bench-peers` builds them), and `-- check` measures `/check` beside gRPC. `--help` shows how to measure one
//! row, several rounds, or any other RLS server with `--target ADDRESS`.
//! All processes share the cores of one machine: compare the ratios and the CPU microseconds, not the rates.
//! `-- overload`, `-- bursts`, `-- fairness`, `-- handshakes`, `-- exceptions`, `-- lists` and `-- instructions`
//! measure what their modules describe. `-- train` is the load with which `scripts/lay-out` trains the service.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod bursts;
mod delay;
mod exceptions;
mod fairness;
mod figures;
mod floor;
mod handshakes;
mod instructions;
mod lists;
mod load;
mod overload;
mod picture;
mod placement;
#[path = "../common/processes.rs"]
mod processes;
mod questions;
mod scenario;
mod servers;
#[path = "../common/svg.rs"]
mod svg;
mod table;
mod usage;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use load::Pace;
use questions::Question;
use scenario::{Scenario, Spread, Target};
use servers::{Program, Programs};

/// The allocator of the service: CPU time that the generator saves is left for the measured processes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is measured.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Subject {
    /// All tables of rates, latencies and CPU.
    Table,
    /// Only those of ordinary days: CPU at a pace, in a fleet, and over few and many connections.
    Pace,
    /// The tables of ordinary days, for this service and for the peers whose programs are given.
    Peers,
    /// What a call of `/check` costs beside one of gRPC.
    Check,
    /// How many calls are decided in time when more come than Redis can decide.
    Overload,
    /// Whether bursts with pauses are decided, before and after faults of Redis.
    Bursts,
    /// What many calls of one connection cost another connection.
    Fairness,
    /// What a rush of TLS handshakes costs an open connection.
    Handshakes,
    /// What a reload of a million exceptions costs the calls that are decided meanwhile.
    Exceptions,
    /// What a list over a million counters costs the calls that are decided meanwhile.
    Lists,
    /// Instructions of the service for one decision, beside the numbers in the repository.
    Instructions,
    /// The load with which `scripts/lay-out` trains the service; its figures are those of a service that is observed.
    Train,
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
    /// Only rows whose title, or the question of whose table, contains this; also of `instructions`.
    #[arg(long)]
    only: Option<String>,
    /// Write the pictures of the measured tables, `pace.svg` and `cost.svg`, to this directory.
    #[arg(long)]
    pictures: Option<PathBuf>,
    /// Measure this binary instead of the one that cargo built.
    #[arg(long)]
    program: Option<PathBuf>,
    /// For `peers`: the binary of envoyproxy/ratelimit.
    #[arg(long)]
    envoyproxy: Option<PathBuf>,
    /// For `peers`: the binary of Limitador's server.
    #[arg(long)]
    limitador: Option<PathBuf>,
    /// Send the load to this server instead of starting one; the options below describe the load. Several servers get
    /// the connections in turn.
    #[arg(long)]
    target: Vec<SocketAddr>,
    /// With `--target`: the process whose CPU is counted as the service's; several are added up.
    #[arg(long, requires = "target")]
    target_pid: Vec<u32>,
    /// With `--target`: the process whose CPU is counted as Redis's.
    #[arg(long, requires = "target")]
    redis_pid: Option<u32>,
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
    /// Be the floor: the relay at this port, before Redis if its port is given.
    #[arg(long, hide = true)]
    floor: Option<u16>,
    #[arg(long, hide = true, requires = "floor")]
    floor_redis: Option<u16>,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(port) = options.floor {
        floor::run(port, options.floor_redis);
    }
    let duration = Duration::from_secs(options.seconds);
    let built = Path::new(env!("CARGO_BIN_EXE_ratelimitd"));
    let program = Program(options.program.as_deref().unwrap_or(built));
    let programs = Programs {
        ratelimitd: program,
        envoyproxy: options.envoyproxy.as_deref(),
        limitador: options.limitador.as_deref(),
    };
    match options.subject {
        Subject::Table if !options.target.is_empty() => measure_target(&options, duration),
        Subject::Table => print_tables(&options, programs, questions::all()),
        Subject::Pace => print_tables(&options, programs, questions::shapes()),
        Subject::Peers => print_tables(&options, programs, questions::beside_peers(programs)),
        Subject::Check => print_tables(&options, programs, questions::check()),
        Subject::Overload => return overload::run(program, duration),
        Subject::Bursts => return bursts::run(program, duration),
        Subject::Fairness => return fairness::run(program, duration),
        Subject::Handshakes => return handshakes::run(program, duration),
        Subject::Exceptions => return exceptions::run(program, duration),
        Subject::Lists => {
            let ratelimitctl = program.0.with_file_name("ratelimitctl");
            lists::run(program, &ratelimitctl, duration, options.rounds);
        }
        Subject::Instructions => return instructions::run(program, duration, options.only.as_deref()),
        Subject::Train => {
            print_tables(&options, programs, questions::training());
            return handshakes::run(program, duration);
        }
    }
    ExitCode::SUCCESS
}

fn print_tables(options: &Options, programs: Programs<'_>, questions: Vec<Question>) {
    let plan = table::Plan {
        programs,
        duration: Duration::from_secs(options.seconds),
        rounds: options.rounds,
        only: options.only.as_deref(),
    };
    let answers = table::measure(&plan, questions);
    table::print(&answers);
    if let Some(directory) = &options.pictures {
        let write = |name: &str, picture: Option<String>| {
            if let Some(picture) = picture {
                std::fs::write(directory.join(name), picture).expect("a file that can be written");
            }
        };
        write("pace.svg", picture::draw_pace(&table::curves(&answers)));
        write("cost.svg", picture::draw_cost(&table::bars(&answers)));
    }
}

fn measure_target(options: &Options, duration: Duration) {
    let pace = match options.rate {
        Some(per_second) => Pace::Open { per_second },
        None => Pace::Closed { in_flight: options.in_flight },
    };
    let Options { connections, keys, spread, limits, .. } = *options;
    let scenario = Scenario { limits, connections, keys, spread, pace, ..Scenario::DEFAULT };
    let target = Target {
        addresses: options.target.clone(),
        services: options.target_pid.clone(),
        redis: options.redis_pid,
    };
    let measured = scenario.measure(target, &options.domain, duration);
    table::print_one(&options.target[0].to_string(), scenario, &measured);
}
