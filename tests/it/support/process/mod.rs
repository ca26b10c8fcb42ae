//! A process of the real `ratelimitd` binary, with its own rules, settings and ports.

use std::path::PathBuf;
use std::process::ExitStatus;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::daemon::Daemon;
use super::grpc::Rls;
use super::{http, wait};

pub use plan::Plan;
use plan::Ports;

pub mod plan;

/// A running service, killed when dropped.
pub struct Ratelimitd {
    plan: Plan,
    ports: Ports,
    directory: TempDir,
    daemon: Daemon,
}

impl Ratelimitd {
    /// Starts a service with the memory store and one rule file.
    pub fn start(rules: &str) -> Self {
        Plan::new(rules).start()
    }

    pub fn grpc_port(&self) -> u16 {
        self.ports.grpc
    }

    pub fn http_port(&self) -> u16 {
        self.ports.http
    }

    pub fn admin_port(&self) -> u16 {
        self.ports.admin
    }

    /// The directory of the rule files, for tests that change them.
    pub fn rules(&self) -> PathBuf {
        self.directory.path().join("rules")
    }

    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Waits until the log has `text`, and returns the log.
    pub fn log_with(&self, text: &str) -> String {
        self.daemon.log_with(text)
    }

    /// The units that are left of the limit of a descriptor with one entry, by a check that charges nothing.
    pub fn left(&self, domain: &str, (key, value): (&str, &str)) -> u64 {
        let entries = json!([{"key": key, "value": value}]);
        let check = json!({"domain": domain, "descriptors": [{"entries": entries, "hitsAddend": 0}]});
        let stream = http::connect(self.http_port()).expect("the service accepts connections");
        let lines = ["POST /json HTTP/1.1", "host: localhost"];
        let answer = http::exchange(stream, &lines, &check.to_string()).expect("an answer");
        let answer: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"));
        answer["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0)
    }

    /// The largest resident memory of the process so far, in KiB.
    pub fn peak_memory_kib(&self) -> u64 {
        self.proc_field("status", "VmHWM")
    }

    /// A number from a file of the process in /proc.
    pub fn proc_field(&self, file: &str, name: &str) -> u64 {
        let path = format!("/proc/{}/{file}", self.daemon.id());
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let field = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
        let value = text.lines().find_map(field).unwrap_or_else(|| panic!("{path} has no {name}"));
        value.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// The time on a CPU of each thread so far, in nanoseconds, with the thread's name.
    pub fn cpu_by_thread(&self) -> Vec<(String, u64)> {
        let threads =
            std::fs::read_dir(format!("/proc/{}/task", self.daemon.id())).expect("the process runs");
        let times = threads.filter_map(|thread| {
            let path = thread.ok()?.path();
            // Fails for a thread that has just ended.
            let name = std::fs::read_to_string(path.join("comm")).ok()?;
            let times = std::fs::read_to_string(path.join("schedstat")).ok()?;
            let on_cpu = times.split(' ').next().and_then(|time| time.parse().ok()).expect("a number");
            Some((name.trim_end().to_owned(), on_cpu))
        });
        times.collect()
    }

    /// The file of the token that the service has made for itself.
    pub fn own_token_file(&self) -> Option<PathBuf> {
        self.plan.own_token_file(&self.ports)
    }

    /// Ends the process at once (SIGKILL).
    pub fn kill(&mut self) {
        self.daemon.kill();
    }

    /// Sends SIGTERM and does not wait for the end of the process.
    pub fn terminate(&self) {
        self.daemon.terminate();
    }

    /// Sends these signals at once, written without SIG.
    pub fn signal(&self, names: &[&str]) {
        self.daemon.signals(names);
    }

    pub fn has_ended(&mut self) -> bool {
        self.daemon.exit_status().is_some()
    }

    /// Waits until the process has ended without SIGKILL.
    pub fn wait_exit(&mut self) -> ExitStatus {
        self.daemon.wait_exit()
    }

    /// Starts the service again with the same settings, the same ports and the current files in the rules directory.
    pub fn restart(&mut self) {
        self.kill();
        let launched = self.plan.launch(&self.ports, self.directory.path());
        self.daemon =
            launched.unwrap_or_else(|problem| panic!("ratelimitd does not start again: {problem:?}"));
    }
}

impl Drop for Ratelimitd {
    fn drop(&mut self) {
        self.plan.remove_own_token(&self.ports);
    }
}

#[cfg(test)]
const TWO_A_YEAR: &str = "
domain: support
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 2, algorithm: fixed_window } }]
";

#[tokio::test]
async fn a_running_process_loads_changed_rules() {
    let service = Ratelimitd::start(TWO_A_YEAR);
    let path = service.rules().join("rules.yaml");
    std::fs::write(path, TWO_A_YEAR.replace("requests_per_unit: 2", "requests_per_unit: 7"))
        .expect("a rule file");

    let limit = || http::get(service.admin_port(), "/rlconfig", &[]).expect("an answer").body;
    wait::expect("the new limit", || limit().contains('7'));
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(rls.send_one("support", &[("user", "ann")]).await.1.limit_remaining, 6);
}

#[test]
fn a_process_that_does_not_start_reports_the_reason() {
    let Err(problem) = Plan::new(TWO_A_YEAR).set("store.kind", "paper").try_start() else {
        panic!("there is no store kind `paper`");
    };
    assert!(problem.status.is_some_and(|status| !status.success()), "{problem:?}");
    assert!(problem.log.contains("store.kind") && problem.log.contains("paper"), "{problem:?}");
}
