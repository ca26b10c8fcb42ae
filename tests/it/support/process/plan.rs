//! How a `ratelimitd` under test is set up: its settings file, its environment, its rules and its ports.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Ratelimitd;
use crate::support::daemon::{Daemon, NotReady};
use crate::support::{http, ports};

const ATTEMPTS: usize = 5;

/// The prefix of the settings in the environment. The developer's own must not reach the process under test.
const ENVIRONMENT: &str = "RATELIMITD__";

/// What a process is started with. Everything not said here is the binary's own default.
#[derive(Default)]
pub struct Plan {
    settings: Vec<(String, Value)>,
    environment: Vec<(String, String)>,
    rules: Vec<(String, String)>,
    alive_is_enough: bool,
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
        self.environment.push((format!("{ENVIRONMENT}{key}"), value.to_owned()));
        self
    }

    /// A variable that is not a setting.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The redis store, at this URL. A decision may take longer than the default 15 ms, which a machine that is busy
    /// with other tests can take from any process; a test about the time limit sets its own.
    pub fn redis(self, url: &str) -> Self {
        self.set("store.kind", "redis").set("store.redis.url", url).set("store.redis.timeout", "1s")
    }

    /// Waits for `/livez` in place of `/readyz`: for a process that is to start without its store.
    pub fn alive_is_enough(mut self) -> Self {
        self.alive_is_enough = true;
        self
    }

    /// Starts the process and waits until it is ready; fails the test when it is not in time.
    pub fn start(self) -> Ratelimitd {
        self.try_start().unwrap_or_else(|problem| panic!("ratelimitd does not get ready: {problem:?}"))
    }

    /// Starts the process and waits until it is ready, or says why it never was.
    pub fn try_start(self) -> Result<Ratelimitd, NotReady> {
        let directory = TempDir::new().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("rules")).expect("a rules directory");
        for (name, text) in &self.rules {
            std::fs::write(directory.path().join("rules").join(name), text).expect("a rule file");
        }
        let mut attempts = 1;
        loop {
            let ports = Ports::free();
            match self.launch(&ports, directory.path()) {
                Ok(daemon) => {
                    return Ok(Ratelimitd { plan: self, ports, directory, daemon });
                }
                Err(problem) if problem.port_was_taken() && attempts < ATTEMPTS => attempts += 1,
                Err(problem) => return Err(problem),
            }
        }
    }

    pub(super) fn launch(&self, ports: &Ports, directory: &Path) -> Result<Daemon, NotReady> {
        let file = directory.join("ratelimitd.yaml");
        // JSON is YAML too.
        std::fs::write(&file, self.settings(ports, directory).to_string()).expect("a settings file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
        #[expect(clippy::disallowed_methods, reason = "settings of the shell must not reach the service")]
        let inherited = std::env::vars_os().map(|(key, _)| key);
        for key in inherited.filter(|key| key.to_string_lossy().starts_with(ENVIRONMENT)) {
            command.env_remove(key);
        }
        command.envs(self.environment.iter().cloned()).arg("serve").arg("--config").arg(file);
        let mut daemon = Daemon::spawn("ratelimitd", "cargo build", &mut command);
        let probe = if self.alive_is_enough { "/livez" } else { "/readyz" };
        daemon.wait_ready(|_| (http::get(ports.http, probe, &[]).ok()?.status == 200).then_some(()))?;
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

/// The three ports of one process.
pub(super) struct Ports {
    pub grpc: u16,
    pub http: u16,
    pub admin: u16,
}

impl Ports {
    fn free() -> Self {
        Self { grpc: ports::free(), http: ports::free(), admin: ports::free() }
    }
}
