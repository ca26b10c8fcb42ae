//! The callers of `examples/callers`: each program runs against the running service, also while the service is away.
//!
//! The times are lower bounds, which hold on a machine of any load: a limit admits nothing too early.

mod pause;
mod python;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::daemon::Daemon;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::{http, ports, wait};
use crate::tools::{REMEDY, document, in_project, read, run};

const JOBS: u32 = 6;
/// Between two jobs, in milliseconds: five per second.
const SPACING_MS: u64 = 200;
/// Admitted at once by the limit `per-user`.
const BURST: usize = 3;
/// The limit `tenant-tokens`.
const TOKENS: u64 = 10_000;
/// The limit `job-tokens`.
const JOB_TOKENS: u64 = 100_000;

/// Longer than a busy machine delays a decision, so that no policy decides while the service is there.
const PATIENT: &[&str] = &["--deadline", "10"];
const ALLOW: &[&str] = &["--on-failure", "allow"];
const DENY: &[&str] = &["--on-failure", "deny"];
/// What every program logs when a policy decides.
const NO_DECISION: &str = "no decision";

/// A language of `examples/callers`: how to start its programs, and whether they call the gRPC port.
struct Caller {
    worker: Vec<PathBuf>,
    api: Vec<PathBuf>,
    budget: Vec<PathBuf>,
    job: Vec<PathBuf>,
    over_grpc: bool,
}

/// The programs in Python, with one of the forms of the worker.
fn python(worker: &str) -> Caller {
    let program = |name| vec![PathBuf::from("python3"), in_project("examples/callers/python").join(name)];
    Caller {
        worker: program(worker),
        api: program("api.py"),
        budget: program("budget.py"),
        job: program("job.py"),
        over_grpc: false,
    }
}

fn node() -> Caller {
    let program = |name| vec![PathBuf::from("node"), in_project("examples/callers/node").join(name)];
    Caller {
        worker: program("worker.mjs"),
        api: program("api.mjs"),
        budget: program("budget.mjs"),
        job: program("job.mjs"),
        over_grpc: false,
    }
}

fn go() -> Caller {
    let folder = in_project("target/examples-go");
    let build = |name: &str| {
        let program = folder.join(name);
        let output = program.to_str().expect("a path of text");
        run("go", &["build", "-C", "examples/callers/go", "-o", output, &format!("./{name}")]);
        vec![program]
    };
    Caller {
        worker: build("worker"),
        api: build("api"),
        budget: build("budget"),
        job: build("job"),
        over_grpc: true,
    }
}

/// Cargo builds examples beside the folder of the test binaries.
fn rust() -> Caller {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the folder of the profile").join("examples");
    let built = |name: &str| {
        let program = folder.join(name);
        assert!(program.exists(), "{} is missing: run `{REMEDY}`", program.display());
        vec![program]
    };
    Caller {
        worker: built("worker"),
        api: built("api"),
        budget: built("budget"),
        job: built("job"),
        over_grpc: true,
    }
}

/// The service with the settings and rules of the examples.
fn service() -> Ratelimitd {
    plan().start()
}

fn plan() -> Plan {
    let settings = document(&read("examples/callers/settings.yaml"));
    assert_eq!(settings["response"]["dynamic_metadata"], true);
    Plan::new(&read("examples/callers/rules.yaml")).set("response.dynamic_metadata", true)
}

