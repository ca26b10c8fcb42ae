//! Attacks beside the run, `-- --attacks`: each would take the service away if nothing bounded it. Their rates are low,
//! because they share the cores with the service: the run shows that nothing grows and that nobody else waits.
//!
//! 1. Calls that are reset while their answers wait for the window of the connection, which the client never opens.
//! 2. Idle connections from two addresses that fill the gRPC port.
//! 3. Requests to `/json` whose body never ends, from two addresses.
//! 4. TLS handshakes that the client leaves after the server's part, on the admin port.

use std::fmt;
use std::io::{Read, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};
use tonic::transport::Endpoint;

/// Calls per second that are reset.
const RESETS: u32 = 1_000;
/// Answers that use the connection's window of 64 KiB up.
const TAKEN_FIRST: u32 = 3_000;
/// Idle connections of each address, opened at most this often: more than the port has room for.
const IDLE: usize = 1_600;
const OPEN_EVERY: Duration = Duration::from_millis(10);
/// Half requests of each address.
const HALF: usize = 300;
/// The pause before a closed connection is opened again.
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Handshakes per second.
const HELLOS: u32 = 100;
/// The addresses of the attackers; honest callers come from 127.0.0.1.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
/// The longest that an honest request may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(2);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const HALF_A_REQUEST: &[u8] =
    b"POST /json HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{";

/// The ports of the service.
#[derive(Clone, Copy, Debug)]
pub struct Targets {
    pub grpc: u16,
    pub http: u16,
    pub admin: u16,
}

/// What the attackers did, and what honest clients saw meanwhile.
#[derive(Debug)]
pub struct Outcome {
    resets: u64,
    reset_connections: u64,
    idle: u64,
    half: u64,
    hellos: u64,
    health: Seen,
    newcomers: Seen,
}

/// The requests of an honest client.
#[derive(Debug)]
struct Seen {
    micros: Histogram<u64>,
    failed: u64,
    /// Since the start of the run.
    last_failure: Option<Duration>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resets, reset_connections, idle, half, hellos, health, newcomers } = self;
        writeln!(
            f,
            "attacks: {resets} calls reset on {reset_connections} connections, {idle} idle connections, {half} half \
             requests, {hellos} handshakes left"
        )?;
        writeln!(f, "/livez: {health}")?;
        write!(f, "a call on a new connection: {newcomers}")
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |quantile| self.micros.value_at_quantile(quantile) as f64 / 1e3;
        write!(
            f,
            "{} answered, p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms; {} failed",
            self.micros.len(),
            ms(0.5),
            ms(0.99),
            ms(1.0),
            self.failed
        )?;
        match self.last_failure {
            Some(at) => write!(f, ", the last one after {} s", at.as_secs()),
            None => Ok(()),
        }
    }
}

/// Attacks until `stop`.
pub fn run(targets: Targets, stop: &Arc<AtomicBool>) -> Outcome {
    let counts: [Arc<AtomicU64>; 5] = Default::default();
    let [resets, reset_connections, idle, half, hellos] = counts.each_ref().map(Arc::clone);
    let stopped = || Arc::clone(stop);
    let (in_resets, in_tasks) = (stopped(), stopped());
    let resetting = thread::spawn(move || {
        while !in_resets.load(Ordering::Relaxed) {
            reset_connections.fetch_add(1, Ordering::Relaxed);
            // Ends when the service closes the connection.
            let _ = reset_calls(targets.grpc, &in_resets, &resets);
            thread::sleep(OPEN_AGAIN_AFTER);
        }
    });
    let occupying = thread::spawn(move || {
        let runtime = runtime();
        runtime.block_on(async {
            for address in ADDRESSES {
                for _ in 0..IDLE {
                    runtime.spawn(hold(address, targets.grpc, PREFACE, Arc::clone(&idle)));
                    sleep(OPEN_EVERY).await;
                }
                for _ in 0..HALF {
                    runtime.spawn(hold(address, targets.http, HALF_A_REQUEST, Arc::clone(&half)));
                }
            }
            runtime.spawn(leave_handshakes(targets.admin, hellos));
            while !in_tasks.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(100)).await;
            }
        });
        runtime.shutdown_background();
    });
    let (health, newcomers) = watch(targets, stop);
    resetting.join().expect("no attacker panics");
    occupying.join().expect("no attacker panics");
    let [resets, reset_connections, idle, half, hellos] = counts.map(|count| count.load(Ordering::Relaxed));
    Outcome { resets, reset_connections, idle, half, hellos, health, newcomers }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A frame of HTTP/2: length, type, flags, stream, content.
fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// A whole call without an entry, which is decided and answered.
fn call(stream: u32) -> Vec<u8> {
    let path = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).expect("a short path")];
    block.extend_from_slice(path);
    block.extend_from_slice(b"\x01\x01a\x0f\x10\x10application/grpc\x00\x02te\x08trailers");
    // The domain "soak", and a descriptor without entries.
    let message = b"\0\0\0\0\x08\x0a\x04soak\x12\x00";
    [frame(1, 4, stream, &block), frame(0, 1, stream, message)].concat()
}

