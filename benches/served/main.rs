//! Throughput, latency and CPU per decision of the served path, over real sockets.
//!
//! `cargo bench --bench served` prints one table: memory and Redis, every algorithm, 64 and 256 calls in flight, 1 and 3
//! rules. `-- --target ADDRESS` presses any other RLS server instead. All processes share this machine's cores: read the
//! ratios and the CPU microseconds, not the rates.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod load;
mod process;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use clap::Parser;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::Message;

use load::{Load, Pace, Tally};
use process::{Process, ratelimitd, redis};

#[derive(Parser)]
struct Options {
    /// Seconds per measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// HTTP/2 connections.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Different keys, asked in turn.
    #[arg(long, default_value_t = 1_000)]
    keys: usize,
    /// Only this algorithm.
    #[arg(long)]
    algorithm: Option<String>,
    /// Only this many calls in flight (repeat for several).
    #[arg(long)]
    in_flight: Vec<usize>,
    /// An open loop of so many calls a second instead of the closed ones.
    #[arg(long)]
    rate: Option<u64>,
    /// Press this server instead of starting one.
    #[arg(long)]
    target: Option<SocketAddr>,
    /// Domain to ask for with `--target`.
    #[arg(long, default_value = "bench")]
    domain: String,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

const ALGORITHMS: [&str; 6] =
    ["fixed_window", "sliding_window", "sliding_log", "gcra", "token_bucket", "leaky_bucket"];

fn main() {
    let options = Options::parse();
    println!(
        "{:<8}{:<16}{:>6}{:>10}{:>12}{:>12}{:>12}{:>10}{:>10}{:>10}{:>8}",
        "store",
        "algorithm",
        "rules",
        "in flight",
        "calls/s",
        "service us",
        "redis us",
        "p50 us",
        "p99 us",
        "max us",
        "failed"
    );
    if let Some(target) = options.target {
        for pace in paces(&options) {
            let tally = load::press(&load(&options, target, pace, 1));
            print_row(("target", "-", 1, pace), &tally, None, None);
        }
        return;
    }
    for store in ["memory", "redis"] {
        for algorithm in ALGORITHMS {
            if options.algorithm.as_deref().is_some_and(|only| only != algorithm) {
                continue;
            }
            for rules in [1, 3] {
                measure(&options, store, algorithm, rules);
            }
        }
    }
}

/// The same limit under three keys, so that a request can meet one rule or three.
fn rule_file(algorithm: &str) -> String {
    let one = |key: &str| {
        format!(
            "  - key: {key}\n    descriptors:\n      - key: path\n        rate_limit: {{ unit: second, \
             requests_per_unit: 1000, algorithm: {algorithm} }}\n"
        )
    };
    format!("domain: bench\ndescriptors:\n{}{}{}", one("user0"), one("user1"), one("user2"))
}

fn paces(options: &Options) -> Vec<Pace> {
    if let Some(per_second) = options.rate {
        return vec![Pace::Open { per_second }];
    }
    let in_flight = if options.in_flight.is_empty() { vec![64, 256] } else { options.in_flight.clone() };
    in_flight.into_iter().map(|in_flight| Pace::Closed { in_flight }).collect()
}

fn measure(options: &Options, store: &str, algorithm: &str, rules: usize) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let redis = (store == "redis").then(redis);
    let (service, target) =
        ratelimitd(directory.path(), &rule_file(algorithm), redis.as_ref().map(|(_, port)| *port));
    let redis = redis.as_ref().map(|(process, _)| process);
    for pace in paces(options) {
        let warm_up = Load { lasts: Duration::from_millis(500), ..load(options, target, pace, rules) };
        load::press(&warm_up);
        let cpu = |process: &Process| process.cpu();
        let before = (cpu(&service), redis.map(cpu));
        let tally = load::press(&load(options, target, pace, rules));
        let service_cpu = cpu(&service) - before.0;
        let redis_cpu = redis.map(cpu).zip(before.1).map(|(after, before)| after - before);
        print_row((store, algorithm, rules, pace), &tally, Some(service_cpu), redis_cpu);
    }
}

fn load(options: &Options, target: SocketAddr, pace: Pace, rules: usize) -> Load {
    let messages = (0..options.keys).map(|key| message(&options.domain, key, rules)).collect();
    let lasts = Duration::from_secs(options.seconds);
    Load { target, connections: options.connections, pace, lasts, messages: Arc::new(messages) }
}

/// A request of `rules` descriptors of two entries, in its gRPC frame.
fn message(domain: &str, key: usize, rules: usize) -> Bytes {
    let entry = |key: &str, value: String| Entry { key: key.to_owned(), value };
    let descriptor = |rule| RateLimitDescriptor {
        entries: vec![
            entry(&format!("user{rule}"), format!("u{key:06}")),
            entry("path", "/v1/items".to_owned()),
        ],
        ..RateLimitDescriptor::default()
    };
    let descriptors = (0..rules).map(descriptor).collect();
    let request = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 };
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(request.encoded_len()).expect("a small message"));
    request.encode(&mut frame).expect("room in a growing buffer");
    frame.freeze()
}

fn print_row(
    (store, algorithm, rules, pace): (&str, &str, usize, Pace),
    tally: &Tally,
    service: Option<Duration>,
    redis: Option<Duration>,
) {
    let each = |cpu: Option<Duration>| {
        let us = |cpu: Duration| cpu.as_secs_f64() * 1e6 / tally.answered.max(1) as f64;
        cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{:.2}", us(cpu)))
    };
    let pace = match pace {
        Pace::Closed { in_flight } => in_flight.to_string(),
        Pace::Open { per_second } => format!("{per_second}/s"),
    };
    let rate = tally.answered as f64 / tally.took.as_secs_f64();
    let quantile = |q| tally.latency.value_at_quantile(q);
    println!(
        "{store:<8}{algorithm:<16}{rules:>6}{pace:>10}{rate:>12.0}{:>12}{:>12}{:>10}{:>10}{:>10}{:>8}",
        each(service),
        each(redis),
        quantile(0.5),
        quantile(0.99),
        tally.latency.max(),
        tally.failed
    );
}
