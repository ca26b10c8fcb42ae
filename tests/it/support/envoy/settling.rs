//! A real Envoy whose routes settle: each request takes an estimate, and at the end of its stream Envoy returns the
//! receipt with the tokens that the upstream reports.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Bootstrap, Envoy, per_filter_route};
use crate::support::http::{self, Response};
use crate::support::process::Ratelimitd;
use crate::support::wait;

/// The estimate of every request.
pub const ESTIMATE: u64 = 400;

/// An Envoy, and an upstream that behaves as the path says:
///
/// * `/tokens/150`: reports 150 tokens, as the header `x-tokens`.
/// * `/silent`: reports no tokens.
/// * `/error`: closes the connection without an answer.
/// * `/endless`: reports no tokens, and never ends its answer.
/// * `/hold/150`: as `/tokens/150`, after [`SettlingEnvoy::release`].
///
/// Below `/all/`, what a request without reported tokens has taken is returned.
pub struct SettlingEnvoy {
    pub envoy: Envoy,
    release: Sender<()>,
}

impl SettlingEnvoy {
    pub fn start(service: &Ratelimitd) -> Self {
        Self::start_with(service, |bootstrap| bootstrap)
    }

    /// Starts an Envoy whose configuration `change` has changed.
    pub fn start_with(service: &Ratelimitd, change: impl FnOnce(Bootstrap) -> Bootstrap) -> Self {
        let (release, released) = channel();
        let bootstrap = Bootstrap::new(service.grpc_port())
            .upstream_port(upstream(released))
            .header_metadata("x-tokens", "usage", "tokens")
            .route(per_filter_route("/all/", rate_limits(true)))
            .route(per_filter_route("/", rate_limits(false)));
        Self { envoy: Envoy::start(&change(bootstrap.fail_closed())), release }
    }

    /// A request of the tenant `acme`.
    pub fn get(&self, path: &str) -> Response {
        self.envoy.get_with(path, &[("x-tenant", "acme")])
    }

    /// Starts a request, and returns when the upstream has sent a part of the answer. The stream ends when the
    /// connection is dropped.
    pub fn start_endless(&self, path: &str) -> TcpStream {
        let mut stream = http::connect(self.envoy.port("http")).expect("Envoy accepts connections");
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nx-tenant: acme\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("Envoy reads requests");
        let mut status = String::new();
        BufReader::new(&stream).read_line(&mut status).expect("a status line");
        assert!(status.contains(" 200 "), "{status}");
        stream
    }

    /// Starts a request of the tenant `acme`, and goes away after this time.
    pub fn abort(&self, path: &str, after: Duration) {
        let mut stream = http::connect(self.envoy.port("http")).expect("Envoy accepts connections");
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nx-tenant: acme\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("Envoy reads requests");
        stream.set_read_timeout(Some(after.max(Duration::from_millis(1)))).expect("a timeout");
        // Ends by the timeout, or with the answer.
        let _ = std::io::Read::read(&mut stream, &mut [0; 1]);
    }

    /// Lets a request to `/hold` go on.
    pub fn release(&self) {
        self.release.send(()).expect("the upstream runs");
    }

    /// The calls of the rate limiter.
    pub fn calls(&self) -> u64 {
        self.envoy.stat("cluster.ratelimit.upstream_rq_total")
    }
}

/// The units that remain of the limit of the tenant `acme`, by a check.
pub fn remaining(service: &Ratelimitd) -> u64 {
    service.left("envoy", ("tenant", "acme"))
}

/// Waits until a settle has changed what remains.
pub fn expect_remaining(service: &Ratelimitd, units: u64) {
    let seen = wait::until(wait::PATIENCE, || (remaining(service) == units).then_some(()));
    let metrics = || http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    assert!(seen.is_some(), "{} instead of {units} remain: {}", remaining(service), metrics());
}

/// The value of a metric of the limit; 0 without the series.
pub fn settles(service: &Ratelimitd, result: &str) -> u64 {
    let series =
        format!("ratelimitd_settles_total{{domain=\"envoy\",result=\"{result}\",rule=\"envoy.tenant\"}} ");
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    metrics.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap_or(0)
}

/// The estimate, and the settles at the end of the stream. A descriptor whose receipt or tokens are missing is not
/// sent.
fn rate_limits(returns_all: bool) -> Value {
    let tenant = json!({"request_headers": {"header_name": "x-tenant", "descriptor_key": "tenant"}});
    let receipt = json!({"metadata": {
        "descriptor_key": "ratelimitd_receipt",
        "source": "DYNAMIC",
        "metadata_key": {"key": "envoy.filters.http.ratelimit", "path": [{"key": "receipt"}]},
    }});
    let settle = |hits: Value| json!({"actions": [tenant, receipt], "hits_addend": hits, "apply_on_stream_done": true});
    let mut limits = vec![
        json!({"actions": [tenant], "hits_addend": {"number": ESTIMATE}}),
        settle(json!({"format": "%DYNAMIC_METADATA(usage:tokens)%"})),
    ];
    limits.extend(returns_all.then(|| settle(json!({"number": 0}))));
    json!(limits)
}

/// Starts the upstream, whose thread runs until the process of the tests ends. Returns its port.
fn upstream(released: Receiver<()>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let released = Arc::new(Mutex::new(released));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let released = Arc::clone(&released);
            std::thread::spawn(move || serve(stream, &released));
        }
    });
    port
}

/// Answers one request.
fn serve(mut stream: TcpStream, released: &Mutex<Receiver<()>>) {
    let mut lines =
        BufReader::new(stream.try_clone().expect("a file descriptor")).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    while lines.next().is_some_and(|line| !line.is_empty()) {}
    let path = request.split(' ').nth(1).unwrap_or_default().trim_start_matches("/all");
    let (behaviour, tokens) = path.trim_start_matches('/').split_once('/').unwrap_or((&path[1..], ""));
    if behaviour == "error" {
        return;
    }
    if behaviour == "hold" && released.lock().expect("no panic").recv().is_err() {
        return;
    }
    let usage = if tokens.is_empty() { String::new() } else { format!("x-tokens: {tokens}\r\n") };
    let length = if behaviour == "endless" { 100 } else { 2 };
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n{usage}\r\nok");
    // Fails if Envoy has closed the connection.
    let _ = stream.write_all(answer.as_bytes());
    if behaviour == "endless" {
        // Ends when Envoy closes the connection.
        while lines.next().is_some() {}
    }
}
