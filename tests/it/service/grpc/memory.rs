//! Clients that take no answers: the process does not keep what they send.

use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::RecvStream;
use http::Request;
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{decide_one, request_for, service};
use crate::support::grpc::{Code, Rls, descriptor};
use crate::support::process::Ratelimitd;
use crate::support::http as page;

const CALL: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The window of a connection that its client never opens.
const WINDOW: usize = 65_535;
/// For an answer of the service.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection of the h2 crate, which opens no window by itself.
struct Client {
    calls: SendRequest<Bytes>,
}

impl Client {
    async fn connect(service: &Ratelimitd, stream_window: u32) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", service.grpc_port())).await.expect("a connection");
        let mut builder = Builder::new();
        let handshake = builder.initial_window_size(stream_window).handshake(stream);
        let (calls, connection) = handshake.await.expect("HTTP/2");
        tokio::spawn(async { drop(connection.await) });
        Self { calls }
    }

    /// The answer of a call; `None` if the connection is closed.
    async fn call(&self, message: &Bytes) -> Option<RecvStream> {
        let request = Request::post(format!("http://server{CALL}")).body(()).expect("a request");
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
    const CALLS: usize = 40_000;
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
    let grown = service.peak_memory_kib() - before;
    assert!(grown < 4 << 10, "{grown} KiB for {reset} calls that were reset");
    assert!(reset < CALLS, "the connection is closed");
    let series = r#"ratelimitd_closed_connections_total{port="grpc",reason="leaked_streams"}"#;
    assert_eq!(metric(&service, series), 1);
    assert_eq!(decide_one(&mut honest, descriptor(&[("free", "v")])).await.0, Code::Ok);
    service.log_with("connections closed: their clients reset too many calls");
}
