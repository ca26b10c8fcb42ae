//! Clients that take no answers: the process does not keep what they send.

use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{PingPong, RecvStream};
use http::Request;
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use super::{decide_one, request_for, service};
use crate::support::grpc::{Code, Rls, descriptor};
use crate::support::process::Ratelimitd;
use crate::support::process::plan::is_by_tonic;
use crate::support::{http as page, wait};

const CALL: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/// The window of a connection that its client never opens.
const WINDOW: usize = 65_535;
/// For an answer of the service.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection of the h2 crate, which opens no window by itself.
struct Client {
    calls: SendRequest<Bytes>,
    pings: PingPong,
    /// The task of the connection, which ends with the client.
    _connections: JoinSet<()>,
}

impl Client {
    async fn connect(service: &Ratelimitd, stream_window: u32) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", service.grpc_port())).await.expect("a connection");
        let mut builder = Builder::new();
        let handshake = builder.initial_window_size(stream_window).handshake(stream);
        let (calls, mut connection) = handshake.await.expect("HTTP/2");
        let pings = connection.ping_pong().expect("the first");
        let mut connections = JoinSet::new();
        connections.spawn(async { drop(connection.await) });
        Self { calls, pings, _connections: connections }
    }

    /// The answer of a call; `None` if the connection is closed.
    async fn call(&self, message: &Bytes) -> Option<RecvStream> {
        let request = Request::post(format!("http://server{CALL}"))
            .header("content-type", "application/grpc")
            .body(())
            .expect("a request");
        let mut ready = timeout(PATIENCE, self.calls.clone().ready()).await.expect("in time").ok()?;
        let (response, mut sent) = ready.send_request(request, false).ok()?;
        sent.send_data(message.clone(), true).ok()?;
        let response = timeout(PATIENCE, response).await.expect("in time").ok()?;
        Some(response.into_body())
    }
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a short message");
    [&[0], &length.to_be_bytes()[..], message].concat().into()
}

/// A value of `/metrics`.
fn metric(service: &Ratelimitd, series: &str) -> u64 {
    let text = page::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let value = text.lines().find_map(|line| line.strip_prefix(series));
    value.expect("the series exists").trim().parse().expect("a number")
}

#[tokio::test]
async fn a_client_that_takes_no_answers_and_resets_its_calls_does_not_fill_the_memory() {
    // More than the fast path lets a client reset.
    const CALLS: usize = 5_000;
    let service = service();
    let mut honest = Rls::connect(service.grpc_port()).await;
    let message = framed(&request_for(vec![descriptor(&[("free", "v")]); 16]).encode_to_vec());
    let client = Client::connect(&service, 65_535).await;
    // While these answers are kept, h2 does not open the window again.
    let (mut answers, mut taken) = (Vec::new(), 0);
    while taken < WINDOW {
        let mut answer = client.call(&message).await.expect("an answer");
        taken += answer.data().await.expect("not the end").expect("data").len();
        answers.push(answer);
    }
    let before = service.peak_memory_kib();
    let mut reset = 0;
    while reset < CALLS && client.call(&message).await.is_some() {
        reset += 1;
        if reset % 1_000 == 0 {
            assert_eq!(decide_one(&mut honest, descriptor(&[("free", "v")])).await.0, Code::Ok);
        }
    }
    if is_by_tonic(module_path!()) {
        // tonic's server does not see how many streams h2 has leaked. A client can fill the memory.
        assert_eq!(reset, CALLS, "the connection stays open");
        return;
    }
    let grown = service.peak_memory_kib() - before;
    assert!(grown < 4 << 10, "{grown} KiB for {reset} calls that were reset");
    assert!(reset < CALLS, "the connection is closed");
    let series = r#"ratelimitd_closed_connections_total{port="grpc",reason="leaked_streams"}"#;
    assert_eq!(metric(&service, series), 1);
    assert_eq!(decide_one(&mut honest, descriptor(&[("free", "v")])).await.0, Code::Ok);
    service.log_with("connections closed: clients reset too many calls");
}

#[tokio::test]
async fn reflection_streams_whose_answers_are_not_taken_do_not_fill_the_memory() {
    const CONNECTIONS: usize = 100;
    const STREAMS: usize = 32;
    let service = service();
    let list = MessageRequest::ListServices(String::new());
    let asked = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let requests = Bytes::from(framed(&asked.encode_to_vec()).repeat(1_000_000 / 7));
    let before = service.peak_memory_kib();
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = Client::connect(&service, 0).await;
        // The settings of the server have arrived with the answer, so all requests are sent at once.
        timeout(PATIENCE, client.pings.ping(h2::Ping::opaque())).await.expect("in time").expect("an answer");
        let request = Request::post(format!("http://server{REFLECTION}"))
            .header("content-type", "application/grpc")
            .body(())
            .expect("a request");
        let mut ready = client.calls.clone().ready().await.expect("an open connection");
        let (response, mut sent) = ready.send_request(request, false).expect("an open connection");
        sent.send_data(requests.clone(), false).expect("an open call");
        timeout(PATIENCE, client.pings.ping(h2::Ping::opaque())).await.expect("in time").expect("an answer");
        open.push((client, response, sent));
    }
    let series = r#"ratelimitd_request_errors_total{kind="overloaded",transport="grpc"}"#;
    let mut honest = Rls::connect(service.grpc_port()).await;
    if is_by_tonic(module_path!()) {
        // tonic's server has no bound for streams that last as long as their clients want.
        assert_eq!(decide_one(&mut honest, descriptor(&[("free", "v")])).await.0, Code::Ok);
        assert_eq!(metric(&service, series), 0, "no stream is refused");
        return;
    }
    wait::expect("refused streams", || metric(&service, series) >= (CONNECTIONS - STREAMS) as u64);
    let grown = service.peak_memory_kib() - before;
    assert!(grown < 60 << 10, "{grown} KiB for {CONNECTIONS} MB of requests");
    assert_eq!(metric(&service, series), (CONNECTIONS - STREAMS) as u64);
    assert_eq!(decide_one(&mut honest, descriptor(&[("free", "v")])).await.0, Code::Ok);
}
