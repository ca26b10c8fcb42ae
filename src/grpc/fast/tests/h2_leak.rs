//! Shows the h2 defect that `LeakedStreams` in `connection.rs` bounds, with h2 and tokio alone. A server asks h2 for
//! more of a stream's bytes than the connection window has: `Prioritize::try_assign_capacity` queues the stream in
//! `pending_capacity`. A reset leaves it there, and when the window opens, `assign_connection_capacity` dequeues but
//! does not release it (`continue` without `Counts::transition`): it stays in the slab until the connection ends.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use h2::SendStream;
use h2::server::Connection;
use hyper::body::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, WriteHalf};

/// Connection window that the client never opens (RFC 9113, section 6.9.2).
const WINDOW: usize = 65_535;
const STREAMS: u32 = 100;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
/// Flags END_STREAM and END_HEADERS.
const WHOLE_REQUEST: u8 = 5;
/// Three entries of HPACK's static table: `:method POST`, `:scheme http`, `:path /`.
const REQUEST: &[u8] = b"\x83\x86\x84";
const CANCEL: &[u8] = &[0, 0, 0, 8];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short payload");
    [&[0, 0, length, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

struct Peers {
    client: WriteHalf<DuplexStream>,
    server: Connection<DuplexStream, Bytes>,
    opened: u32,
}

impl Peers {
    async fn connect() -> Self {
        let (client, theirs) = tokio::io::duplex(1024 * 1024);
        let (mut received, mut client) = tokio::io::split(client);
        super::spawn(async move { while received.read(&mut [0; 4_096]).await.is_ok_and(|read| read > 0) {} });
        let greeting = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(4, 0, 0, b"")[..]].concat();
        client.write_all(&greeting).await.expect("room in the pipe");
        let server = h2::server::handshake(theirs).await.expect("a handshake");
        Self { client, server, opened: 0 }
    }

    async fn send(&mut self, frames: &[u8]) {
        self.client.write_all(frames).await.expect("room in the pipe");
    }

    async fn send_requests(&mut self, count: u32) {
        for number in self.opened..self.opened + count {
            self.send(&frame(HEADERS, WHOLE_REQUEST, 2 * number + 1, REQUEST)).await;
        }
        self.opened += count;
    }

    async fn reset(&mut self, last: u32) {
        for number in self.opened - last..self.opened {
            self.send(&frame(RST_STREAM, 0, 2 * number + 1, CANCEL)).await;
        }
    }

    /// Reads everything that the client has sent. Answers each new request with headers, and asks for `bytes`.
    async fn answer(&mut self, bytes: usize) -> Vec<SendStream<Bytes>> {
        let mut streams = Vec::new();
        poll_fn(|cx| {
            while let Poll::Ready(accepted) = pin!(self.server.accept()).poll(cx) {
                let (_, mut respond) = accepted.expect("an open connection").expect("no error");
                let mut stream = respond.send_response(http::Response::default(), false).expect("open");
                stream.reserve_capacity(bytes);
                streams.push(stream);
            }
            Poll::Ready(())
        })
        .await;
        streams
    }

    /// Sends an answer of `bytes` bytes.
    async fn use_window(&mut self, bytes: usize) {
        self.send_requests(1).await;
        for mut stream in self.answer(bytes).await {
            assert_eq!(stream.capacity(), bytes);
            stream.send_data(vec![0; bytes].into(), true).expect("an open stream");
        }
        self.answer(0).await;
    }

    /// The client resets requests whose answers wait for the window.
    async fn wait_and_reset(&mut self) {
        self.send_requests(STREAMS).await;
        let waiting = self.answer(1).await;
        assert_eq!(waiting.len(), STREAMS as usize);
        self.reset(STREAMS).await;
        self.answer(0).await;
        // The server has dropped all its handles of the streams.
        drop(waiting);
        self.answer(0).await;
    }
}

const MENDED: &str = "this h2 does not leak these streams. If the other test says so too, remove \
                      tests/leaked_streams.rs with the close reason `leaked_streams`, and the feature `unstable` of h2";

#[tokio::test]
async fn a_stream_that_is_reset_while_it_waits_for_the_window_of_its_connection_is_not_released() {
    let mut peers = Peers::connect().await;
    peers.use_window(WINDOW).await;
    for round in 1..=3 {
        peers.wait_and_reset().await;
        assert_eq!(peers.server.num_wired_streams(), round * STREAMS as usize, "{MENDED}");
    }
}

#[tokio::test]
async fn such_a_stream_is_not_released_when_the_window_opens() {
    let mut peers = Peers::connect().await;
    peers.use_window(WINDOW).await;
    for round in 1..=3 {
        peers.wait_and_reset().await;
        peers.send(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 100])).await;
        peers.answer(0).await;
        peers.use_window(100).await;
        assert_eq!(peers.server.num_wired_streams(), round * STREAMS as usize, "{MENDED}");
    }
}
