//! The files of the image, put together by the script that the Dockerfile runs. Docker itself is not needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::daemon::Daemon;
use super::{http, ports};

pub const DOCKERFILE: &str = include_str!("../../../Dockerfile");
pub const PROGRAM: &str = "usr/local/bin/ratelimitd";

/// The root directory of the image.
pub struct Image(TempDir);

impl Image {
    pub fn new() -> Self {
        assert!(
            DOCKERFILE.contains("scripts/image-root /out \"")
                && DOCKERFILE.contains("COPY --from=binary /out /\n")
        );
        let root = TempDir::new().expect("a folder");
        let programs = Path::new(env!("CARGO_BIN_EXE_ratelimitd")).parent().expect("a folder");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/image-root");
        let made = Command::new(script).arg(root.path()).arg(programs).output();
        let made = made.expect("the script runs");
        assert!(made.status.success(), "{made:?}");
        Self(root)
    }

    /// The folder in which the image starts its programs.
    pub fn working_folder(&self) -> PathBuf {
        let (_, rest) = DOCKERFILE.rsplit_once("\nWORKDIR /").expect("a folder");
        self.program(rest.lines().next().expect("a name"))
    }

    pub fn program(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }
}

/// The ports of a service. The estates leave all but the one of the metrics at their defaults, which the tests cannot:
/// tests run side by side.
pub struct Ports {
    pub grpc: u16,
    pub http: u16,
    pub debug: u16,
    pub metrics: u16,
}

impl Ports {
    pub fn free() -> Self {
        let [grpc, http, debug, metrics] = [(); 4].map(|()| ports::free());
        Self { grpc, http, debug, metrics }
    }

    fn variables(&self) -> [(&'static str, String); 3] {
        let Self { grpc, http, debug, .. } = self;
        [("GRPC_PORT", grpc), ("PORT", http), ("DEBUG_PORT", debug)]
            .map(|(name, port)| (name, port.to_string()))
    }
}

/// Starts a program of the image, and waits until `/healthcheck` is 200, as the probes of the estates do.
pub fn start(command: &mut Command, variables: &[(&str, String)], ports: &Ports) -> Daemon {
    command.env_clear().envs(variables.iter().map(|(name, value)| (*name, value)));
    let mut daemon = Daemon::spawn("ratelimit", "cargo build", command.envs(ports.variables()));
    let is_healthy = |_| (http::get(ports.http, "/healthcheck", &[]).ok()?.status == 200).then_some(());
    let ready = daemon.wait_ready(is_healthy);
    ready.unwrap_or_else(|problem| panic!("the service does not become healthy: {problem:?}"));
    daemon
}
