//! The other forms of the worker in Python, and gRPC for Python.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use prost::Message as _;
use tempfile::TempDir;

use super::{Job, PATIENT, SPACING_MS, check_outages, job, python, service};
use crate::support::process::Plan;
use crate::tools::{REMEDY, in_project, read, run};

/// Reads `put off 1 for 0.199271 s`: the job, and its wait in microseconds.
fn put_off(line: &str) -> Option<(u32, u64)> {
    let (number, wait) = line.strip_prefix("put off ")?.split_once(" for ")?;
    let (whole, millionths) = wait.strip_suffix(" s")?.split_once('.')?;
    let micros = whole.parse::<u64>().ok()? * 1_000_000 + millionths.parse::<u64>().ok()?;
    Some((number.parse().ok()?, micros))
}

/// Its tasks ask at the same time, so one of them can be denied each time that another one is admitted.
#[test]
fn asyncio() {
    let caller = python("crawler.py");
    let service = service();
    caller.jobs(&service, "third_party");
    let jobs = caller.jobs(&service, "third_party_queue");
    assert!(jobs.iter().all(|job| job.rest == ", denied 0"), "{jobs:?}");
}

#[test]
fn asyncio_outages() {
    check_outages(&python("crawler.py"));
}

#[test]
fn decorators() {
    let caller = python("decorated.py");
    let service = service();
    caller.jobs(&service, "third_party");
    caller.jobs(&service, "third_party_queue");
}

#[test]
fn decorators_outages() {
    check_outages(&python("decorated.py"));
}

/// The only slot of this worker takes the jobs of another third party while a job waits for its turn.
#[test]
fn queue_worker() {
    let caller = python("queue_worker.py");
    let service = service();
    for key in ["third_party", "third_party_queue"] {
        let arguments = [&["--key", key, "--slots", "1", "--jobs", "6", "--name", "a"], PATIENT].concat();
        let (printed, _) = caller.finish(&caller.worker, &service, &arguments);
        for name in ["a", "other.a"] {
            let rest = format!(", {name}");
            let jobs: Vec<_> = printed.lines().filter_map(job).filter(|job| job.rest == rest).collect();
            assert_eq!(jobs.len(), 3, "{printed}");
            let spaced = |(number, job): (u64, &Job)| job.start_ms + 2 >= number * SPACING_MS;
            assert!((0..).zip(&jobs).all(spaced), "{printed}");
        }
        let lines: Vec<_> = printed.lines().collect();
        let waits: Vec<_> = lines.iter().filter_map(|line| put_off(line)).collect();
        // At most the turns of two jobs before. In whole seconds, it would be longer.
        assert!(waits.iter().all(|(_, micros)| (1..=2 * 1_000 * SPACING_MS).contains(micros)), "{printed}");
        let at = lines.iter().position(|line| put_off(line).is_some()).expect("a job that must wait");
        let next = job(lines[at + 1]).map(|job| job.number);
        assert_ne!(next, Some(waits[0].0), "the slot waits with its job:\n{printed}");
    }
}

#[test]
fn queue_worker_outages() {
    check_outages(&python("queue_worker.py"));
}

/// gRPC for Python and C++ sends the path of a Unix socket as `:authority`, which no HTTP server accepts, unless the
/// client has another name. `examples/README.md` names the option.
#[test]
fn grpc_needs_an_authority_on_a_unix_socket() {
    let folder = TempDir::new().expect("a folder");
    let target = format!("unix:{}", folder.path().join("grpc.sock").display());
    let _service =
        Plan::new(&read("examples/callers/rules.yaml")).set("server.grpc.address", target.clone()).start();
    let entry = Entry { key: "user".to_owned(), value: "ann".to_owned() };
    let request = RateLimitRequest {
        domain: "callers".to_owned(),
        descriptors: vec![RateLimitDescriptor { entries: vec![entry], ..Default::default() }],
        ..Default::default()
    };
    let digits: String = request.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
    let python = in_project(".tools/venv/bin/python");
    assert!(python.exists(), "{} is missing: run `{REMEDY}`", python.display());
    let ask = |authority: &[&str]| {
        run(&python, &[&["tests/data/grpc_python.py", &target, &digits], authority].concat())
    };
    assert_eq!(ask(&[]).trim(), "INTERNAL");
    let answer = ask(&["localhost"]);
    let pair = |at: usize| u8::from_str_radix(&answer[at..at + 2], 16).expect("two digits");
    let bytes: Vec<u8> = (0..answer.trim().len()).step_by(2).map(pair).collect();
    let answer = RateLimitResponse::decode(bytes.as_slice()).expect("an answer");
    assert_eq!((answer.overall_code(), answer.statuses[0].limit_remaining), (Code::Ok, 2));
    assert!(read("examples/README.md").contains("grpc.default_authority"));
}
