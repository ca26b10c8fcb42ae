//! The whole service in this process, with counters in memory, on free ports of loopback.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use ratelimitd::app::{Addresses, App, LogQueue};
use ratelimitd::net::ListenAddress;
use ratelimitd::settings::{Settings, Written};
use tokio::runtime::{Builder, Runtime};

/// A limit of each kind. `alive` is never used up, so that a target can ask whether the service still answers.
const RULES: &str = r#"
domain: fuzz
descriptors:
  - { key: alive, rate_limit: { unlimited: true } }
  - { key: fixed, rate_limit: { unit: second, requests_per_unit: 5, name: five } }
  - { key: sliding, rate_limit: { unit: minute, requests_per_unit: 5, algorithm: sliding_window } }
  - { key: log, rate_limit: { unit: minute, requests_per_unit: 5, algorithm: sliding_log } }
  - { key: gcra, rate_limit: { unit: hour, requests_per_unit: 50, algorithm: gcra, burst: 3 } }
  - { key: queue, rate_limit: { unit: hour, requests_per_unit: 2, algorithm: leaky_bucket, mode: queue, burst: 3 } }
  - { key: bucket, rate_limit: { unit: day, requests_per_unit: 9, algorithm: token_bucket, refill: interval } }
  - { key: blocked, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: quota_a, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: quota_b, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: path, value: "/a/*/b*", share_threshold: true, rate_limit: { unit: second, requests_per_unit: 3 } }
  - key: user
    metadata: { tier: gold, depth: { n: [1, true, null] } }
    rate_limits:
      - { unit: year, requests_per_unit: 4, algorithm: gcra, burst: 2, charging: prepaid }
      - { unit: month, requests_per_unit: 9, charging: postpaid, replaces: [{ name: five }] }
    descriptors:
      - { key: team, value: a, rate_limit: { unit: week, requests_per_unit: 5 } }
      - { key: team, rate_limit: { unit: week, requests_per_unit: 7 } }
"#;

/// Further settings: every optional part of an answer.
const SETTINGS: [(&str, &str); 9] = [
    ("RATELIMITD__SERVER__GRPC__ADDRESS", "127.0.0.1:0"),
    ("RATELIMITD__SERVER__HTTP__ADDRESS", "127.0.0.1:0"),
    ("RATELIMITD__SERVER__ADMIN__ADDRESS", "127.0.0.1:0"),
    ("RATELIMITD__SERVER__WORKERS", "1"),
    ("RATELIMITD__RULES__WATCH", "false"),
    ("RATELIMITD__STORE__KIND", "memory"),
    ("RATELIMITD__RESPONSE__HEADERS", "ietf"),
    ("RATELIMITD__RESPONSE__RETRY_AFTER", "true"),
    ("RATELIMITD__RESPONSE__DYNAMIC_METADATA", "true"),
];

/// The addresses of the service, which is started by the first call.
fn addresses() -> &'static Addresses {
    static SERVICE: OnceLock<Addresses> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let (bound, addresses) = channel();
        thread::Builder::new().name("service".to_owned()).spawn(move || serve(&bound)).expect("a thread");
        addresses.recv().expect("the service starts")
    })
}

/// Serves until the process ends.
fn serve(bound: &Sender<Addresses>) {
    let runtime = current_thread_runtime();
    let ended = runtime.block_on(async {
        let app = prepare().await;
        bound.send(app.addresses().expect("bound ports")).expect("a receiver");
        app.run(std::future::pending()).await
    });
    panic!("the service ended: {ended:?}");
}

async fn prepare() -> App {
    // The rules are read once, so the folder can go afterwards.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, RULES).expect("a rule file");
    let mut variables = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    variables.push(("RATELIMITD__RULES__PATH".to_owned(), rules.display().to_string()));
    let written = Written::collect(None, variables).expect("no file");
    let (settings, _) = Settings::load(written).expect("valid settings");
    App::prepare(settings, LogQueue::start(std::io::sink()))
        .await
        .expect("the rules are valid and the ports are free")
}

/// The address of the gRPC port.
pub fn grpc() -> SocketAddr {
    tcp(&addresses().grpc)
}

/// The address of the port with `/json`.
pub fn http() -> SocketAddr {
    tcp(&addresses().http)
}

fn tcp(address: &ListenAddress) -> SocketAddr {
    match address {
        ListenAddress::Tcp(address) => *address,
        ListenAddress::Name(..) | ListenAddress::Unix(_) => {
            unreachable!("the settings name a TCP address")
        }
    }
}

pub fn current_thread_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}
