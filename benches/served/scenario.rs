//! The measured scenarios: each is one row of the table.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::Message;

use crate::delay::Delay;
use crate::load::{self, Load, Pace, Protocol, Tally};
use crate::processes::Redis;
use crate::servers::{Programs, Served, Server, serve_envoyproxy, serve_floor, serve_limitador};
use crate::usage::Usage;

/// Under saturation a closed loop measures throughput, not deadlines.
const PATIENT: [(&str, &str); 1] = [("RATELIMITD__STORE__REDIS__TIMEOUT", "1s")];

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
    pub server: Server,
    /// Instances of the service that share the store; the connections go to each in turn.
    pub instances: usize,
    pub store: Store,
    /// By how much a proxy delays each direction between service and Redis.
    pub each_way: Duration,
    pub algorithm: &'static str,
    /// Units per [`unit`](Self::unit).
    pub limit: u32,
    pub unit: &'static str,
    /// Other options of each limit, in YAML: `, ledger: true`.
    pub options: &'static str,
    /// Limits that a request meets, 1 to 5.
    pub limits: usize,
    /// The last of these limits counts all keys together, as one per route does.
    pub has_route: bool,
    /// Rules beside the five that requests meet.
    pub rules: usize,
    /// Connections of the client to all instances together.
    pub connections: usize,
    pub keys: usize,
    pub spread: Spread,
    pub pace: Pace,
}

impl Scenario {
    /// GCRA with one limit in memory, a thousand keys, 4 connections, 256 calls in flight; no request is denied.
    pub const DEFAULT: Self = Self {
        server: Server::Ratelimitd,
        instances: 1,
        store: Store::Memory,
        each_way: Duration::ZERO,
        algorithm: "gcra",
        limit: 1_000,
        unit: "second",
        options: "",
        limits: 1,
        has_route: false,
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
    /// What all instances of the service used for all calls; for a server that ran already, if its processes are known.
    pub service: Option<Usage>,
    pub redis: Option<Usage>,
}

/// What is measured: addresses, and processes where they are known.
#[derive(Clone, Debug, Default)]
pub struct Target {
    pub addresses: Vec<SocketAddr>,
    pub services: Vec<u32>,
    pub redis: Option<u32>,
}

impl Scenario {
    /// Starts the processes, warms them up and measures.
    pub fn run(&self, programs: Programs<'_>, duration: Duration) -> Measured {
        let redis = (self.store == Store::Redis).then(Redis::start);
        let redis_port = redis.as_ref().map(|redis| redis.port);
        let delay =
            redis_port.filter(|_| !self.each_way.is_zero()).map(|port| Delay::start(port, self.each_way));
        let port = delay.as_ref().map(Delay::port).or(redis_port);
        let served: Vec<_> = (0..self.instances).map(|_| self.serve(programs, port)).collect();
        let target = Target {
            addresses: served.iter().map(|served| served.address).collect(),
            services: served.iter().map(|served| served.process.id()).collect(),
            redis: redis.as_ref().map(|redis| redis.process.id()),
        };
        let domain = if self.store == Store::None { "without rules" } else { "bench" };
        load::generate(&self.load(target.addresses.clone(), domain, Duration::from_millis(500)));
        self.measure(target, domain, duration)
    }

    fn serve(&self, programs: Programs<'_>, redis_port: Option<u16>) -> Served {
        let missing = "main asks for peers only if their programs are known";
        match self.server {
            Server::Ratelimitd => programs.ratelimitd.serve(&self.rule_file(), redis_port, &PATIENT),
            Server::Floor => serve_floor(redis_port),
            Server::Check | Server::Json => {
                programs.ratelimitd.serve_check(&self.rule_file(), redis_port, &PATIENT)
            }
            Server::Envoyproxy { pool } => {
                let rules = self.rule_file().replace(&format!(", algorithm: {}", self.algorithm), "");
                let redis_port = redis_port.expect("envoyproxy/ratelimit has counters in Redis");
                serve_envoyproxy(programs.envoyproxy.expect(missing), &rules, redis_port, pool)
            }
            Server::Limitador => serve_limitador(programs.limitador.expect(missing), self.limit, redis_port),
        }
    }

