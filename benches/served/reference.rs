//! The decisions per second of Redis alone on this machine: redis-benchmark, one decision per EVALSHA, pipelined.

use std::process::Command;

use crate::processes::Redis;
use crate::usage::Usage;

const SCRIPT: &str = include_str!("reference.lua");

/// Calls in flight, all connections together.
pub const IN_FLIGHT: usize = CONNECTIONS * PIPELINE;
pub const CONNECTIONS: usize = 4;
const PIPELINE: usize = 64;

/// Decisions a second, and the CPU that Redis spent on each.
pub struct Reference {
    pub per_second: f64,
    pub redis_us: f64,
}

/// `count` decisions over 1,000 keys.
pub fn run(count: u64) -> Reference {
    let redis = Redis::start();
    let port = redis.port.to_string();
    let load = output("redis-cli", &["-p", &port, "SCRIPT", "LOAD", SCRIPT]);
    let before = Usage::now([redis.process.id()]);
    let [count_text, connections, pipeline] =
        [count, CONNECTIONS as u64, PIPELINE as u64].map(|n| n.to_string());
    let csv = output(
        "redis-benchmark",
        &[
            "-p",
            &port,
            "-c",
            &connections,
            "-P",
            &pipeline,
            "-n",
            &count_text,
            "-r",
            "1000",
            "--csv",
            "EVALSHA",
            load.trim(),
            "1",
            "ratelimitd:{bench|user0=u__rand_int__}|path=/v1/items#gc:1000000",
            "1000",
            "1000000",
        ],
    );
    let used = Usage::now([redis.process.id()]) - before;
    let row = csv.lines().last().expect("a row of figures");
    let figures = row.split("\",\"").nth(1).expect("calls a second come second");
    let per_second = figures.parse().unwrap_or_else(|_| panic!("a number of calls a second in {row}"));
    Reference { per_second, redis_us: used.cpu.as_secs_f64() * 1e6 / count as f64 }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output =
        output.unwrap_or_else(|error| panic!("cannot run {program} (make tools installs it): {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
