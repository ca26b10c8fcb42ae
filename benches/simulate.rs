//! Lines per second of `simulate`, from a file in Envoy's default text and in Envoy Gateway's JSON: one limit per
//! address, 100,000 addresses, one parser per core. The divisor is the time of a whole pass, report included.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ratelimitd::engine::{
    Algorithm, Defaults, DomainSpec, LimitSpec, NodeSpec, Period, RuleSet, RuleSpec, Unit, ValueHashing,
};
use ratelimitd::simulate::log::Input;
use ratelimitd::simulate::map::Map;
use ratelimitd::simulate::pass::{PassOptions, RuleSets, simulate};
use tempfile::NamedTempFile;

const LINES: u32 = 1_000_000;
const ADDRESSES: u32 = 100_000;
const MAP: &str = "
domain: bench
descriptors:
  - - { key: remote_address, from: x-forwarded-for, take: trusted-hop 1 }
good: code < 400
";

fn rules() -> RuleSets {
    let limit = LimitSpec::new(Algorithm::Gcra, 60, Period::one(Unit::Minute));
    let node = NodeSpec {
        key: "remote_address".to_owned(),
        rule: Some(RuleSpec { limits: vec![limit], ..RuleSpec::default() }),
        ..NodeSpec::default()
    };
    let domain = DomainSpec { domain: "bench".to_owned(), descriptors: vec![node], ..DomainSpec::default() };
    let judged = RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE);
    RuleSets { judged: judged.expect("the rules are valid"), in_force: None, variants: Vec::new() }
}

/// An hour of requests.
fn log(line: impl Fn(&str, u32, &str) -> String) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a temporary file");
    let mut text = String::new();
    for number in 0..LINES {
        let ms = u64::from(number) * 3_600_000 / u64::from(LINES);
        let (minute, second, ms) = (ms / 60_000, ms / 1_000 % 60, ms % 1_000);
        let time = format!("2026-03-03T10:{minute:02}:{second:02}.{ms:03}Z");
        let address = number.wrapping_mul(2_654_435_761) % ADDRESSES;
        let address = format!("10.{}.{}.{}", address >> 16, address >> 8 & 255, address & 255);
        writeln!(text, "{}", line(&time, number, &address)).expect("room");
        if text.len() > 1 << 20 {
            file.write_all(text.as_bytes()).expect("room on the disk");
            text.clear();
        }
    }
    file.write_all(text.as_bytes()).expect("room on the disk");
    file
}

fn passes(criterion: &mut Criterion) {
    let envoy = log(|time, number, address| {
        format!(
            "[{time}] \"GET /products?page={} HTTP/2\" 200 - 0 1024 13 12 \"{address}\" \"Mozilla/5.0 Firefox/131.0\" \
             \"6c21c9d0-6b0e-4f62-9c63-{number:012x}\" \"shop.example.com\" \"10.0.2.1:8080\"",
            number % 100
        )
    });
    let json = log(|time, number, address| {
        format!(
            "{{\"start_time\":\"{time}\",\"method\":\"GET\",\"x-envoy-origin-path\":\"/products?page={}\",\
             \"response_code\":\"200\",\"response_flags\":\"-\",\"bytes_sent\":\"1024\",\"duration\":\"13\",\
             \"x-forwarded-for\":\"{address}\",\"user-agent\":\"Mozilla/5.0 Firefox/131.0\",\
             \"x-request-id\":\"6c21c9d0-6b0e-4f62-9c63-{number:012x}\",\":authority\":\"shop.example.com\"}}",
            number % 100
        )
    });
    let rules = rules();
    let map = Map::parse("map", MAP).expect("a valid map");
    let options = PassOptions {
        format: None,
        reorder_us: 60_000_000,
        threads: available_parallelism().expect("a number of cores"),
        show_keys: false,
        recommend: None,
        command_line: Vec::new(),
        digests: Vec::new(),
    };
    let mut group = criterion.benchmark_group("simulate");
    group.throughput(Throughput::Elements(u64::from(LINES))).sample_size(10);
    for (name, file) in [("envoy", &envoy), ("envoy-json", &json)] {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| {
                let inputs = vec![Input::open(file.path()).expect("readable")];
                let stop = AtomicBool::new(false);
                black_box(
                    simulate(&rules, Some(&map), inputs, &options, (&stop, &mut |_| {})).expect("a report"),
                )
            });
        });
    }
    group.finish();
}

criterion_group!(benches, passes);
criterion_main!(benches);
