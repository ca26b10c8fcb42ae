//! A real Envoy with a rate-limit filter, in front of an upstream of its own.
//!
//! Envoy binds its ports itself and is asked for them, so they cannot be taken by anybody else.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::daemon::Daemon;
use super::http::{self, Response};

pub use bootstrap::{Bootstrap, per_filter_route, route};

mod bootstrap;

/// Names the Envoy to test with, where the one from PyPI does not run.
const OVERRIDE: &str = "RATELIMITD_TEST_ENVOY";

/// A running Envoy, killed when dropped.
pub struct Envoy {
    /// Keeps the bootstrap and the upstream's socket until Envoy is gone.
    _directory: TempDir,
    _daemon: Daemon,
    admin: u16,
    http: u16,
    tcp: u16,
}

impl Envoy {
    /// Starts Envoy and waits until it serves.
    pub fn start(bootstrap: &Bootstrap) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let file = directory.path().join("envoy.json");
        let upstream = directory.path().join("upstream.sock");
        std::fs::write(&file, bootstrap.to_json(&upstream).to_string()).expect("a bootstrap file");

        let mut daemon = launch(&file);
        let admin_file = admin_address_file(&file);
        let admin = daemon
            .wait_ready(|_| {
                let address: SocketAddr = std::fs::read_to_string(&admin_file).ok()?.trim().parse().ok()?;
                (http::get(address.port(), "/ready", &[]).ok()?.status == 200).then_some(address.port())
            })
            .unwrap_or_else(|problem| panic!("Envoy does not get ready: {problem:?}"));
        let port = |listener: &str| listener_port(admin, listener);
        Self {
            http: port("http"),
            tcp: port("tcp"),
            admin,
            _daemon: daemon,
            _directory: directory,
        }
    }

    /// A GET through the HTTP filter.
    pub fn get(&self, path: &str) -> Response {
        self.get_with(path, &[])
    }

    /// A GET with these headers through the HTTP filter.
    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        http::get(self.http, path, headers).expect("Envoy answers every HTTP request")
    }

    /// A GET through the TCP filter; `None` when Envoy closed the connection instead.
    pub fn get_over_tcp(&self) -> Option<Response> {
        http::get(self.tcp, "/", &[]).ok()
    }

    /// One of Envoy's own counters or gauges; 0 while it does not exist.
    pub fn stat(&self, name: &str) -> u64 {
        let stats = http::get(self.admin, "/stats?format=json", &[])
            .expect("Envoy's admin port answers")
            .body;
        let stats: Value = serde_json::from_str(&stats).expect("statistics in JSON");
        let all = stats["stats"].as_array().expect("a list of statistics");
        all.iter()
            .find(|stat| stat["name"] == name)
            .and_then(|stat| stat["value"].as_u64())
            .unwrap_or(0)
    }
}

/// Lets Envoy read a configuration file and nothing more; what it has against the file, if anything.
pub fn validate(file: &Path) -> Result<(), String> {
    let output = Command::new(binary())
        .args(["--mode", "validate", "--log-level", "warning", "-c"])
        .arg(file)
        .output()
        .expect("Envoy runs");
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn launch(file: &Path) -> Daemon {
    let mut command = Command::new(binary());
    command.args([
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "--log-level",
        "warning",
    ]);
    command
        .arg("--admin-address-path")
        .arg(admin_address_file(file))
        .arg("-c")
        .arg(file);
    Daemon::spawn("Envoy", "make tools", &mut command)
}

fn admin_address_file(bootstrap: &Path) -> PathBuf {
    bootstrap.with_extension("admin")
}

fn binary() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/envoy");
    let binary = std::env::var_os(OVERRIDE).map_or(installed, PathBuf::from);
    assert!(
        binary.exists(),
        "no Envoy at {}: run `make tools`, or set {OVERRIDE} to an Envoy 1.40 binary where PyPI has none",
        binary.display()
    );
    binary
}

fn listener_port(admin: u16, name: &str) -> u16 {
    let listeners = http::get(admin, "/listeners?format=json", &[])
        .expect("Envoy's admin port answers")
        .body;
    let listeners: Value = serde_json::from_str(&listeners).expect("listeners in JSON");
    let all = listeners["listener_statuses"]
        .as_array()
        .expect("a list of listeners");
    let listener = all
        .iter()
        .find(|listener| listener["name"] == name)
        .expect("Envoy has the listener");
    let port = listener["local_address"]["socket_address"]["port_value"].as_u64();
    port.and_then(|port| u16::try_from(port).ok())
        .expect("the listener has a port")
}

#[test]
fn an_upstream_answers_when_nobody_is_asked() {
    // No `rate_limits` on the route: Envoy never calls the rate limiter, which is not there.
    let envoy = Envoy::start(
        &Bootstrap::new(9)
            .fail_closed()
            .route(route("/", serde_json::json!([]))),
    );
    let answer = envoy.get("/");
    assert_eq!((answer.status, answer.body.as_str()), (200, "upstream"));
    assert_eq!(envoy.stat("http.ingress.downstream_rq_2xx"), 1);
    assert_eq!(envoy.get("/elsewhere").status, 200, "the route is a prefix");
}