impl Caller {
    fn command(&self, program: &[PathBuf], service: &Ratelimitd, arguments: &[&str]) -> Command {
        // Envoy's protocol lacks holds.
        let over_grpc = self.over_grpc && program != self.job;
        let port = if over_grpc { service.grpc_port() } else { service.http_port() };
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).args(["--address", &format!("127.0.0.1:{port}")]).args(arguments);
        command
    }

    /// Runs a program to its end, which must be a success. Returns its standard output, and its standard error.
    fn finish(&self, program: &[PathBuf], service: &Ratelimitd, arguments: &[&str]) -> (String, String) {
        let Output { status, stdout, stderr } =
            self.command(program, service, arguments).output().expect("the program starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (printed, logged) = (text(&stdout), text(&stderr));
        assert!(status.success(), "{printed}{logged}");
        (printed, logged)
    }

    /// The jobs of the worker, in the order of their starts.
    fn jobs(&self, service: &Ratelimitd, key: &str) -> Vec<Job> {
        let jobs = JOBS.to_string();
        let arguments = [&["--key", key, "--jobs", &jobs], PATIENT].concat();
        let jobs: Vec<_> = self.finish(&self.worker, service, &arguments).0.lines().filter_map(job).collect();
        assert_eq!(jobs.len(), JOBS as usize, "{jobs:?}");
        for (number, job) in (0..).zip(&jobs) {
            // The worker's clock starts up to a millisecond before or after the first decision.
            assert!(job.start_ms + 2 >= number * SPACING_MS, "{key}: job {number} is too early: {jobs:?}");
        }
        jobs
    }

    /// Starts the API server and waits until it answers.
    fn serve(&self, service: &Ratelimitd, arguments: &[&str]) -> (Daemon, u16) {
        let port = ports::free();
        let mut command = self.command(&self.api, service, arguments);
        command.args(["--port", &port.to_string()]);
        let mut api = Daemon::spawn("the API server", REMEDY, &mut command);
        // A user of its own, so that the wait uses up nothing.
        let ready = api.wait_ready(|_| http::get(port, "/", &[("x-user", "probe")]).ok());
        ready.unwrap_or_else(|problem| panic!("the API server does not answer: {problem:?}"));
        (api, port)
    }
}

#[derive(Debug)]
struct Job {
    number: u32,
    start_ms: u64,
    rest: String,
}

/// Reads `job 2 after 0.412 s, denied 1`. Not every line of a worker is the start of a job.
fn job(line: &str) -> Option<Job> {
    let (number, rest) = line.strip_prefix("job ")?.split_once(" after ")?;
    let (seconds, rest) = rest.split_once(" s")?;
    let (whole, thousandths) = seconds.split_once('.')?;
    let whole: u64 = whole.parse().ok()?;
    let start_ms = whole * 1_000 + thousandths.parse::<u64>().ok()?;
    Some(Job { number: number.parse().ok()?, start_ms, rest: rest.to_owned() })
}

fn check_worker(caller: &Caller) {
    let service = service();
    for (key, may_be_denied) in
        [("third_party", &[", denied 0", ", denied 1"][..]), ("third_party_queue", &[", denied 0"])]
    {
        let jobs = caller.jobs(&service, key);
        // A worker that sleeps as long as it is told is admitted when it asks again.
        assert!(jobs.iter().all(|job| may_be_denied.contains(&job.rest.as_str())), "{key}: {jobs:?}");
    }
}

fn check_api(caller: &Caller) {
    let mut service = service();
    let (_api, port) = caller.serve(&service, PATIENT);
    let answers: Vec<_> =
        (0..=BURST).map(|_| http::get(port, "/", &[("x-user", "ann")]).expect("an answer")).collect();
    let codes: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(codes, [200, 200, 200, 429]);
    let retry_after = answers[BURST].header("retry-after").expect("Retry-After");
    let seconds: u64 = retry_after.parse().expect("whole seconds");
    assert!((1..=20).contains(&seconds), "one request each 20 s, not {seconds}");
    assert_eq!(
        http::get(port, "/", &[("x-user", "bob")]).expect("an answer").status,
        200,
        "each user has a limit"
    );

    // Without a decision the examples let the request pass, unless they are told otherwise.
    let (_denying, denying_port) = caller.serve(&service, DENY);
    let (allowing, port) = caller.serve(&service, &[]);
    service.kill();
    for _ in 0..=BURST {
        assert_eq!(http::get(port, "/", &[("x-user", "ann")]).expect("an answer").status, 200);
        let denied = http::get(denying_port, "/", &[("x-user", "ann")]).expect("an answer");
        assert_eq!((denied.status, denied.header("retry-after")), (503, Some("1")));
    }
    allowing.log_with(NO_DECISION);
    service.restart();
    wait::expect("the limit holds again", || {
        http::get(port, "/", &[("x-user", "ann")]).expect("an answer").status == 429
    });
}

