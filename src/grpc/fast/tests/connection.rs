//! Preface timeout, read budget and write timeout.

use std::io;

use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::decide::Failures;
use crate::grpc::fast::connection::PREFACE_TIMEOUT;
use crate::grpc::fast::connection_io::{ConnectionIo, PREFACE_BYTES, ReadBudget};
use crate::net::ConnectionBounds;
use crate::net::socket::WRITE_TIMEOUT;
use crate::net::tls_port::testing::TestPort;

const PREFACE: &[u8; PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client that sends these bytes, and the connection being served.
async fn served(sent: &[u8], stop: &CancellationToken) -> (DuplexStream, JoinHandle<()>) {
    let metrics = Metrics::new(800_000).expect("different names");
    let (mut client, theirs) = tokio::io::duplex(64 * 1024);
    client.write_all(sent).await.expect("an open connection");
    (client, spawn(server(MAX_OPEN, &metrics, stop).serve(theirs, placement(), admitted_place())))
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_whole_preface_is_closed_after_the_timeout() {
    let start = Instant::now();
    let (_client, served) = served(&PREFACE[..PREFACE_BYTES - 1], &CancellationToken::new()).await;
    served.await.expect("no panic");
    assert!((PREFACE_TIMEOUT..PREFACE_TIMEOUT + SETTLE).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_preface_is_closed_when_the_server_stops() {
    let (start, stop) = (Instant::now(), CancellationToken::new());
    let (_client, served) = served(b"", &stop).await;
    tokio::time::sleep(SETTLE).await;
    stop.cancel();
    served.await.expect("no panic");
    assert_eq!(start.elapsed(), SETTLE);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sent_its_preface_may_be_silent() {
    let (_client, served) = served(PREFACE, &CancellationToken::new()).await;
    tokio::time::sleep(2 * PREFACE_TIMEOUT).await;
    assert!(!served.is_finished());
}

/// The write timeout is below TLS: a session takes some data of its own before the socket blocks.
#[tokio::test(start_paused = true)]
async fn a_client_of_tls_that_does_not_read_is_closed() {
    let port = TestPort::new(ConnectionBounds { total: 1, per_address: 1 });
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
    let (mut client, socket) = connect().await;
    let metrics = Metrics::new(800_000).expect("different names");
    let meter = metrics.requests(Transport::Grpc);
    let counts = Arc::new(WorkerCounts::new(&options(), Failures::new(meter.clone()), meter));
    let (budget, unfinished) = (ReadBudget::new(BYTES_PER_POLL), UnfinishedBytes::new(0));
    let mut server = ConnectionIo::new(socket, budget, unfinished, counts.add_connection(no_slots()));
    let (budget, bytes) = (server.read_budget(), BYTES_PER_POLL);
    // The preface, then frames without a payload (HTTP/2 ignores frames of an unknown kind).
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
