//! The measured scenarios: each is one row of the table.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::Message;
use tempfile::TempDir;

use crate::cpu;
use crate::delay::Delay;
use crate::load::{self, Load, Pace, Tally};
use crate::processes::{Plan, Process, Redis, Service, free_port};

/// Every algorithm that a rule can name.
pub const ALGORITHMS: [&str; 6] =
    ["fixed_window", "sliding_window", "sliding_log", "gcra", "token_bucket", "leaky_bucket"];

/// Where the counters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// A domain without rules: the service answers OK without a store.
    None,
    Memory,
    Redis,
}

/// How calls choose among the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Spread {
    /// All keys in turn.
    Even,
    /// Zipf: the n-th key one n-th as often as the first key.
    Zipf,
    /// Always the same key.
    One,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub store: Store,
    /// By how much a proxy delays each direction between service and Redis.
    pub each_way: Duration,
    pub algorithm: &'static str,
    /// Units per second.
    pub limit: u32,
    /// Limits that a request meets, 1 to 5.
    pub limits: usize,
    /// Rules beside the five that requests meet.
    pub rules: usize,
    pub connections: usize,
    pub keys: usize,
    pub spread: Spread,
    pub pace: Pace,
}

impl Scenario {
    /// GCRA with one limit in memory, a thousand keys, 4 connections, 256 calls in flight; no request is denied.
    pub const DEFAULT: Self = Self {
        store: Store::Memory,
        each_way: Duration::ZERO,
        algorithm: "gcra",
        limit: 1_000,
        limits: 1,
        rules: 0,
        connections: 4,
        keys: 1_000,
        spread: Spread::Even,
        pace: Pace::Closed { in_flight: 256 },
    };
}

/// The results of a scenario.
#[derive(Debug)]
pub struct Measured {
    pub tally: Tally,
    /// CPU of all decisions.
    pub service: Option<Duration>,
    pub redis: Option<Duration>,
}

impl Scenario {
    /// Starts the processes, warms them up and measures.
    pub fn run(&self, program: Program<'_>, duration: Duration) -> Measured {
        let redis = (self.store == Store::Redis).then(Redis::start);
        let redis_port = redis.as_ref().map(|redis| redis.port);
        let delay =
            redis_port.filter(|_| !self.each_way.is_zero()).map(|port| Delay::start(port, self.each_way));
        let port = delay.as_ref().map(Delay::port).or(redis_port);
        // Under saturation a closed loop measures throughput, not deadlines.
        let settings = [("RATELIMITD__STORE__REDIS__TIMEOUT", "1s")];
        let service = program.serve(&self.rule_file(), port, &settings);
        let domain = if self.store == Store::None { "without rules" } else { "bench" };
        load::generate(&self.load(service.address, domain, Duration::from_millis(500)));
        let of_redis = || redis.as_ref().map(|redis| cpu::time(&redis.process));
        let before = (cpu::time(&service.process), of_redis());
        let tally = load::generate(&self.load(service.address, domain, duration));
        Measured {
            tally,
            service: Some(cpu::time(&service.process) - before.0),
            redis: of_redis().zip(before.1).map(|(after, before)| after - before),
        }
    }

    /// Measures a server that runs already.
    pub fn measure(&self, target: SocketAddr, domain: &str, duration: Duration) -> Measured {
        Measured { tally: load::generate(&self.load(target, domain, duration)), service: None, redis: None }
    }

    /// The same limit under several keys, so that a request can meet one or up to five, and other rules.
    pub fn rule_file(&self) -> String {
        let Self { algorithm, limit, .. } = self;
        let one = |rule: usize| {
            format!(
                "  - key: user{rule}\n    descriptors:\n      - key: path\n        rate_limit: {{ unit: second, \
                 requests_per_unit: {limit}, algorithm: {algorithm} }}\n"
            )
        };
        let other = |rule: usize| {
            format!(
                "  - key: user0\n    value: other{rule}\n    rate_limit: {{ unit: second, requests_per_unit: 1 }}\n"
            )
        };
        let rules: String = (0..5).map(one).chain((0..self.rules).map(other)).collect();
        format!("domain: bench\ndescriptors:\n{rules}")
    }

    pub fn load(&self, target: SocketAddr, domain: &str, duration: Duration) -> Load {
        let keys = match self.spread {
            Spread::Even => (0..self.keys).collect(),
            Spread::Zipf => zipf(self.keys),
            Spread::One => vec![0],
        };
        let messages = keys.into_iter().map(|key| message(domain, key, self.limits)).collect();
        Load {
            target,
            connections: self.connections,
            pace: self.pace,
            duration,
            messages: Arc::new(messages),
            tls: None,
        }
    }
}

/// The binary that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a>(pub &'a Path);

/// A service with rules of its own.
pub struct Served {
    pub process: Process,
    pub address: SocketAddr,
    /// Has the rule file, which the service reads again when it changes.
    _directory: TempDir,
}

impl Program<'_> {
    /// Starts it. `settings` are variables of the environment.
    pub fn serve(self, rules: &str, redis_port: Option<u16>, settings: &[(&str, &str)]) -> Served {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("rules.yaml");
        std::fs::write(&path, rules).expect("room for a rule file");
        let mut all = vec![("RATELIMITD__LOG__LEVEL", "warn")];
        all.extend(settings);
        let plan = Plan { program: self.0, redis_port, http_port: free_port(), rules: &path, settings: &all };
        let Service { port, process } = Service::start(&plan);
        Served { process, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), _directory: directory }
    }
}

/// Every key at least once and the n-th about one n-th as often as the first, mixed the same way every time.
fn zipf(keys: usize) -> Vec<usize> {
    let mut drawn: Vec<usize> =
        (0..keys).flat_map(|key| std::iter::repeat_n(key, keys.div_ceil(key + 1))).collect();
    let mut random = fastrand::Rng::with_seed(1);
    random.shuffle(&mut drawn);
    drawn
}

/// A request of `limits` descriptors of two entries, in its gRPC frame.
pub fn message(domain: &str, key: usize, limits: usize) -> Bytes {
    let entry = |key: &str, value: String| Entry { key: key.to_owned(), value };
    let descriptor = |rule| RateLimitDescriptor {
        entries: vec![
            entry(&format!("user{rule}"), format!("u{key:06}")),
            entry("path", "/v1/items".to_owned()),
        ],
        ..RateLimitDescriptor::default()
    };
    let descriptors = (0..limits).map(descriptor).collect();
    let request = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 };
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(request.encoded_len()).expect("a small message"));
    request.encode(&mut frame).expect("room in a growing buffer");
    frame.freeze()
}
