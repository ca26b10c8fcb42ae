//! `/check`: proxies ask about each request, and a map makes the descriptors.

mod answers;
mod envoy;
mod hostile;
mod map_file;
mod nginx;
mod redis;

use std::path::PathBuf;

use tempfile::TempDir;

use crate::support::http::{self, Response};
use crate::support::process::{Plan, Ratelimitd};

/// Five requests per client; two per path and method.
const RULES: &str = "
domain: edge
descriptors:
  - { key: client, rate_limit: { name: per-client, unit: year, requests_per_unit: 5 } }
  - key: path
    descriptors:
      - { key: method, rate_limit: { name: per-path, unit: year, requests_per_unit: 2 } }
";

/// A `ratelimitd` with a map.
struct Checked {
    service: Ratelimitd,
    /// Has the map.
    folder: TempDir,
}

impl Checked {
    fn start(map: &str) -> Self {
        Self::start_with(map, |plan| plan)
    }

    fn start_with(map: &str, change: impl FnOnce(Plan) -> Plan) -> Self {
        let folder = TempDir::new().expect("a temporary directory");
        let file = folder.path().join("map.yaml");
        std::fs::write(&file, map).expect("room for the map");
        let plan = Plan::new(RULES).set("server.http.check.map", file.display().to_string());
        Self { service: change(plan).start(), folder }
    }

    fn map_file(&self) -> PathBuf {
        self.folder.path().join("map.yaml")
    }

    fn port(&self) -> u16 {
        self.service.http_port()
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        http::get(self.port(), path, headers).expect("an answer")
    }

    /// The statuses of this many equal calls.
    fn statuses(&self, calls: usize, path: &str, headers: &[(&str, &str)]) -> Vec<u16> {
        (0..calls).map(|_| self.get(path, headers).status).collect()
    }

    /// Fails the test if the metrics do not have this line.
    fn assert_metric(&self, line: &str) {
        let metrics = self.get("/metrics", &[]).body;
        assert!(metrics.lines().any(|shown| shown == line), "{line} is not in\n{metrics}");
    }
}