/// A worker that starts without the service, loses it again in the middle, and has it back, does all of its jobs.
fn check_outages(caller: &Caller) {
    let mut service = service();
    service.kill();
    let without = |log: &str| log.matches(NO_DECISION).count();
    let jobs = ["--jobs", "12"];
    let mut worker =
        Daemon::spawn("the worker", REMEDY, &mut caller.command(&caller.worker, &service, &jobs));
    let log = worker.log_with(NO_DECISION);
    assert!(!log.contains("job "), "without a decision nothing is done:\n{log}");

    service.restart();
    wait::expect("some jobs are done", || worker.log().lines().filter_map(job).count() >= 3);
    service.kill();
    let before = without(&worker.log());
    wait::expect("the worker sees the outage", || without(&worker.log()) > before + 1);
    let log = worker.log();
    let (at, _) = log.match_indices(NO_DECISION).nth(before).expect("an outage");
    assert!(!log[at..].contains("job "), "without a decision nothing is done:\n{log}");

    service.restart();
    assert!(worker.wait_exit().success());
    let log = worker.log();
    let mut numbers: Vec<_> = log.lines().filter_map(job).map(|job| job.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..12).collect::<Vec<_>>(), "{log}");
    let strange =
        |line: &&str| job(line).is_none() && !line.contains(NO_DECISION) && !line.starts_with("put off ");
    assert_eq!(log.lines().find(strange), None, "no trace of the stack:\n{log}");

    service.kill();
    let (printed, logged) = caller.finish(&caller.worker, &service, &[&["--jobs", "6"], ALLOW].concat());
    assert_eq!(printed.lines().filter_map(job).count(), 6, "{printed}");
    assert!((printed + &logged).contains(NO_DECISION), "{logged}");
}

/// The tokens that are left for `tenant`, after one more.
fn tokens_left(service: &Ratelimitd, tenant: &str) -> u64 {
    let entries = format!("{{\"key\": \"tenant\", \"value\": \"{tenant}\"}}");
    let body = format!("{{\"domain\": \"callers\", \"descriptors\": [{{\"entries\": [{entries}]}}]}}");
    let port = http::connect(service.http_port()).expect("a connection");
    let answer = http::exchange(port, &["POST /json HTTP/1.1", "host: localhost"], &body).expect("an answer");
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    answer["statuses"][0]["limitRemaining"].as_u64().expect("a number")
}

fn check_budget(caller: &Caller) {
    let mut service = service();
    let budget = |service: &Ratelimitd, arguments: &[&str]| {
        caller.finish(&caller.budget, service, &[PATIENT, arguments].concat()).0
    };
    let settled = budget(&service, &["--requests", "3", "--estimate", "2000", "--cost", "53"]);
    assert_eq!(
        settled,
        "request 0 cost 53, settled\nrequest 1 cost 53, settled\nrequest 2 cost 53, settled\n"
    );
    // A token more is left if the minute ends in between.
    let left = tokens_left(&service, "acme");
    assert!((TOKENS - 3 * 53 - 1..TOKENS - 1).contains(&left), "{left}");

    let used_up =
        budget(&service, &["--tenant", "b", "--requests", "2", "--estimate", "6000", "--cost", "9000"]);
    assert!(used_up.starts_with("request 0 cost 9000, settled\nrequest 1 denied, next try in "), "{used_up}");

    service.kill();
    let lost = caller.finish(&caller.budget, &service, &[&["--requests", "1"], ALLOW].concat()).0;
    assert!(lost.starts_with("request 0 cost 53, not settled"), "{lost}");
}

