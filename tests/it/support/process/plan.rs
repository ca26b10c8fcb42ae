//! The setup of a `ratelimitd` under test: settings file, environment, rules and ports.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Ratelimitd;
use crate::support::daemon::{Daemon, NotReady};
use crate::support::{http, ports, program, wait};

const ATTEMPTS: usize = 5;

/// The prefix of settings in the environment. Those of the developer's shell must not reach the process under test.
const ENVIRONMENT: &str = "RATELIMITD__";
/// Variables of the shell that must not reach the service: settings, and those that only the tests read.
const NOT_INHERITED: &str = "RATELIMITD_";

/// Whether the tests of a module run on tonic's gRPC server (`service/by_tonic.rs`).
pub fn is_by_tonic(module: &str) -> bool {
    module.contains("::by_tonic")
}

/// The configuration of a process. Each absent setting has its default.
#[derive(Default)]
pub struct Plan {
    settings: Vec<(String, Value)>,
    environment: Vec<(String, String)>,
    rules: Vec<(String, String)>,
    wait_for_livez: bool,
    wait_for_log: bool,
    stderr: Option<File>,
    /// Soft and hard limit of open files.
    open_files: Option<(u64, u64)>,
    ignored_signals: Vec<&'static str>,
}

impl Plan {
    /// A process with the memory store and one rule file.
    pub fn new(rules: &str) -> Self {
        Self::default().rule_file("rules.yaml", rules)
    }

    /// Adds a file to the rules directory; the name may start with folders.
    pub fn rule_file(mut self, name: &str, text: &str) -> Self {
        self.rules.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Sets a key of the settings file, written with dots: `set("store.kind", "redis")`.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.settings.push((key.to_owned(), value.into()));
        self
    }

    /// The gRPC server for the tests of a module, `module_path!()`.
    pub fn server_of(self, module: &str) -> Self {
        if is_by_tonic(module) { self.set("server.grpc.fast", false) } else { self }
    }

    /// Sets a setting with an environment variable: `env("STORE__KIND", "redis")`.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.push((format!("{ENVIRONMENT}{key}"), value.to_owned()));
        self
    }

    /// Sets an environment variable that is not a setting.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Uses the Redis store at this URL. The timeout of a decision is longer than the default of 15 ms, because a
    /// machine that is busy with other tests can delay any process that long. A test of the timeout sets its own.
    pub fn redis(self, url: &str) -> Self {
        self.set("store.kind", "redis").set("store.redis.url", url).set("store.redis.timeout", "1s")
    }

    /// Sends the log of the process, its standard error, to this file. `Ratelimitd::log` is then empty.
    pub fn log_to(mut self, file: File) -> Self {
        self.stderr = Some(file);
        self
    }

    /// Starts the process with this signal ignored, as `nohup` does for HUP.
    pub fn ignore(mut self, signal: &'static str) -> Self {
        self.ignored_signals.push(signal);
        self
    }

    /// Waits for `/livez` instead of `/readyz`: for a process that has to start while its store is down.
    pub fn wait_for_livez(mut self) -> Self {
        self.wait_for_livez = true;
        self
    }

    /// Waits for the line `serving` of the log: for a process whose HTTP port has TLS.
    pub fn wait_for_log(mut self) -> Self {
        self.wait_for_log = true;
        self
    }

    /// Starts the process with these limits of open files.
    pub fn open_files(mut self, soft: u64, hard: u64) -> Self {
        self.open_files = Some((soft, hard));
        self
    }

    /// Starts the process and waits until it is ready. Fails the test if it does not become ready in time.
    pub fn start(self) -> Ratelimitd {
        self.try_start().unwrap_or_else(|problem| panic!("ratelimitd does not become ready: {problem:?}"))
    }

    /// Starts the process and waits until it is ready. Returns the reason if it does not become ready.
    pub fn try_start(self) -> Result<Ratelimitd, NotReady> {
        let directory = TempDir::new().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("rules")).expect("a rules directory");
        for (name, text) in &self.rules {
            let path = directory.path().join("rules").join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a rules directory");
            std::fs::write(path, text).expect("a rule file");
        }
        let mut attempts = 1;
        loop {
            let ports = Ports::free();
            match self.launch(&ports, directory.path()) {
                Ok(daemon) => {
                    return Ok(Ratelimitd { plan: self, ports, directory, daemon });
                }
                Err(problem) => {
                    self.remove_own_token(&ports);
                    if !problem.port_was_taken() || attempts == ATTEMPTS {
                        return Err(problem);
                    }
                    attempts += 1;
                }
            }
        }
    }

    /// The file of the token that a process with these ports has made for itself.
    pub(super) fn own_token_file(&self, ports: &Ports) -> Option<PathBuf> {
        let address = self.settings.iter().rfind(|(key, _)| key == "server.admin.address");
        let socket = address.and_then(|(_, address)| address.as_str()?.strip_prefix("unix:"));
        let place = match socket {
            Some(path) => path.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"),
            None => ports.admin.to_string(),
        };
        let files =
            ["/run/ratelimitd", "/dev/shm"].map(|folder| format!("{folder}/ratelimitd-{place}.token"));
        files.map(PathBuf::from).into_iter().find(|file| file.exists())
    }

    pub(super) fn remove_own_token(&self, ports: &Ports) {
        if let Some(file) = self.own_token_file(ports) {
            // Another test may have the port by now.
            let _ = std::fs::remove_file(file);
        }
    }

    pub(super) fn launch(&self, ports: &Ports, directory: &Path) -> Result<Daemon, NotReady> {
        let file = directory.join("ratelimitd.yaml");
        // JSON is valid YAML.
        std::fs::write(&file, self.settings(ports, directory).to_string()).expect("a settings file");
        let mut command = self.command();
        #[expect(clippy::disallowed_methods, reason = "settings of the shell must not reach the service")]
        let inherited = std::env::vars_os().map(|(key, _)| key);
        for key in inherited.filter(|key| key.to_string_lossy().starts_with(NOT_INHERITED)) {
            command.env_remove(key);
        }
        command.envs(self.environment.iter().cloned()).arg("serve").arg("--config").arg(file);
        let stderr = self.stderr.as_ref().map(|file| file.try_clone().expect("a file descriptor"));
        let mut daemon = Daemon::spawn_with_stderr("ratelimitd", "cargo build", &mut command, stderr);
        if self.wait_for_log {
            wait::until(wait::PATIENCE, || daemon.log().contains(" serving ").then_some(()));
            return Ok(daemon);
        }
        let probe = if self.wait_for_livez { "/livez" } else { "/readyz" };
        daemon.wait_ready(|_| (http::get(ports.http, probe, &[]).ok()?.status == 200).then_some(()))?;
        Ok(daemon)
    }

    fn command(&self) -> Command {
        let program = program::service();
        // A program inherits the limits and the ignored signals of its shell.
        let mut before = String::new();
        if let Some((soft, hard)) = self.open_files {
            before += &format!("ulimit -S -n {soft}; ulimit -H -n {hard}; ");
        }
        before.extend(self.ignored_signals.iter().map(|name| format!("trap '' {name}; ")));
        if before.is_empty() {
            return Command::new(program);
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{before}exec \"$0\" \"$@\"")).arg(program);
        command
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
        if settings["rules"].get("xds").is_some() {
            // Two sources are refused.
            settings["rules"].as_object_mut().expect("a section").remove("path");
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
