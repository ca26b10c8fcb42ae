//! The callers of `examples/callers`: each program runs against the running service.
//!
//! The times are lower bounds, which hold on a machine of any load: a limit admits nothing too early.

use std::path::PathBuf;
use std::process::Command;

use crate::support::daemon::Daemon;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, ports};
use crate::tools::{REMEDY, document, in_project, read, run};

const JOBS: u32 = 6;
/// Between two jobs, in milliseconds: five per second.
const SPACING_MS: u64 = 200;
/// Admitted at once by the limit `per-user`.
const BURST: usize = 3;

/// A language of `examples/callers`: how to start its programs, and whether they call the gRPC port.
struct Caller {
    worker: Vec<PathBuf>,
    api: Vec<PathBuf>,
    over_grpc: bool,
}

fn interpreted(program: &str, worker: &str, api: &str) -> Caller {
    let command = |script: &str| vec![PathBuf::from(program), in_project("examples/callers").join(script)];
    Caller { worker: command(worker), api: command(api), over_grpc: false }
}

fn python() -> Caller {
    interpreted("python3", "python/worker.py", "python/api.py")
}

fn node() -> Caller {
    interpreted("node", "node/worker.mjs", "node/api.mjs")
}

fn go() -> Caller {
    let folder = in_project("target/examples-go");
    let build = |name: &str| {
        let program = folder.join(name);
        let output = program.to_str().expect("a path of text");
        run("go", &["build", "-C", "examples/callers/go", "-o", output, &format!("./{name}")]);
        vec![program]
    };
    Caller { worker: build("worker"), api: build("api"), over_grpc: true }
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
    Caller { worker: built("worker"), api: built("api"), over_grpc: true }
}

/// The service with the settings and rules of the examples.
fn service() -> Ratelimitd {
    let settings = document(&read("examples/callers/settings.yaml"));
    assert_eq!(settings["response"]["exact_durations"], true);
    Plan::new(&read("examples/callers/rules.yaml")).set("response.exact_durations", true).start()
}

impl Caller {
    fn command(&self, parts: &[PathBuf], service: &Ratelimitd) -> Command {
        let port = if self.over_grpc { service.grpc_port() } else { service.http_port() };
        let mut command = Command::new(&parts[0]);
        command.args(&parts[1..]).args(["--address", &format!("127.0.0.1:{port}")]);
        command
    }

    /// For each job of the worker: the time of its start in milliseconds, and how often it was denied before.
    fn jobs(&self, service: &Ratelimitd, key: &str) -> Vec<(u64, u32)> {
        let mut command = self.command(&self.worker, service);
        let output =
            command.args(["--key", key, "--jobs", &JOBS.to_string()]).output().expect("the worker starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        printed.lines().map(job).collect()
    }
}

/// Reads `job 2 after 0.412 s, denied 1`.
fn job(line: &str) -> (u64, u32) {
    let words: Vec<&str> = line.split([' ', ',']).collect();
    let ["job", _, "after", seconds, "s", "", "denied", denied] = words[..] else {
        panic!("not a line of a worker: {line}");
    };
    let (whole, thousandths) = seconds.split_once('.').expect("three decimals");
    let number = |digits: &str| digits.parse::<u64>().expect("digits");
    (number(whole) * 1_000 + number(thousandths), denied.parse().expect("a count"))
}

fn check_worker(caller: &Caller) {
    let service = service();
    for key in ["third_party", "third_party_queue"] {
        let jobs = caller.jobs(&service, key);
        assert_eq!(jobs.len(), JOBS as usize, "{jobs:?}");
        for (number, (start_ms, denied)) in (0..).zip(&jobs) {
            // The worker's clock starts up to a millisecond before or after the first decision.
            assert!(start_ms + 2 >= number * SPACING_MS, "{key}: job {number} is too early: {jobs:?}");
            // A worker that sleeps as long as it is told is admitted when it asks again.
            let may_be_denied = u32::from(key == "third_party");
            assert!(*denied <= may_be_denied, "{key}: job {number} was denied too often: {jobs:?}");
        }
    }
}

fn check_api(caller: &Caller) {
    let service = service();
    let port = ports::free();
    let mut command = caller.command(&caller.api, &service);
    command.args(["--port", &port.to_string()]);
    let mut api = Daemon::spawn("the API server", REMEDY, &mut command);
    // A user of its own, so that the wait uses up nothing.
    let ready = api.wait_ready(|_| http::get(port, "/", &[("x-user", "probe")]).ok());
    ready.unwrap_or_else(|problem| panic!("the API server does not answer: {problem:?}"));

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

    // Without a decision the examples let the request pass.
    drop(service);
    assert_eq!(http::get(port, "/", &[("x-user", "ann")]).expect("an answer").status, 200);
}

#[test]
fn python_worker() {
    check_worker(&python());
}

#[test]
fn python_api() {
    check_api(&python());
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
fn go_worker() {
    check_worker(&go());
}

#[test]
fn go_api() {
    check_api(&go());
}

#[test]
fn rust_worker() {
    check_worker(&rust());
}

#[test]
fn rust_api() {
    check_api(&rust());
}
