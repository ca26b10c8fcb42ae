//! The service with the settings of an example, behind a relay that simulates outages.

use std::net::SocketAddr;
use std::process::Command;

use crate::support::daemon::Daemon;
use crate::support::redis::proxy::Proxy as Relay;
use crate::support::{http, ports};

/// A running service. Its proxy calls the relay.
pub struct Service {
    /// The settings of the example.
    file: String,
    /// Variables without `RATELIMITD__`, and their values.
    settings: Vec<(&'static str, String)>,
    port: u16,
    daemon: Daemon,
    pub relay: Relay,
}

impl Service {
    /// Starts the service as the example starts it, on free ports, with these settings in place of those of the
    /// example.
    pub fn start(folder: &str, settings: &[(&'static str, String)]) -> Self {
        let file = format!("{folder}/ratelimitd.yaml");
        let port = ports::free();
        let relay = Relay::start(SocketAddr::from(([127, 0, 0, 1], port)));
        Self { daemon: launch(&file, settings, port), file, settings: settings.to_vec(), port, relay }
    }

    /// The status of a call that does not go through the relay.
    pub fn check(&self) -> u16 {
        http::get(self.port, "/check", &[("x-forwarded-for", "192.0.2.7")]).expect("an answer").status
    }

    pub fn stop(&mut self) {
        self.daemon.kill();
        self.relay.refuse();
        self.relay.cut();
    }

    pub fn restart(&mut self) {
        self.daemon.kill();
        self.daemon = launch(&self.file, &self.settings, self.port);
        self.relay.restore();
    }
}

fn launch(file: &str, settings: &[(&'static str, String)], port: u16) -> Daemon {
    let address = |port: u16| format!("127.0.0.1:{port}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    command
        .args(["serve", "--config", file])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RATELIMITD__SERVER__HTTP__ADDRESS", address(port))
        .env("RATELIMITD__SERVER__GRPC__ADDRESS", address(ports::free()))
        .env("RATELIMITD__SERVER__ADMIN__ADDRESS", "off");
    command.envs(settings.iter().map(|(name, value)| (format!("RATELIMITD__{name}"), value)));
    let mut daemon = Daemon::spawn("ratelimitd", "cargo build", &mut command);
    daemon
        .wait_ready(|_| (http::get(port, "/readyz", &[]).ok()?.status == 200).then_some(()))
        .unwrap_or_else(|problem| panic!("ratelimitd does not become ready: {problem:?}"));
    daemon
}
