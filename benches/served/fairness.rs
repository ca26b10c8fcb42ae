//! What a connection with a thousand calls in flight costs another connection of the same worker.
//!
//! The service has a core for itself. On the others run Redis and the generator of the quiet connection before the
//! generator of the busy one, so that the figures are the service's and not the scheduler's.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::load::{self, Load, Pace, Protocol, Tally};
use crate::placement;
use crate::processes::Redis;
use crate::scenario::{Scenario, message};
use crate::servers::Program;

/// Calls per second of the connection that is measured.
const QUIET: u64 = 200;
const KEYS: usize = 1_000;
/// How much longer the 99th percentile may become.
const MOST_TIMES: u64 = 3;
/// The load of the other connection starts before that of the measured one and ends after it.
const MARGIN: Duration = Duration::from_millis(500);

/// Calls that the other connection has in flight.
const IN_FLIGHT: [usize; 4] = [0, 50, 250, 1_000];

/// Prints a row for each store and number of calls in flight, and fails if one is above [`MOST_TIMES`].
pub fn run(program: Program<'_>, duration: Duration) -> ExitCode {
    placement::leave_first_core().expect("two cores");
    println!(
        "| counters in | calls in flight on another connection | its calls/s | p50 ms | p99 ms | failed |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    let mut fair = true;
    for name in ["memory", "Redis"] {
        let redis = (name == "Redis").then(Redis::start);
        let rules = Scenario { limit: 1_000_000, ..Scenario::DEFAULT }.rule_file();
        if let Some(redis) = &redis {
            placement::run_first(&redis.process).expect("the right to raise a priority");
        }
        let redis_port = redis.as_ref().map(|redis| redis.port);
        let service = program.serve(&rules, redis_port, &[("RATELIMITD__SERVER__WORKERS", "1")]);
        placement::give_first_core(&service.process).expect("the right to place a process");
        let load = |pace, duration| Load {
            targets: vec![service.address],
            connections: 1,
            pace,
            duration,
            protocol: Protocol::Grpc,
            messages: Arc::new((0..KEYS).map(|key| message("bench", key, 1)).collect()),
            tls: None,
        };
        let mut alone_us = None;
        for in_flight in IN_FLIGHT {
            let busy = load(Pace::Closed { in_flight }, duration + 2 * MARGIN);
            let busy = thread::spawn(move || load::generate(&busy));
            thread::sleep(MARGIN);
            let quiet = load(Pace::Open { per_second: QUIET }, duration);
            let quiet = thread::spawn(move || {
                placement::run_this_thread_first().expect("the right to raise a priority");
                load::generate(&quiet)
            });
            let quiet = quiet.join().expect("no worker panics");
            let busy = busy.join().expect("no worker panics");
            print_row(name, in_flight, &quiet, &busy);
            let p99_us = p99(&quiet.latency);
            fair &= p99_us <= MOST_TIMES * *alone_us.get_or_insert(p99_us) && quiet.failed == 0;
        }
    }
    if fair { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn p99(latency: &Histogram<u64>) -> u64 {
    latency.value_at_quantile(0.99)
}

fn print_row(store: &str, in_flight: usize, quiet: &Tally, busy: &Tally) {
    let ms = |us: u64| us as f64 / 1e3;
    let rate = busy.answered as f64 / busy.elapsed.as_secs_f64();
    let (p50, p99) = (ms(quiet.latency.value_at_quantile(0.5)), ms(p99(&quiet.latency)));
    println!("| {store} | {in_flight} | {rate:.0} | {p50:.2} | {p99:.2} | {} |", quiet.failed + quiet.broken);
}
