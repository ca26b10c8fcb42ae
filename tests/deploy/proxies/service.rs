//! The service with the settings of an example, behind a relay that simulates outages.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::daemon::Daemon;
use crate::support::redis::proxy::Proxy as Relay;
use crate::support::{http, ports};

/// A running service. Its proxy calls the relay.
pub struct Service {
    settings: String,
    map: Option<PathBuf>,
    port: u16,
    daemon: Daemon,
    pub relay: Relay,
}

impl Service {
    /// Starts the service as the example starts it, on free ports; with this map in place of that of the example.
    pub fn start(folder: &str, map: Option<&Path>) -> Self {
        let settings = format!("{folder}/ratelimitd.yaml");
        let port = ports::free();
        let relay = Relay::start(SocketAddr::from(([127, 0, 0, 1], port)));
        let map = map.map(Path::to_owned);
        Self { daemon: launch(&settings, map.as_deref(), port), settings, map, port, relay }
    }

    pub fn stop(&mut self) {
        self.daemon.kill();
        self.relay.refuse();
        self.relay.cut();
    }

    pub fn restart(&mut self) {
        self.daemon.kill();
        self.daemon = launch(&self.settings, self.map.as_deref(), self.port);
        self.relay.restore();
    }
}

fn launch(settings: &str, map: Option<&Path>, port: u16) -> Daemon {
    let address = |port: u16| format!("127.0.0.1:{port}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    command
        .args(["serve", "--config", settings])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RATELIMITD__SERVER__HTTP__ADDRESS", address(port))
        .env("RATELIMITD__SERVER__GRPC__ADDRESS", address(ports::free()))
        .env("RATELIMITD__SERVER__ADMIN__ADDRESS", "off");
    command.envs(map.map(|map| ("RATELIMITD__SERVER__HTTP__CHECK__MAP", map)));
    let mut daemon = Daemon::spawn("ratelimitd", "cargo build", &mut command);
    daemon
        .wait_ready(|_| (http::get(port, "/readyz", &[]).ok()?.status == 200).then_some(()))
        .unwrap_or_else(|problem| panic!("ratelimitd does not become ready: {problem:?}"));
    daemon
}
