//! The timeout of the preface, the budget of reads, and the timeout of writes.

use std::io;

use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::decide::Failures;
use crate::grpc::connection_io::{ConnectionIo, PREFACE_TIMEOUT, ReadBudget};
use crate::grpc::sent_frames::PREFACE_BYTES;
use crate::net::listener::PortStream;
use crate::net::socket::WRITE_TIMEOUT;
use crate::net::tls::HandshakeBounds;
use crate::net::tls::testing::TestPort;

const PREFACE: &[u8; PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Both ends of a connection that was just accepted.
async fn accepted(stop: CancellationToken) -> (TcpStream, ConnectionIo<ClientSocket<TcpStream>>) {
    let (client, socket) = connect().await;
    let metrics = Metrics::new(800_000).expect("different names");
    let meter = metrics.requests(Transport::Grpc);
    let counts = Arc::new(WorkerCounts::new(&options(), Failures::new(meter.clone()), meter));
    let budget = ReadBudget::new(BYTES_PER_POLL);
    (client, ConnectionIo::new(socket, budget, stop, UnfinishedBytes::new(0), counts.add_connection()))
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_whole_preface_is_closed_after_the_timeout() {
    let (mut client, mut server) = accepted(CancellationToken::new()).await;
    client.write_all(&PREFACE[..PREFACE_BYTES - 1]).await.expect("an open connection");
    let start = Instant::now();
    let mut received = Vec::new();
    server.read_to_end(&mut received).await.expect("an end, not an error");
    assert_eq!(received, PREFACE[..PREFACE_BYTES - 1]);
    assert_eq!(start.elapsed(), PREFACE_TIMEOUT);
    assert_eq!(server.read(&mut [0; 8]).await.expect("still closed"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_preface_is_closed_when_the_server_stops() {
    let stop = CancellationToken::new();
    let (_client, mut server) = accepted(stop.clone()).await;
    stop.cancel();
    let start = Instant::now();
    assert_eq!(server.read(&mut [0; 8]).await.expect("an end, not an error"), 0);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sent_its_preface_may_be_silent() {
    let stop = CancellationToken::new();
    let (mut client, mut server) = accepted(stop.clone()).await;
    client.write_all(PREFACE).await.expect("an open connection");
    server.read_exact(&mut [0; PREFACE_BYTES]).await.expect("the preface");
    stop.cancel();
    let silence = tokio::time::timeout(10 * PREFACE_TIMEOUT, server.read(&mut [0; 8])).await;
    assert!(silence.is_err(), "{silence:?}");
}

/// The write timeout is below TLS: a session takes some data of its own before the socket blocks.
#[tokio::test(start_paused = true)]
async fn a_client_of_tls_that_does_not_read_is_closed() {
    let port = TestPort::new(HandshakeBounds { total: 1, per_address: 1 });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (client, (socket, _)) = (client.expect("a connection"), accepted.expect("a connection"));
    let handshake = port.tls.begin(address.ip()).expect("a place").run(PortStream::Left(socket));
    let (session, client) = tokio::join!(handshake, port.connect(client));
    let client = client.expect("a handshake");
    let mut server = session.expect("a handshake");
    let start = Instant::now();
    let error = server.write_all(&vec![0; 64 << 20]).await.expect_err("more than the sockets hold");
    assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, WRITE_TIMEOUT));
    drop(client);
}

#[tokio::test]
async fn one_poll_reads_a_bounded_number_of_bytes() {
    let (mut client, mut server) = accepted(CancellationToken::new()).await;
    let (budget, bytes) = (server.read_budget(), BYTES_PER_POLL);
    // The preface, then frames without a payload (HTTP/2 ignores frames of a kind that it does not know).
    let frames = [0, 0, 0, 0xff, 0, 0, 0, 0, 0].repeat(bytes);
    client.write_all(&[&PREFACE[..], &frames].concat()).await.expect("an open connection");
    let mut buf = vec![0; 3 * bytes];
    server.read_exact(&mut buf[..bytes]).await.expect("an open connection");
    let next = server.read(&mut buf).now_or_never();
    assert!(next.is_none(), "the budget of this poll is used up");
    budget.refill();
    let next = server.read(&mut buf).now_or_never();
    assert_eq!(next.expect("ready").expect("an open connection"), bytes);
}

#[tokio::test]
async fn a_connection_is_counted_until_it_is_dropped() {
    let open = OpenConnections::default();
    let (first, second) = (open.count_one(), open.clone().count_one());
    assert_eq!(open.count(), 2);
    drop(first);
    assert_eq!(open.count(), 1);
    drop(second);
    assert_eq!(open.count(), 0);
}