    /// Measures servers that run already.
    pub fn measure(&self, target: Target, domain: &str, duration: Duration) -> Measured {
        let service = || (!target.services.is_empty()).then(|| Usage::now(target.services.iter().copied()));
        let redis = || target.redis.map(|redis| Usage::now([redis]));
        let before = (service(), redis());
        let tally = load::generate(&self.load(target.addresses.clone(), domain, duration));
        Measured {
            tally,
            service: service().zip(before.0).map(|(after, before)| after - before),
            redis: redis().zip(before.1).map(|(after, before)| after - before),
        }
    }

    /// The same limit under several keys, so that a request can meet one or up to five, and other rules.
    pub fn rule_file(&self) -> String {
        let Self { algorithm, limit, unit, options, .. } = self;
        let one = |rule: usize| {
            format!(
                "  - key: user{rule}\n    descriptors:\n      - key: path\n        rate_limit: {{ unit: {unit}, \
                 requests_per_unit: {limit}, algorithm: {algorithm}{options} }}\n"
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

    pub fn load(&self, targets: Vec<SocketAddr>, domain: &str, duration: Duration) -> Load {
        let keys = match self.spread {
            Spread::Even => (0..self.keys).collect(),
            Spread::Zipf => zipf(self.keys),
            Spread::One => vec![0],
        };
        let (protocol, messages) = match self.server {
            Server::Check => (Protocol::Http1, keys.into_iter().map(check_request).collect()),
            Server::Floor => (Protocol::Floor, keys.into_iter().map(|key| value(key).into()).collect()),
            Server::Json => {
                (Protocol::Http1, keys.into_iter().map(|key| json_request(domain, key)).collect())
            }
            _ => {
                let key_of = |limit, key| if self.has_route && limit + 1 == self.limits { 0 } else { key };
                let of_limits = |key| (0..self.limits).map(|limit| key_of(limit, key)).collect::<Vec<_>>();
                let message = |key| message_of(domain, &of_limits(key));
                (Protocol::Grpc, keys.into_iter().map(message).collect())
            }
        };
        Load {
            targets,
            connections: self.connections,
            pace: self.pace,
            duration,
            protocol,
            messages: Arc::new(messages),
            tls: None,
        }
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

/// The value of a key: a request to the floor.
fn value(key: usize) -> String {
    format!("u{key:06}")
}

/// A request of `limits` descriptors of two entries, in its gRPC frame.
pub fn message(domain: &str, key: usize, limits: usize) -> Bytes {
    message_of(domain, &vec![key; limits])
}

/// The same, with a key for each descriptor.
fn message_of(domain: &str, keys: &[usize]) -> Bytes {
    let entry = |key: &str, value: String| Entry { key: key.to_owned(), value };
    let descriptor = |(rule, &key)| RateLimitDescriptor {
        entries: vec![entry(&format!("user{rule}"), value(key)), entry("path", "/v1/items".to_owned())],
        ..RateLimitDescriptor::default()
    };
    let descriptors = keys.iter().enumerate().map(descriptor).collect();
    let request = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 };
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(request.encoded_len()).expect("a small message"));
    request.encode(&mut frame).expect("room in a growing buffer");
    frame.freeze()
}

/// What nginx with the configuration of `examples/nginx` sends for a request of curl. Each key is an address.
fn check_request(key: usize) -> Bytes {
    let (third, fourth) = (key / 256 % 256, key % 256);
    let request = format!(
        "GET /check HTTP/1.1\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /v1/items\r\n\
         X-Forwarded-Host: localhost\r\nX-Forwarded-For: 10.0.{third}.{fourth}\r\nHost: ratelimitd\r\n\
         User-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n"
    );
    request.into()
}

/// The request of [`message`] with one descriptor, for `/json`.
fn json_request(domain: &str, key: usize) -> Bytes {
    let entries = format!(r#"{{"key":"user0","value":"u{key:06}"}},{{"key":"path","value":"/v1/items"}}"#);
    let body = format!(r#"{{"domain":"{domain}","descriptors":[{{"entries":[{entries}]}}]}}"#);
    let length = body.len();
    let head = "POST /json HTTP/1.1\r\nHost: ratelimitd\r\nContent-Type: application/json";
    format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}").into()
}
