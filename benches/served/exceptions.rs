//! What a reload of a million exceptions costs the calls that are decided meanwhile, and how much memory it takes.
//!
//! The same load runs without a reload and with several, so that late calls of a busy machine are seen in both rows.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::load::{self, Load, Pace, Protocol, Tally};
use crate::processes::{free_port, wait_until};
use crate::scenario::{Scenario, message};
use crate::servers::Program;
use crate::usage::memory_mb;

const ROWS: usize = 1_000_000;
const PER_SECOND: u64 = 2_000;
const CONNECTIONS: usize = 16;
const KEYS: usize = 100_000;
const RELOADS: u32 = 4;
/// No call may wait for longer because of a reload.
const LATE_US: u64 = 20_000;
const LOADS: &str = r#"ratelimitd_exception_loads_total{result="success",source="file"} "#;

/// Prints a row without and one with reloads, and fails if more calls are late with reloads than without.
pub fn run(program: Program<'_>, duration: Duration) -> ExitCode {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let rules = Scenario::DEFAULT
        .rule_file()
        .replace("algorithm: gcra", "algorithm: gcra, tiers: { pro: 2000, max: 3000 }");
    let metrics_port = free_port();
    let path = folder.path().display().to_string();
    let address = format!("127.0.0.1:{metrics_port}");
    let settings =
        [("RATELIMITD__EXCEPTIONS__PATH", path.as_str()), ("RATELIMITD__METRICS__ADDRESS", &address)];
    let service = program.serve(&rules, None, &settings);
    let load = Load {
        targets: vec![service.address],
        connections: CONNECTIONS,
        pace: Pace::Open { per_second: PER_SECOND },
        duration: duration.max(Duration::from_secs(10)),
        protocol: Protocol::Grpc,
        messages: Arc::new((0..KEYS).map(|key| message("bench", key, 1)).collect()),
        tls: None,
    };
    load::generate(&Load { duration: Duration::from_secs(1), ..load.clone() });
    println!("resident memory without exceptions: {} MB", memory_mb(service.process.id(), "VmRSS"));
    replace(folder.path(), "pro");
    let loading = wait_for_load(metrics_port, 2);
    println!(
        "with {ROWS} rows: {} MB, at most {} MB; loaded within {loading:?}",
        memory_mb(service.process.id(), "VmRSS"),
        memory_mb(service.process.id(), "VmHWM")
    );
    println!(
        "| reloads | calls | not decided | p50 ms | p99 ms | p99.9 ms | longest ms | above 20 ms | the generator was late by at most ms |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let without = load::generate(&load);
    print_row(0, &without);
    let under_load = thread::spawn(move || load::generate(&load));
    let mut times = Vec::new();
    for reload in 0..RELOADS {
        thread::sleep(Duration::from_secs(1));
        replace(folder.path(), if reload % 2 == 0 { "max" } else { "pro" });
        times.push(wait_for_load(metrics_port, reload + 3));
    }
    let with = under_load.join().expect("no worker panics");
    print_row(RELOADS, &with);
    println!("each reload was in force within {times:?}, polling included");
    println!(
        "afterwards: {} MB, at most {} MB",
        memory_mb(service.process.id(), "VmRSS"),
        memory_mb(service.process.id(), "VmHWM")
    );
    if late(&with) <= late(&without) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Puts a file with all rows in place in one step.
fn replace(folder: &Path, tier: &str) {
    let mut text = "domain,key,value,tier\n".to_owned();
    for row in 0..ROWS {
        writeln!(text, "bench,user0,u{row:06},{tier}").expect("a String takes any text");
    }
    let beside = folder.join(".rows");
    fs::write(&beside, text).expect("room for a file");
    fs::rename(beside, folder.join("rows.csv")).expect("a rename");
}

fn wait_for_load(port: u16, loads: u32) -> Duration {
    let start = Instant::now();
    wait_until("the exceptions are in force", || metrics(port).contains(&format!("{LOADS}{loads}\n")));
    start.elapsed()
}

fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the port of the metrics");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn late(tally: &Tally) -> u64 {
    tally.latency.count_between(LATE_US, u64::MAX)
}

fn print_row(reloads: u32, tally: &Tally) {
    let ms = |us: u64| us as f64 / 1e3;
    let quantile = |share| ms(tally.latency.value_at_quantile(share));
    println!(
        "| {reloads} | {} | {} | {:.2} | {:.2} | {:.2} | {:.1} | {} | {:.1} |",
        tally.answered,
        tally.failed + tally.broken,
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        ms(tally.latency.max()),
        late(tally),
        ms(tally.lateness.max()),
    );
}
