//! The real `ratelimitd` binary, with rules, settings and ports of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::daemon::{Daemon, NotReady};
use super::{http, ports};

const ATTEMPTS: usize = 5;

/// The prefix of the settings in the environment. The developer's own must not reach the process under test.
const ENVIRONMENT: &str = "RATELIMITD__";

/// What a process is started with. Everything not said here is the binary's own default.
#[derive(Default)]
pub struct Plan {
    settings: Vec<(String, Value)>,
    environment: Vec<(String, String)>,
    rules: Vec<(String, String)>,
}

impl Plan {
    /// The memory store and one rule file.
    pub fn new(rules: &str) -> Self {
        Self::default().rule_file("rules.yaml", rules)
    }

    /// One more file in the rules directory.
    pub fn rule_file(mut self, name: &str, text: &str) -> Self {
        self.rules.push((name.to_owned(), text.to_owned()));
        self
    }

    /// A line of the settings file, by its dotted key: `set("store.kind", "redis")`.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.settings.push((key.to_owned(), value.into()));
        self
    }

    /// The same by the environment: `env("STORE__KIND", "redis")`.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment
            .push((format!("{ENVIRONMENT}{key}"), value.to_owned()));
        self
    }

    /// The redis store, at this URL.
    pub fn redis(self, url: &str) -> Self {
        self.set("store.kind", "redis").set("store.redis.url", url)
    }

    /// Starts the process and waits until it is ready; fails the test when it is not in time.
    pub fn start(self) -> Ratelimitd {
        self.try_start()
            .unwrap_or_else(|problem| panic!("ratelimitd does not get ready: {problem:?}"))
    }

    /// Starts the process and waits until it is ready, or says why it never was.
    pub fn try_start(self) -> Result<Ratelimitd, NotReady> {
        let directory = TempDir::new().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("rules")).expect("a rules directory");
        for (name, text) in &self.rules {
            std::fs::write(directory.path().join("rules").join(name), text).expect("a rule file");
        }
        for _ in 1..ATTEMPTS {
            let ports = Ports::free();
            match self.launch(&ports, directory.path()) {
                Ok(daemon) => {
                    return Ok(Ratelimitd {
                        plan: self,
                        ports,
                        directory,
                        daemon,
                    });
                }
                Err(problem) if problem.port_was_taken() => {}
                Err(problem) => return Err(problem),
            }
        }
        let ports = Ports::free();
        let daemon = self.launch(&ports, directory.path())?;
        Ok(Ratelimitd {
            plan: self,
            ports,
            directory,
            daemon,
        })
    }

    fn launch(&self, ports: &Ports, directory: &Path) -> Result<Daemon, NotReady> {
        let file = directory.join("ratelimitd.yaml");
        // JSON is YAML too.
        std::fs::write(&file, self.settings(ports, directory).to_string()).expect("a settings file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
        for (key, _) in std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with(ENVIRONMENT))
        {
            command.env_remove(key);
        }
        command
            .envs(self.environment.iter().cloned())
            .arg("serve")
            .arg("--config")
            .arg(file);
        let mut daemon = Daemon::spawn("ratelimitd", "cargo build", &mut command);
        daemon.wait_ready(|_| (http::get(ports.http, "/readyz", &[]).ok()?.status == 200).then_some(()))?;
        Ok(daemon)
    }

    fn settings(&self, ports: &Ports, directory: &Path) -> Value {
        let mut settings = json!({
            "server": {
                "grpc": {"address": format!("127.0.0.1:{}", ports.grpc)},
                "http": {"address": format!("127.0.0.1:{}", ports.http)},
                "admin": {"address": format!("127.0.0.1:{}", ports.admin)},
            },
            "rules": {"path": directory.join("rules")},
        });
        for (key, value) in &self.settings {
            let pointer = key.split('.').fold(&mut settings, |level, part| &mut level[part]);
            *pointer = value.clone();
        }
        settings
    }
}

struct Ports {
    grpc: u16,
    http: u16,
    admin: u16,
}

impl Ports {
    fn free() -> Self {
        Self {
            grpc: ports::free(),
            http: ports::free(),
            admin: ports::free(),
        }
    }
}

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
