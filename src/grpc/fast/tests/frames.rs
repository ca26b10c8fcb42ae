//! Clients that send too many frames, or forbidden ones.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use super::super::tests::*;
use super::raw_client::{GOAWAY, HEADERS, PREFACE, RST_STREAM, frame};
use crate::grpc::head::MAX_HEADER_LIST_BYTES;
use crate::grpc::tonic_server::MAX_CONCURRENT_STREAMS;
use crate::grpc::tonic_server::MAX_READ_HEADER_BYTES;
use crate::grpc::tonic_server::{KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT};
use crate::net::socket::WRITE_TIMEOUT;
use crate::net::unfinished::ARRIVES_WITHIN;

const CHECK: &str = "/grpc.health.v1.Health/Check";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0any text";
const ENHANCE_YOUR_CALM: &[u8] = b"\0\0\0\x0b";

/// Kind and payload of each complete frame.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = usize::from(head[1]) * 256 + usize::from(head[2]);
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        frames.push((head[3], payload.to_vec()));
        bytes = rest;
    }
    frames
}

/// A client's end of a served connection, and the end of the service.
fn raw_client(max_open: usize) -> (DuplexStream, JoinHandle<()>) {
    let (metrics, stop) = (Metrics::new(800_000).expect("different names"), CancellationToken::new());
    let (client, theirs) = tokio::io::duplex(64 * 1024);
    (client, spawn(server(max_open, &metrics, &stop).serve(theirs, placement(), admitted_place())))
}

/// Everything that the server sends until it closes the connection.
async fn read_to_end(mut client: DuplexStream) -> Vec<(u8, Vec<u8>)> {
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.expect("an end, not an error");
    frames(&received)
}

#[tokio::test]
async fn a_stream_above_the_bound_of_its_connection_is_refused() {
    const CALLS: usize = MAX_CONCURRENT_STREAMS as usize + 1;
    let (metrics, stop) = (Metrics::new(800_000).expect("different names"), CancellationToken::new());
    let server = server(2 * CALLS, &metrics, &stop);
    let (client, served) = connect().await;
    // The client opens all streams before it learns the bound.
    let mut streams = send_calls(client, CALLS, PATH, &Bytes::new()).await;
    spawn(server.serve(served, placement(), admitted_place()));
    let refused = streams.pop().expect("calls").response.await.expect_err("one too many");
    assert_eq!(refused.reason(), Some(Reason::REFUSED_STREAM));
    for stream in streams {
        assert_eq!(stream.headers().await.status(), 200);
    }
}

