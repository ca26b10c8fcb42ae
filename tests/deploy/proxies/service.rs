//! The service with the settings of an example, behind a relay that simulates outages.

use std::net::SocketAddr;
use std::process::Command;

use crate::support::daemon::Daemon;
use crate::support::redis::proxy::Proxy as Relay;
use crate::support::{http, ports};

/// A running service. Its proxy calls the relay.
pub struct Service {
    settings: String,
    port: u16,
    daemon: Daemon,
    pub relay: Relay,
}

impl Service {
    /// Starts the service as the example starts it, on free ports.
    pub fn start(folder: &str) -> Self {
        let settings = format!("{folder}/ratelimitd.yaml");
        let port = ports::free();
        let relay = Relay::start(SocketAddr::from(([127, 0, 0, 1], port)));
        Self { daemon: launch(&settings, port), settings, port, relay }
    }

    pub fn stop(&mut self) {
        self.daemon.kill();
        self.relay.refuse();
        self.relay.cut();
    }

    pub fn restart(&mut self) {
        self.daemon.kill();
        self.daemon = launch(&self.settings, self.port);
        self.relay.restore();
    }
}

fn launch(settings: &str, port: u16) -> Daemon {
    let address = |port: u16| format!("127.0.0.1:{port}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    command
        .args(["serve", "--config", settings])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RATELIMITD__SERVER__HTTP__ADDRESS", address(port))
        .env("RATELIMITD__SERVER__GRPC__ADDRESS", address(ports::free()))
        .env("RATELIMITD__SERVER__ADMIN__ADDRESS", "off");
    let mut daemon = Daemon::spawn("ratelimitd", "cargo build", &mut command);
    daemon
        .wait_ready(|_| (http::get(port, "/readyz", &[]).ok()?.status == 200).then_some(()))
        .unwrap_or_else(|problem| panic!("ratelimitd does not become ready: {problem:?}"));
    daemon
}
