//! A long run: mixed rules on a Redis that is killed and stopped every minute, reloads, connections that come and go.
//! Samples the memory, the file descriptors and the threads of the service, and says whether they are flat.
//!
//! `cargo bench --bench soak` runs for half an hour, `-- --minutes N` for another time, `-- --svg FILE` draws the
//! samples, as `make soak` does for docs/soak.svg, `-- --attacks` attacks the ports meanwhile, `-- --streams 16` keeps
//! event streams of the console open. The process ends with 1 if a quantity is not flat.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod attacks;
mod callers;
mod connections;
#[path = "../common/over_time.rs"]
mod over_time;
mod picture;
#[path = "../common/processes.rs"]
mod processes;
mod rules;
mod samples;
mod streams;
#[path = "../common/svg.rs"]
mod svg;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

use attacks::Targets;
use processes::{Plan, Redis, Service, free_port};
use rules::RuleFile;
use samples::{Quantity, Sample};

/// Calls per second over gRPC: little, so that the run measures growth and not load.
const RATE: u64 = 400;
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Options {
    /// How long to run. The first quarter is the warm-up.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Write the picture to this file.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Attack the ports meanwhile, and say what honest clients see.
    #[arg(long)]
    attacks: bool,
    /// Keep this many event streams of the console open. With --attacks the admin port has TLS.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=16), conflicts_with = "attacks")]
    streams: u16,
    /// Run this binary instead of the one that cargo built.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What happens to Redis in each minute, by the second of the minute.
fn disturb(redis: &mut Redis, second: u64) {
    match second % 60 {
        10 => redis.kill(),
        15 => redis.start_again(),
        35 => redis.signal("STOP"),
        37 => redis.signal("CONT"),
        // Every connection of the service is closed, as by a proxy that is restarted.
        50 => redis.command(&["CLIENT", "KILL", "TYPE", "normal"]),
        _ => {}
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut rules = RuleFile::create(directory.path().join("rules.yaml"));
    let (mut redis, http_port) = (Redis::start(), free_port());
    let built = Path::new(env!("CARGO_BIN_EXE_ratelimitd"));
    let mut program = options.program.clone().unwrap_or_else(|| built.to_owned());
    let path = rules.path();
    let (admin_port, folder) = (free_port(), directory.path());
    let admin = format!("127.0.0.1:{admin_port}");
    let [certificate, key] = attacks::make_certificate(folder);
    let mut settings = vec![
        ("RATELIMITD__RESPONSE__DYNAMIC_METADATA", "true"),
        ("RATELIMITD__SERVER__ADMIN__ADDRESS", admin.as_str()),
    ];
    if options.attacks {
        program = attacks::with_few_files(&program, folder);
        settings.extend([
            ("RATELIMITD__SERVER__ADMIN__TLS__CERT_FILE", certificate.as_str()),
            ("RATELIMITD__SERVER__ADMIN__TLS__KEY_FILE", key.as_str()),
        ]);
    }
    let plan = Plan {
        program: &program,
        redis_port: Some(redis.port),
        http_port,
        rules: &path,
        settings: &settings,
    };
    let mut service = Service::start(&plan);

    let (stop, port) = (Arc::new(AtomicBool::new(false)), service.port);
    let (ended, also_ended) = (Arc::clone(&stop), Arc::clone(&stop));
    let callers = thread::spawn(move || callers::call(port, RATE, &ended));
    let connections = thread::spawn(move || connections::churn(port, http_port, &also_ended));
    let attacking = options.attacks.then(|| {
        let targets = Targets { grpc: port, http: http_port, admin: admin_port };
        let stop = Arc::clone(&stop);
        thread::spawn(move || attacks::run(targets, &stop))
    });
    let streams = streams::open(admin_port, options.streams, &stop);
    let (started, mut samples) = (Instant::now(), Vec::new());
    for second in 0..options.minutes * 60 {
        thread::sleep(
            (TICK * u32::try_from(second).expect("a run of days")).saturating_sub(started.elapsed()),
        );
        disturb(&mut redis, second);
        rules.change(second);
        assert!(service.process.runs(), "the service ended in second {second}");
        if second % SAMPLE_INTERVAL.as_secs() == 0 {
            samples.push(Sample::take(service.process.id(), second));
            print_progress(samples.last());
        }
    }
    stop.store(true, Ordering::Relaxed);
    println!("{}", callers.join().expect("no caller panics"));
    if let Some(attacking) = attacking {
        println!("{}", attacking.join().expect("no attacker panics"));
    }
    println!("{}", connections.join().expect("no connection panics"));
    if options.streams > 0 {
        println!("{}", streams::ended(streams));
    }
    println!("{} reloads, {} of them of a broken file", rules.changes(), rules.broken());
    if let Some(path) = options.svg {
        std::fs::write(&path, picture::draw(&samples)).expect("a writable file");
    }
    verdict(&samples)
}

fn print_progress(sample: Option<&Sample>) {
    let Some(sample) = sample.filter(|sample| sample.second % 60 == 0) else { return };
    print!("minute {:>4}", sample.second / 60);
    for quantity in Quantity::ALL {
        print!("  {} {}", quantity.name(), quantity.of(sample));
    }
    println!();
}

fn verdict(samples: &[Sample]) -> ExitCode {
    let mut all_flat = true;
    for quantity in Quantity::ALL {
        let trend = quantity.trend(samples);
        let word = if trend.is_flat() { "flat" } else { "NOT FLAT" };
        println!("{}: {word}: {trend}", quantity.name());
        all_flat &= trend.is_flat();
    }
    if all_flat { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
