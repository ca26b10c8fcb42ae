//! Many connections: what they cannot take from the process, and from each other.

use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpStream};

use crate::support::grpc::{Code, Rls};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, wait};

pub(crate) const RULES: &str = "
domain: crowd
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1000000 } }]
";

fn plan() -> Plan {
    Plan::new(RULES).server_of(module_path!())
}

/// An HTTP/2 preface and an empty SETTINGS frame: a client that then waits.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Connects from an address of this machine, and greets.
async fn greet(from: &str, port: u16) -> std::io::Result<TcpStream> {
    let stream = connect(from, port).await?;
    let sent = std::io::Write::write_all(&mut &stream, GREETING);
    sent.map(|()| stream)
}

/// Connects from an address of this machine.
async fn connect(from: &str, port: u16) -> std::io::Result<TcpStream> {
    let from: IpAddr = from.parse().expect("an address");
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let stream = socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await?.into_std()?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Connects from an address of this machine, and sends the head of a call and the first byte of its body.
async fn begin_call(from: &str, port: u16) -> TcpStream {
    let stream = connect(from, port).await.expect("a connection");
    let head = b"POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{";
    std::io::Write::write_all(&mut &stream, head).expect("an open connection");
    stream
}

/// Whether the server has not closed the connection.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket option");
    loop {
        match (&mut &*stream).read(&mut [0; 1_024]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

/// The value of `ratelimitd_closed_connections_total`.
fn closed(service: &Ratelimitd, port: &str, reason: &str) -> u64 {
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    let series = format!("ratelimitd_closed_connections_total{{port=\"{port}\",reason=\"{reason}\"}} ");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&series));
    count.expect("the series exists").parse().expect("a number")
}

/// Fills the gRPC port with idle connections from several addresses, until the server refuses some.
pub(crate) async fn fill_grpc_port(service: &Ratelimitd) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for n in 0..200 {
        open.push(greet(&format!("127.0.1.{}", n % 4), service.grpc_port()).await.expect("a connection"));
    }
    wait::expect("connections over the bound", || closed(service, "grpc", "full") > 0);
    open
}

#[tokio::test]
async fn the_soft_limit_of_open_files_is_raised_to_the_hard_limit() {
    let service = plan().open_files(64, 1_024).start();
    service.log_with("limit=1024 soft=64 hard=1024");
    let mut open = Vec::new();
    for _ in 0..100 {
        open.push(Rls::connect(service.grpc_port()).await);
    }
    for rls in &mut open {
        assert_eq!(rls.send_one("crowd", &[("user", "u")]).await.0, Code::Ok);
    }
}

#[tokio::test]
async fn connections_leave_open_files_for_the_pages_and_for_changed_rules() {
    let service = plan().open_files(256, 256).start();
    let open = fill_grpc_port(&service).await;
    assert!(http::get(service.http_port(), "/livez", &[]).is_ok_and(|answer| answer.status == 200));
    let limits = || http::get(service.admin_port(), "/rlconfig", &[]).expect("an answer").body;
    let changed = RULES.replace("1000000", "1234567");
    std::fs::write(service.rules().join("rules.yaml"), changed).expect("a rule file");
    wait::expect("the changed rules", || limits().contains("1234567"));
    wait::expect("a line", || service.log().contains("port limit reached"));
    let log = service.log();
    assert_eq!(log.matches("port limit reached").count(), 1, "one line a minute: {log}");
    assert_eq!(closed(&service, "grpc", "accept"), 0, "there are open files left: {log}");
    drop(open);
}

#[tokio::test]
async fn one_address_leaves_connections_to_the_others() {
    let service = plan().set("server.max_connections_per_address", 3).start();
    let mut greedy = Vec::new();
    for _ in 0..5 {
        greedy.push(greet("127.0.1.1", service.grpc_port()).await.expect("a connection"));
    }
    wait::expect("two connections closed", || greedy.iter().filter(|open| is_open(open)).count() == 3);
    assert_eq!(closed(&service, "grpc", "address"), 2);
    let modest = greet("127.0.1.2", service.grpc_port()).await.expect("a connection");
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(rls.send_one("crowd", &[("user", "u")]).await.0, Code::Ok);
    assert!(is_open(&modest));
}

#[tokio::test]
async fn idle_connections_do_not_keep_probes_and_scrapers_out() {
    let service = plan().open_files(256, 256).start();
    for port in [service.http_port(), service.admin_port()] {
        let mut idle = Vec::new();
        for n in 0..64 {
            idle.push(connect(&format!("127.0.1.{}", n % 4), port).await.expect("a connection"));
        }
        for path in ["/livez", "/readyz", "/metrics"].iter().filter(|_| port == service.http_port()) {
            let answer = http::get(port, path, &[]).expect("an answer");
            assert_eq!(answer.status, 200, "{path}");
        }
        assert_eq!(http::get(service.admin_port(), "/rlconfig", &[]).expect("an answer").status, 200);
        assert!(!is_open(&idle[0]), "the longest idle connection was closed");
        assert!(is_open(&idle[63]), "the last connection stays");
    }
    assert!(closed(&service, "http", "idle") >= 32 && closed(&service, "admin", "idle") >= 48);
    let lines = || service.log().matches("idle connections closed").count();
    wait::expect("a line for each port", || lines() >= 2);
    assert_eq!(lines(), 2, "one line a minute and port: {}", service.log());
}

/// With 256 open files the HTTP port has 32 connections. Before each probe more half requests arrive.
#[tokio::test]
async fn half_requests_do_not_keep_probes_and_scrapers_out() {
    let service = plan().open_files(256, 256).start();
    let port = service.http_port();
    let mut half = Vec::new();
    for round in 0..20 {
        for n in 0..if round == 0 { 64 } else { 4 } {
            half.push(begin_call(&format!("127.0.1.{}", n % 4), port).await);
        }
        for path in ["/livez", "/readyz", "/metrics"] {
            let answer = http::get(port, path, &[]);
            assert_eq!(answer.map(|answer| answer.status).ok(), Some(200), "{path}, round {round}");
        }
    }
    assert!(!is_open(&half[0]), "the oldest half request was closed");
    assert!(is_open(&half[half.len() - 1]), "the last one stays");
    assert_eq!(closed(&service, "http", "full"), 0);
}
