//! The other forms of the worker in Python, and gRPC for Python.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use prost::Message as _;
use tempfile::TempDir;

use super::{PATIENT, SPACING_MS, check_outages, job, python, service};
use crate::support::process::{Plan, Ratelimitd};
use crate::tools::{REMEDY, in_project, read, run};

/// Reads the wait in `put off 1 for 0.199271 s`, in microseconds.
fn put_off_micros(line: &str) -> Option<u64> {
    let (_, wait) = line.strip_prefix("put off ")?.split_once(" for ")?;
    let (whole, millionths) = wait.strip_suffix(" s")?.split_once('.')?;
    Some(whole.parse::<u64>().ok()? * 1_000_000 + millionths.parse::<u64>().ok()?)
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

/// Runs the worker of a queue with one slot: jobs 0 to 2 are for one third party, 3 to 5 for another one. Returns the
/// jobs in the order of their starts.
fn queue_worker_jobs(service: &Ratelimitd, key: &str, name: &str) -> Vec<u32> {
    let caller = python("queue_worker.py");
    let arguments = [&["--key", key, "--slots", "1", "--jobs", "6", "--name", name], PATIENT].concat();
    let (printed, _) = caller.finish(&caller.worker, service, &arguments);
    let jobs: Vec<_> = printed.lines().filter_map(job).collect();
    for name in [format!(", {name}"), format!(", other.{name}")] {
        let starts: Vec<_> = jobs.iter().filter(|job| job.rest == name).map(|job| job.start_ms).collect();
        assert_eq!(starts.len(), 3, "{printed}");
        assert!((0..).zip(&starts).all(|(number, start)| start + 2 >= number * SPACING_MS), "{printed}");
    }
    // At most the turns of two jobs before. In whole seconds, it would be longer.
    let mut waits = printed.lines().filter_map(put_off_micros);
    assert!(waits.all(|micros| (1..=2 * 1_000 * SPACING_MS).contains(&micros)), "{printed}");
    jobs.into_iter().map(|job| job.number).collect()
}

/// The only slot takes the first job of the other third party while jobs wait for their turn. On a machine that stops
/// for as long as such a wait, the turn can come first, so there are several tries.
#[test]
fn queue_worker() {
    let service = service();
    for key in ["third_party", "third_party_queue"] {
        let orders: Vec<_> =
            ["a", "b", "c", "d", "e"].map(|name| queue_worker_jobs(&service, key, name)).into();
        assert!(orders.iter().any(|order| order[..2] == [0, 3]), "the slot waits with its job: {orders:?}");
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

/// Many requests in one call, each on its own, and many descriptors in one request, all or none.
#[test]
fn many_in_one_call() {
    let service = service();
    let program = format!(
        "import sys; sys.path.insert(0, {:?}); sys.dont_write_bytecode = True\n\
         from ratelimit import RateLimit\n\
         limit = RateLimit('127.0.0.1:{}', 'deny', 10)\n\
         user = lambda name: [('user', name)]\n\
         each = limit.ask_each([('callers', user('a'), 1), ('callers', user('a'), 9), ('', user('a'), 1)])\n\
         print([(answer.admitted, answer.decided) for answer in each])\n\
         print([limit.ask_all('callers', [user('b'), user('c')], hits).admitted for hits in (2, 2, 1)])\n",
        in_project("examples/callers/python"),
        service.http_port()
    );
    let printed = run("python3", &["-c", &program]);
    assert_eq!(printed, "[(True, True), (False, True), (False, False)]\n[True, False, True]\n");
}