async fn call_with_long_header(session: &Session, length: usize) -> OpenedCall {
    let request = Request::post(format!("http://server{}", PATH))
        .header("content-type", "application/grpc")
        .header("x-long", "x".repeat(length));
    let mut client = session.client.clone().ready().await.expect("an open connection");
    let (response, mut sent) = client.send_request(request.body(()).expect("valid"), false).expect("open");
    // A refused call does not accept a frame.
    let _ = sent.send_data(valid_request(), true);
    OpenedCall { response, _sent: sent }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_headers_are_too_long_is_refused_and_counted_and_the_next_call_is_answered() {
    let mut session = Session::start(65_535).await;
    let (longest, read) = (MAX_HEADER_LIST_BYTES, MAX_READ_HEADER_BYTES as usize);
    // (length, status, failures so far); leaves room for the other headers.
    let table = [(longest - 1_024, "0", 0), (longest, "11", 1), (read - 1_024, "11", 2), (17 * 1024, "0", 2)];
    for (length, status, failures) in table {
        let call = call_with_long_header(&session, length).await;
        assert_eq!(call.status().await, status, "{length} bytes");
        assert_eq!(session.failures("invalid"), failures, "{length} bytes");
    }
    let unread = call_with_long_header(&session, read).await;
    assert_eq!(unread.headers().await.status(), 431, "a list that h2 does not read");
    assert_eq!(session.call(PATH, valid_request(), true).await.status().await, "0");
    assert_eq!(session.failures("invalid"), 2);
    let sent_in_full = call_with_long_header(&session, read + read / 4).await;
    assert_eq!(sent_in_full.headers().await.status(), 431);
    assert_eq!(session.failures("invalid"), 3, "a block that is longer than h2 reads");
}

/// A request of `bytes` bytes for the list of services.
fn reflection_request(bytes: usize) -> Bytes {
    let host = "h".repeat(bytes - 5);
    let list = MessageRequest::ListServices(String::new());
    let message = ServerReflectionRequest { host, message_request: Some(list) }.encode_to_vec();
    assert_eq!(message.len(), bytes);
    framed(0, &message)
}

#[tokio::test(start_paused = true)]
async fn messages_to_health_and_reflection_have_a_bound_of_their_own() {
    let mut session = Session::start(65_535).await;
    for path in [CHECK, WATCH] {
        // (message bytes, status): the message at the bound is read, and is malformed.
        for (bytes, status) in [(4_097, "11"), (4_096, "13")] {
            let call = session.call(path, framed(0, &vec![0; bytes]), true).await;
            assert_eq!(call.status().await, status, "{path}, {bytes} bytes");
        }
    }
    for (bytes, is_answered) in [(4_097, false), (4_096, true)] {
        let call = session.call(REFLECTION, reflection_request(bytes), true).await;
        let answer = call.headers().await.body_mut().data().await;
        assert_eq!(answer.is_some(), is_answered, "{bytes} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_that_does_not_answer_the_ping_is_closed() {
    let (mut client, served) = raw_client(MAX_OPEN);
    let start = Instant::now();
    client.write_all(&[PREFACE, SETTINGS].concat()).await.expect("an open connection");
    let received = read_to_end(client).await;
    served.await.expect("no panic");
    assert!(received.iter().any(|(kind, _)| *kind == 6), "a PING: {received:?}");
    let closed_after = KEEPALIVE_INTERVAL + KEEPALIVE_TIMEOUT;
    assert!((closed_after..closed_after + SETTLE).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_greets_a_server_that_stops_is_told_so() {
    let (metrics, stop) = (Metrics::new(800_000).expect("different names"), CancellationToken::new());
    let (mut client, theirs) = tokio::io::duplex(64 * 1024);
    let served = spawn(server(MAX_OPEN, &metrics, &stop).serve(theirs, placement(), admitted_place()));
    client.write_all(PREFACE).await.expect("an open connection");
    tokio::time::sleep(SETTLE).await;
    stop.cancel();
    client.write_all(SETTINGS).await.expect("an open connection");
    let received = read_to_end(client).await;
    served.await.expect("no panic");
    assert!(received.iter().any(|(kind, _)| *kind == GOAWAY), "{received:?}");
}

/// A call ends the silence: the PING comes one interval, counted in thirds, after the last call.
#[tokio::test(start_paused = true)]
async fn a_client_that_calls_is_asked_for_no_ping() {
    let (mut client, served) = raw_client(MAX_OPEN);
    let start = Instant::now();
    client.write_all(&[PREFACE, SETTINGS].concat()).await.expect("an open connection");
    let calls_for = 4 * KEEPALIVE_INTERVAL;
    let mut stream = 1_u32;
    while start.elapsed() < calls_for {
        // HEADERS with END_STREAM and END_HEADERS, and an invalid header block.
        let block = b"\x83\x86\x84\x41\x01s";
        client.write_all(&frame(1, 5, stream, block)).await.expect("an open connection");
        stream += 2;
        tokio::time::sleep(KEEPALIVE_INTERVAL / 2).await;
    }
    let received = read_to_end(client).await;
    served.await.expect("no panic");
    assert_eq!(received.iter().filter(|(kind, _)| *kind == 6).count(), 1, "PINGs: {received:?}");
    let silent_for = start.elapsed() - (calls_for - KEEPALIVE_INTERVAL / 2);
    let shortest = KEEPALIVE_INTERVAL + KEEPALIVE_TIMEOUT;
    let longest = shortest + KEEPALIVE_INTERVAL / 3;
    assert!((shortest..=longest + SETTLE).contains(&silent_for), "{silent_for:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_and_resets_streams_faster_than_they_are_served_is_closed() {
    let (mut client, served) = raw_client(MAX_OPEN);
    // Three entries of HPACK's static table: `:method POST`, `:scheme http`, `:path /`.
    let pair = |stream| {
        [frame(HEADERS, 4, stream, b"\x83\x86\x84"), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    };
    let pairs: Vec<u8> = (0..100).flat_map(|call| pair(2 * call + 1)).collect();
    client.write_all(&[PREFACE, SETTINGS, &pairs].concat()).await.expect("room in the pipe");
    let received = read_to_end(client).await;
    served.await.expect("no panic");
    let reasons: Vec<_> =
        received.iter().filter(|(kind, _)| *kind == GOAWAY).map(|(_, payload)| &payload[4..8]).collect();
    assert_eq!(reasons.last(), Some(&ENHANCE_YOUR_CALM), "{received:?}");
}

/// The time limit is that of a message.
#[tokio::test(start_paused = true)]
async fn a_header_block_that_does_not_end_in_time_ends_the_connection() {
    let (metrics, stop) = (Metrics::new(800_000).expect("different names"), CancellationToken::new());
    let (mut client, theirs) = tokio::io::duplex(64 * 1024);
    let served = spawn(server(MAX_OPEN, &metrics, &stop).serve(theirs, placement(), admitted_place()));
    // HEADERS without END_HEADERS: `:method POST`.
    let sent = [PREFACE, SETTINGS, &[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x83]].concat();
    client.write_all(&sent).await.expect("room in the pipe");
    tokio::time::sleep(ARRIVES_WITHIN - SETTLE).await;
    assert!(!served.is_finished());
    tokio::time::sleep(2 * SETTLE).await;
    assert!(served.is_finished());
    let late = "ratelimitd_request_errors_total{kind=\"incomplete\",transport=\"grpc\"}";
    assert_eq!(value(&metrics, late), 1);
}

/// Many connections send a block of one-byte fields, each of which h2 would store in a hundred bytes.
#[tokio::test(start_paused = true)]
async fn a_header_block_that_does_not_end_is_not_decoded_and_is_bounded() {
    const BLOCKS: usize = UNFINISHED_BYTES / 16_000;
    let (metrics, stop) = (Metrics::new(800_000).expect("different names"), CancellationToken::new());
    let server = server(MAX_OPEN, &metrics, &stop);
    // HEADERS without END_HEADERS: `:method POST`, then `accept-encoding: gzip, deflate`.
    let block = [&b"\x83"[..], &[0x90; 15_999]].concat();
    let head = [&u32::try_from(block.len()).expect("short").to_be_bytes()[1..], &[1, 0, 0, 0, 0, 1]].concat();
    let sent = [PREFACE, SETTINGS, &head, &block].concat();
    let mut clients = Vec::new();
    for _ in 0..=BLOCKS {
        let (mut client, theirs) = tokio::io::duplex(64 * 1024);
        let served = spawn(Arc::clone(&server).serve(theirs, placement(), admitted_place()));
        client.write_all(&sent).await.expect("room in the pipe");
        clients.push((client, served));
    }
    tokio::time::sleep(SETTLE).await;
    let closed = clients.iter().filter(|(_, served)| served.is_finished()).count();
    let overloaded =
        value(&metrics, "ratelimitd_request_errors_total{kind=\"overloaded\",transport=\"grpc\"}");
    assert_eq!((closed, overloaded), (1, 1), "one block more than the bound");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_pings_and_reads_no_answers_is_closed_after_the_timeout_of_a_write() {
    let (metrics, stop) = (Metrics::new(800_000).expect("different names"), CancellationToken::new());
    let (mut client, served) = connect().await;
    let served = spawn(server(MAX_OPEN, &metrics, &stop).serve(served, placement(), admitted_place()));
    let start = Instant::now();
    client.write_all(&[PREFACE, SETTINGS].concat()).await.expect("an open connection");
    // The server reads no frame before the answer to the last one is on its way, so the sockets fill in both
    // directions.
    while client.write_all(&PING.repeat(1_000)).await.is_ok() {}
    served.await.expect("no panic");
    assert!((WRITE_TIMEOUT..WRITE_TIMEOUT + SETTLE).contains(&start.elapsed()), "{:?}", start.elapsed());
}
