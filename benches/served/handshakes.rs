//! What a rush of TLS handshakes costs the calls of an open connection: calls at a steady rate on one connection, while
//! new connections come, each with a full handshake, and go.
//!
//! The key is RSA with 2048 bits, as Envoy Gateway makes them: a signature takes the service about a millisecond of
//! CPU. The generator of the handshakes shares the cores with the service.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::load::{self, Load, Pace, Protocol, Tally};
use crate::scenario::{Scenario, message};
use crate::servers::Program;

/// Calls per second of the connection that is measured.
const CALLS: u64 = 500;
/// New connections per second.
const RUSHES: [u64; 4] = [0, 50, 200, 400];
/// The rush starts before the measured calls and ends after them.
const MARGIN: Duration = Duration::from_millis(500);
const KEYS: usize = 1_000;
const NAME: &str = "localhost";

/// Prints a row for each number of handshakes. Fails if a call or a handshake does.
pub fn run(program: Program<'_>, duration: Duration) -> ExitCode {
    println!("| new connections/s | handshakes/s | failed | calls/s | p50 ms | p99 ms | p99.9 ms | failed |");
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|");
    let files = tempfile::tempdir().expect("a temporary directory");
    let [certificate, key] = make_certificate(&files);
    let rules = Scenario { limit: 1_000_000, ..Scenario::DEFAULT }.rule_file();
    let settings = [
        ("RATELIMITD__SERVER__GRPC__TLS__CERT_FILE", certificate.as_str()),
        ("RATELIMITD__SERVER__GRPC__TLS__KEY_FILE", key.as_str()),
    ];
    let service = program.serve(&rules, None, &settings);
    let tls = trusting(&certificate);
    let mut all_succeed = true;
    for per_second in RUSHES {
        let (rush_tls, address) = (Arc::clone(&tls), service.address);
        let rush = thread::spawn(move || handshakes(address, &rush_tls, per_second, duration + 2 * MARGIN));
        thread::sleep(MARGIN);
        let calls = load::generate(&Load {
            targets: vec![service.address],
            connections: 1,
            pace: Pace::Open { per_second: CALLS },
            duration,
            protocol: Protocol::Grpc,
            messages: Arc::new((0..KEYS).map(|key| message("bench", key, 1)).collect()),
            tls: Some(Arc::clone(&tls)),
        });
        let rush = rush.join().expect("no handshake panics");
        print_row(per_second, &rush, &calls);
        all_succeed &= rush.failed == 0 && calls.failed + calls.broken == 0;
    }
    if all_succeed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A self-signed certificate and its key.
fn make_certificate(files: &TempDir) -> [String; 2] {
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| files.path().join(name).display().to_string());
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=bench"])
        .args(["-addext", &format!("subjectAltName=DNS:{NAME}"), "-addext", "basicConstraints=CA:FALSE"])
        .args(["-out", &certificate, "-keyout", &key])
        .output();
    assert!(made.is_ok_and(|output| output.status.success()), "openssl makes no certificate");
    [certificate, key]
}

fn trusting(certificate: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(Path::new(certificate)).expect("a certificate");
    roots.add(certificate).expect("an authority");
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Each handshake is a full one.
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

#[derive(Debug, Default)]
struct Rush {
    done: u64,
    failed: u64,
    elapsed: Duration,
}

/// Opens connections at this rate, and closes each after its handshake.
fn handshakes(target: SocketAddr, tls: &Arc<ClientConfig>, per_second: u64, duration: Duration) -> Rush {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let started = Instant::now();
    let [done, failed] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    runtime.block_on(async {
        let mut attempts = JoinSet::new();
        let total = per_second * duration.as_millis() as u64 / 1_000;
        for n in 0..total {
            let due = started + Duration::from_micros(n * 1_000_000 / per_second);
            tokio::time::sleep_until(due.into()).await;
            let (tls, done, failed) = (Arc::clone(tls), Arc::clone(&done), Arc::clone(&failed));
            attempts.spawn(async move {
                let count = if handshake(target, tls).await.is_ok() { done } else { failed };
                count.fetch_add(1, Ordering::Relaxed);
            });
            while attempts.try_join_next().is_some() {}
        }
        if total == 0 {
            tokio::time::sleep(duration).await;
        }
        while attempts.join_next().await.is_some() {}
    });
    let [done, failed] = [done, failed].map(|count| count.load(Ordering::Relaxed));
    Rush { done, failed, elapsed: started.elapsed() }
}

async fn handshake(target: SocketAddr, tls: Arc<ClientConfig>) -> std::io::Result<()> {
    let stream = TcpStream::connect(target).await?;
    let name = ServerName::try_from(NAME).expect("a name");
    drop(TlsConnector::from(tls).connect(name, stream).await?);
    Ok(())
}

fn print_row(per_second: u64, rush: &Rush, calls: &Tally) {
    let ms = |quantile| calls.latency.value_at_quantile(quantile) as f64 / 1e3;
    let rate = |count: u64, elapsed: Duration| count as f64 / elapsed.as_secs_f64();
    println!(
        "| {per_second} | {:.0} | {} | {:.0} | {:.2} | {:.2} | {:.2} | {} |",
        rate(rush.done, rush.elapsed),
        rush.failed,
        rate(calls.answered, calls.elapsed),
        ms(0.5),
        ms(0.99),
        ms(0.999),
        calls.failed + calls.broken
    );
}