fn reset_calls(port: u16, stop: &AtomicBool, resets: &AtomicU64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.write_all(PREFACE)?;
    let (mut answers, mut pongs) = (stream.try_clone()?, stream.try_clone()?);
    thread::spawn(move || answer_pings(&mut answers, &mut pongs));
    for n in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = 2 * n + 1;
        stream.write_all(&call(id))?;
        if n >= TAKEN_FIRST {
            // CANCEL, after the answer had time to be made.
            thread::sleep(Duration::from_secs(1) / RESETS);
            stream.write_all(&frame(3, 0, id, &8_u32.to_be_bytes()))?;
            resets.fetch_add(1, Ordering::Relaxed);
        }
    }
    stream.shutdown(std::net::Shutdown::Both)
}

/// Reads everything, and answers PING and SETTINGS, until the connection ends.
fn answer_pings(answers: &mut impl Read, pongs: &mut TcpStream) -> std::io::Result<()> {
    loop {
        let mut head = [0; 9];
        answers.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut content = vec![0; usize::try_from(length).expect("32 bits")];
        answers.read_exact(&mut content)?;
        match (head[3], head[4] & 1) {
            (6, 0) => pongs.write_all(&frame(6, 1, 0, &content))?,
            (4, 0) => pongs.write_all(&frame(4, 1, 0, b""))?,
            _ => {}
        }
    }
}

/// Keeps one connection that has sent `start` and nothing more; opens it again when it is closed.
async fn hold(from: Ipv4Addr, port: u16, start: &'static [u8], count: Arc<AtomicU64>) {
    loop {
        if let Ok(mut stream) = connect(from, port).await {
            count.fetch_add(1, Ordering::Relaxed);
            let mut ignored = [0; 1_024];
            if stream.write_all(start).await.is_ok() {
                while stream.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
            }
        }
        sleep(OPEN_AGAIN_AFTER).await;
    }
}

async fn connect(from: Ipv4Addr, port: u16) -> std::io::Result<tokio::net::TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(from), 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port).into()).await
}

async fn leave_handshakes(port: u16, count: Arc<AtomicU64>) {
    let hello = Arc::new(client_hello());
    for n in 0_u32.. {
        let (hello, count) = (Arc::clone(&hello), Arc::clone(&count));
        let from = ADDRESSES[usize::try_from(n).expect("32 bits") % ADDRESSES.len()];
        tokio::spawn(async move {
            let Ok(mut stream) = connect(from, port).await else { return };
            if stream.write_all(&hello).await.is_ok() {
                let mut flight = [0; 4_096];
                let _ = timeout(PATIENCE, stream.read(&mut flight)).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        sleep(Duration::from_secs(1) / HELLOS).await;
    }
}

/// The first message of a handshake, which costs its sender nothing when it is sent again.
fn client_hello() -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("room in memory");
    hello
}

/// Asks /livez four times a second, and makes a call on a new connection once a second.
fn watch(targets: Targets, stop: &AtomicBool) -> (Seen, Seen) {
    let (mut health, mut newcomers) = (Seen::nothing(), Seen::nothing());
    let started = Instant::now();
    let runtime = runtime();
    runtime.block_on(async {
        for n in 0_u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            health.record(started, is_alive(targets.http)).await;
            if n.is_multiple_of(4) {
                newcomers.record(started, first_call(targets.grpc)).await;
            }
            sleep(Duration::from_millis(250)).await;
        }
    });
    (health, newcomers)
}

impl Seen {
    fn nothing() -> Self {
        let micros = Histogram::new_with_max(60_000_000, 3).expect("a minute, three digits");
        Self { micros, failed: 0, last_failure: None }
    }

    async fn record(&mut self, started: Instant, request: impl Future<Output = bool>) {
        let sent = Instant::now();
        if timeout(PATIENCE, request).await.unwrap_or(false) {
            self.micros.saturating_record(sent.elapsed().as_micros().try_into().expect("seconds"));
        } else {
            self.failed += 1;
            self.last_failure = Some(started.elapsed());
        }
    }
}

async fn is_alive(port: u16) -> bool {
    let asked = async {
        let mut stream = connect(Ipv4Addr::LOCALHOST, port).await?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer.starts_with(b"HTTP/1.1 200"))
    };
    asked.await.unwrap_or(false)
}

async fn first_call(port: u16) -> bool {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a URL");
    let Ok(channel) = endpoint.connect().await else { return false };
    // Without rules it is decided without Redis.
    let descriptors = vec![RateLimitDescriptor::default()];
    let request = RateLimitRequest { domain: "none".to_owned(), descriptors, ..Default::default() };
    RateLimitServiceClient::new(channel).should_rate_limit(request).await.is_ok()
}

/// A program that runs `program` with room for 4,096 open files, so that few idle connections fill its port.
pub fn with_few_files(program: &Path, folder: &Path) -> PathBuf {
    let script = folder.join("few-files");
    let text = format!("#!/bin/sh\nulimit -n 4096\nexec {} \"$@\"\n", program.display());
    std::fs::write(&script, text).expect("a writable folder");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("a file of this process");
    script
}

/// A certificate for the admin port, whose RSA key makes a handshake expensive for the service.
pub fn make_certificate(folder: &Path) -> [String; 2] {
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.join(name).display().to_string());
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=soak"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-out", &certificate, "-keyout", &key])
        .output();
    assert!(made.is_ok_and(|output| output.status.success()), "openssl makes no certificate");
    [certificate, key]
}