/// The service is away at the job's start and end, and the job is charged its real cost once.
fn check_job(caller: &Caller) {
    let redis = Redis::start();
    let mut service = plan().redis(&redis.url()).set("store.redis.timeout", "5s").start();
    let (printed, _) = caller.finish(&caller.job, &service, PATIENT);
    assert_eq!(printed, "job starts\njob cost 31840, settled\n");
    assert_eq!(service.left("callers", ("budget", "acme")), JOB_TOKENS - 31_840);
    service.kill();
    let arguments = ["--tenant", "b", "--cost", "70000", "--seconds", "3"];
    let mut job = Daemon::spawn("the job", REMEDY, &mut caller.command(&caller.job, &service, &arguments));
    wait::expect("the job sees the outage", || job.log().contains(NO_DECISION));
    assert!(!job.log().contains("job starts"), "{}", job.log());
    service.restart();
    wait::expect("the job starts", || job.log().contains("job starts"));
    service.kill();
    // The job ends, but cannot commit.
    wait::expect("the job commits", || {
        job.log().matches(NO_DECISION).count() > 1 || job.log().contains("not committed")
    });
    service.restart();
    assert!(job.wait_exit().success());
    assert!(job.log().contains("job cost 70000, settled"), "{}", job.log());
    assert_eq!(service.left("callers", ("budget", "b")), JOB_TOKENS - 70_000);
    check_lost_place(caller, &redis, &service);
}

/// Redis loses its data, and other jobs occupy both places: a renewal says so.
fn check_lost_place(caller: &Caller, redis: &Redis, service: &Ratelimitd) {
    let arguments = [&["--tenant", "c", "--seconds", "4"], PATIENT].concat();
    let mut job = Daemon::spawn("the job", REMEDY, &mut caller.command(&caller.job, service, &arguments));
    wait::expect("the job starts", || job.log().contains("job starts"));
    redis.run::<()>(&["FLUSHALL"]).expect("an empty Redis");
    for _ in 0..2 {
        let descriptor = json!({"entries": [{"key": "budget", "value": "c"}], "hitsAddend": 1});
        let body = json!({"domain": "callers", "descriptors": [descriptor]}).to_string();
        let stream = http::connect(service.http_port()).expect("a connection");
        let lines = ["POST /holds HTTP/1.1", "host: localhost"];
        assert_eq!(http::exchange(stream, &lines, &body).expect("an answer").status, 200);
    }
    assert!(job.wait_exit().success());
    assert!(job.log().contains("job lost its place"), "{}", job.log());
}

#[test]
fn python_job() {
    check_job(&python("worker.py"));
}

#[test]
fn node_job() {
    check_job(&node());
}

#[test]
fn go_job() {
    check_job(&go());
}

#[test]
fn rust_job() {
    check_job(&rust());
}

#[test]
fn python_worker() {
    check_worker(&python("worker.py"));
}

#[test]
fn python_api() {
    check_api(&python("worker.py"));
}

#[test]
fn python_outages() {
    check_outages(&python("worker.py"));
}

#[test]
fn python_budget() {
    check_budget(&python("worker.py"));
}

#[test]
fn node_worker() {
    check_worker(&node());
}

#[test]
fn node_api() {
    check_api(&node());
}

#[test]
fn node_outages() {
    check_outages(&node());
}

#[test]
fn node_budget() {
    check_budget(&node());
}

#[test]
fn go_worker() {
    check_worker(&go());
}

#[test]
fn go_api() {
    check_api(&go());
}

#[test]
fn go_outages() {
    check_outages(&go());
}

#[test]
fn go_budget() {
    check_budget(&go());
}

#[test]
fn rust_worker() {
    check_worker(&rust());
}

#[test]
fn rust_api() {
    check_api(&rust());
}

#[test]
fn rust_outages() {
    check_outages(&rust());
}

#[test]
fn rust_budget() {
    check_budget(&rust());
}
