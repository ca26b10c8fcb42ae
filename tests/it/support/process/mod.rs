//! The real `ratelimitd` binary, with rules, settings and ports of its own.

use std::path::PathBuf;
use std::process::ExitStatus;

use tempfile::TempDir;

use super::daemon::Daemon;
use super::grpc::Rls;
use super::{http, wait};

pub use plan::Plan;
use plan::Ports;

mod plan;

/// A running service, killed when dropped.
pub struct Ratelimitd {
    plan: Plan,
    ports: Ports,
    directory: TempDir,
    daemon: Daemon,
}

impl Ratelimitd {
    /// The memory store and one rule file.
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

    /// Ends the process at once (SIGKILL).
    pub fn kill(&mut self) {
        self.daemon.kill();
    }

    /// Sends SIGTERM, and does not wait.
    pub fn terminate(&self) {
        self.daemon.terminate();
    }

    /// Waits until the process has ended by itself.
    pub fn wait_exit(&mut self) -> ExitStatus {
        self.daemon.wait_exit()
    }

    /// Starts it again with the same settings and ports, and whatever rules are in the directory now.
    pub fn restart(&mut self) {
        self.kill();
        let launched = self.plan.launch(&self.ports, self.directory.path());
        self.daemon = launched.unwrap_or_else(|problem| panic!("ratelimitd does not come back: {problem:?}"));
    }
}

#[cfg(test)]
const TWO: &str = "
domain: support
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 2, algorithm: fixed_window } }]
";

#[tokio::test]
async fn rules_can_be_changed_under_a_running_process() {
    let service = Ratelimitd::start(TWO);
    let path = service.rules().join("rules.yaml");
    std::fs::write(path, TWO.replace("requests_per_unit: 2", "requests_per_unit: 7")).expect("a rule file");

    let limit = || http::get(service.admin_port(), "/rlconfig", &[]).expect("an answer").body;
    wait::expect("the new limit", || limit().contains('7'));
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(rls.ask("support", &[("user", "ann")]).await.1.limit_remaining, 6);
}

#[test]
fn a_process_that_refuses_to_start_says_why() {
    let Err(problem) = Plan::new(TWO).set("store.kind", "paper").try_start() else {
        panic!("there is no store of paper");
    };
    assert!(problem.status.is_some_and(|status| !status.success()), "{problem:?}");
    assert!(problem.log.contains("store.kind") && problem.log.contains("paper"), "{problem:?}");
}
