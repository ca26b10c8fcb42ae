//! A real Envoy with a rate-limit filter, in front of its own upstream.
//!
//! Envoy chooses free ports and reports them, so no other process can take them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::daemon::Daemon;
use super::http::{self, Response};

pub use bootstrap::{Bootstrap, per_filter_route, route};

mod bootstrap;
pub mod settling;
pub mod upstream;

/// The path of the Envoy to test with, where the Envoy from PyPI does not run.
const OVERRIDE: &str = "RATELIMITD_TEST_ENVOY";

/// A running Envoy, killed when dropped.
pub struct Envoy {
    /// Keeps the configuration and the socket of the upstream until Envoy has ended.
    _directory: TempDir,
    _daemon: Daemon,
    admin: u16,
    listeners: Vec<(String, u16)>,
}

impl Envoy {
    /// Starts Envoy and waits until it is ready.
    pub fn start(bootstrap: &Bootstrap) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let upstream = directory.path().join("upstream.sock");
        Self::run(directory, &bootstrap.to_json(&upstream).to_string())
    }

    /// Starts Envoy with a complete configuration. [`Envoy::get`] uses its listener `http`.
    pub fn start_text(configuration: &str) -> Self {
        Self::run(TempDir::new().expect("a temporary directory"), configuration)
    }

    fn run(directory: TempDir, configuration: &str) -> Self {
        // Envoy chooses the format by the file extension. JSON is valid YAML.
        let file = directory.path().join("envoy.yaml");
        std::fs::write(&file, configuration).expect("a configuration file");
        let mut daemon = launch(&file);
        let admin_file = admin_address_file(&file);
        let admin = daemon
            .wait_ready(|_| {
                let address: SocketAddr = std::fs::read_to_string(&admin_file).ok()?.trim().parse().ok()?;
                (http::get(address.port(), "/ready", &[]).ok()?.status == 200).then_some(address.port())
            })
            .unwrap_or_else(|problem| panic!("Envoy does not become ready: {problem:?}"));
        Self { listeners: listeners(admin), admin, _daemon: daemon, _directory: directory }
    }

    /// The port of a listener, by its name.
    pub fn port(&self, listener: &str) -> u16 {
        let found = self.listeners.iter().find(|(name, _)| name == listener);
        found.unwrap_or_else(|| panic!("Envoy has no listener `{listener}` with a port")).1
    }

    /// A GET through the HTTP filter.
    pub fn get(&self, path: &str) -> Response {
        self.get_with(path, &[])
    }

    /// A GET with these headers through the HTTP filter.
    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        http::get(self.port("http"), path, headers).expect("Envoy answers every HTTP request")
    }

    /// A GET through the HTTP filter with a path and headers that need not be text.
    pub fn get_with_bytes(&self, path: &[u8], headers: &[(&str, &[u8])]) -> Response {
        http::get_with_bytes(self.port("http"), path, headers).expect("Envoy answers every HTTP request")
    }

    /// A GET through the TCP filter; `None` when Envoy closed the connection instead.
    pub fn get_over_tcp(&self) -> Option<Response> {
        http::get(self.port("tcp"), "/", &[]).ok()
    }

    /// The value of one of Envoy's counters or gauges; 0 while it does not exist.
    pub fn stat(&self, name: &str) -> u64 {
        let stats =
            http::get(self.admin, "/stats?format=json", &[]).expect("Envoy's admin port answers").body;
        let stats: Value = serde_json::from_str(&stats).expect("statistics in JSON");
        let all = stats["stats"].as_array().expect("a list of statistics");
        all.iter().find(|stat| stat["name"] == name).and_then(|stat| stat["value"].as_u64()).unwrap_or(0)
    }
}

fn launch(file: &Path) -> Daemon {
    let mut command = Command::new(binary());
    command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]);
    // Access logs are otherwise written every ten seconds.
    command.args(["--file-flush-interval-msec", "100"]);
    command.arg("--admin-address-path").arg(admin_address_file(file)).arg("-c").arg(file);
    Daemon::spawn("Envoy", "make tools", &mut command)
}

fn admin_address_file(bootstrap: &Path) -> PathBuf {
    bootstrap.with_extension("admin")
}

fn binary() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/envoy");
    #[expect(clippy::disallowed_methods, reason = "a switch of the test run, not a setting of the program")]
    let binary = std::env::var_os(OVERRIDE).map_or(installed, PathBuf::from);
    assert!(
        binary.exists(),
        "no Envoy at {}: run `make tools`, or set {OVERRIDE} to an Envoy 1.40 binary where PyPI has none",
        binary.display()
    );
    binary
}

/// The listeners that have a port, with the port that the system has chosen.
fn listeners(admin: u16) -> Vec<(String, u16)> {
    let answer = http::get(admin, "/listeners?format=json", &[]).expect("Envoy's admin port answers").body;
    let answer: Value = serde_json::from_str(&answer).expect("listeners in JSON");
    let named_port = |listener: &Value| {
        let port = listener["local_address"]["socket_address"]["port_value"].as_u64()?;
        Some((listener["name"].as_str()?.to_owned(), u16::try_from(port).ok()?))
    };
    answer["listener_statuses"]
        .as_array()
        .expect("a list of listeners")
        .iter()
        .filter_map(named_port)
        .collect()
}

#[test]
fn a_route_without_rate_limits_reaches_the_upstream() {
    // The route has no `rate_limits`, so Envoy does not call the rate limiter. No server listens on port 9.
    let envoy = Envoy::start(&Bootstrap::new(9).fail_closed().route(route("/", serde_json::json!([]))));
    let answer = envoy.get("/");
    assert_eq!((answer.status, answer.body.as_str()), (200, "upstream"));
    assert_eq!(envoy.stat("http.ingress.downstream_rq_2xx"), 1);
    assert_eq!(envoy.get("/elsewhere").status, 200, "the route is a prefix");
}
