//! A process of the binary that is called `ratelimit`, with nothing but environment variables, as the service of
//! `envoyproxy/ratelimit` is started.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use tempfile::TempDir;

use super::daemon::Daemon;
use super::{http, ports, program, wait};

/// A running service, killed when dropped.
pub struct Ratelimit {
    pub grpc_port: u16,
    pub http_port: u16,
    pub debug_port: u16,
    directory: TempDir,
    daemon: Daemon,
}

/// The environment and the rule files of a service.
#[derive(Default)]
pub struct Environment {
    variables: Vec<(String, String)>,
    files: Vec<(String, String)>,
    arguments: Vec<String>,
    /// The program is called by its own name, with this as its first argument.
    first_argument: Option<&'static str>,
}

impl Environment {
    /// Rules are read from a directory of its own, with the watching that a ConfigMap needs.
    pub fn new() -> Self {
        Self::default()
            .set("RUNTIME_SUBDIRECTORY", "ratelimit")
            .set("RUNTIME_WATCH_ROOT", "false")
            .set("RUNTIME_IGNOREDOTFILES", "true")
            .set("LOG_LEVEL", "info")
    }

    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Uses the Redis at this port.
    pub fn redis(self, port: u16) -> Self {
        self.set("REDIS_SOCKET_TYPE", "tcp").set("REDIS_URL", &format!("127.0.0.1:{port}"))
    }

    /// Adds a file to the rule directory.
    pub fn rules(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Calls the program by its own name, with the name of the other as its argument.
    pub fn with_name_as_argument(mut self) -> Self {
        self.first_argument = Some("/bin/ratelimit");
        self
    }

    /// Starts the process and waits until its HTTP port answers, whatever it answers.
    pub fn start(self) -> Ratelimit {
        let directory = TempDir::new().expect("a temporary directory");
        let rules = directory.path().join("ratelimit/config");
        std::fs::create_dir_all(&rules).expect("a directory");
        for (name, text) in &self.files {
            std::fs::write(rules.join(name), text).expect("a rule file");
        }
        let program = directory.path().join("ratelimit-bin");
        std::fs::create_dir(&program).expect("a directory");
        let program = program.join(if self.first_argument.is_some() { "ratelimitd" } else { "ratelimit" });
        symlink(program::service(), &program).expect("a link");
        let [grpc_port, http_port, debug_port] = [ports::free(), ports::free(), ports::free()];
        let mut command = Command::new(&program);
        command.env_clear().args(self.first_argument).args(&self.arguments);
        command.env("RUNTIME_ROOT", directory.path());
        let ports = [("GRPC_PORT", grpc_port), ("PORT", http_port), ("DEBUG_PORT", debug_port)];
        command.envs(ports.map(|(name, port)| (name, port.to_string()))).envs(self.variables);
        let mut daemon = Daemon::spawn("ratelimit", "cargo build", &mut command);
        let ready = daemon.wait_ready(|_| http::get(http_port, "/livez", &[]).ok().map(|_| ()));
        ready.unwrap_or_else(|problem| panic!("ratelimit does not start: {problem:?}"));
        Ratelimit { grpc_port, http_port, debug_port, directory, daemon }
    }
}

impl Ratelimit {
    /// The directory of the rule files.
    pub fn rules(&self) -> PathBuf {
        self.directory.path().join("ratelimit/config")
    }

    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Waits until the log has `text`, and returns the log.
    pub fn log_with(&self, text: &str) -> String {
        self.daemon.log_with(text)
    }

    /// The status of `/healthcheck`.
    pub fn healthcheck(&self) -> u16 {
        http::get(self.http_port, "/healthcheck", &[]).expect("an answer").status
    }

    pub fn wait_healthy(&self) {
        wait::expect("the service is healthy", || self.healthcheck() == 200);
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.daemon.terminate();
        self.daemon.wait_exit()
    }
}
