//! Bytes after the HTTP/2 preface, on a connection of their own.
//!
//! Holds: the server ends the connection after the client's end of file, its answer consists of whole frames and starts
//! with SETTINGS, and a call on another connection is answered afterwards.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{panics, service};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Many times what an answer needs, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The last frame of what is sent: its acknowledgement shows that the server has read all before it.
const PING_PAYLOAD: &[u8; 8] = b"the last";
/// How long to wait for the acknowledgement. It does not come if `data` ends within a frame.
const LAST_FRAME: Duration = Duration::from_millis(5);

/// One frame of an answer.
struct Frame<'a> {
    kind: u8,
    flags: u8,
    payload: &'a [u8],
}

/// Sends `data` after the preface.
pub fn run(data: &[u8]) {
    panics::watch();
    let address = service::grpc();
    service::current_thread_runtime().block_on(async {
        let sent = [data, &frame(PING, 0, 0, PING_PAYLOAD)].concat();
        let is_read = |frame: &Frame<'_>| frame.kind == PING && frame.payload == PING_PAYLOAD;
        let (answer, ended) = exchange(address, &sent, (is_read, LAST_FRAME)).await;
        if ended.is_ok() {
            let (frames, rest) = frames(&answer);
            assert!(rest.is_empty(), "not a whole frame: {rest:?}");
            assert_eq!(frames.first().map(|frame| frame.kind), Some(SETTINGS), "the first frame: {answer:?}");
        }
        let is_last = |frame: &Frame<'_>| frame.kind == HEADERS && frame.flags & END_STREAM != 0;
        let (answer, ended) = exchange(address, &call(), (is_last, PATIENCE)).await;
        ended.expect("the server closes a connection that ended well");
        let is_ok = |frame: &Frame<'_>| frame.kind == DATA && frame.payload.get(5..7) == Some(&[8, 1]);
        assert!(frames(&answer).0.iter().any(is_ok), "no answer with overall_code OK: {answer:?}");
    });
    panics::assert_none();
}

/// Sends the preface and `sent`, and the end of file once a frame of the answer is the last, or no longer waited for.
/// Returns what the server sent, and how the connection ended: with an end of file, or with an error if the server
/// closed it before it read all.
async fn exchange(
    address: SocketAddr,
    sent: &[u8],
    (is_last, wait): (impl Fn(&Frame<'_>) -> bool, Duration),
) -> (Vec<u8>, io::Result<()>) {
    let stream = TcpStream::connect(address).await.expect("the service listens");
    stream.set_nodelay(true).expect("an open connection");
    let (mut from, mut to) = stream.into_split();
    let write = async {
        to.write_all(PREFACE).await?;
        to.write_all(sent).await
    };
    let mut answer = Vec::new();
    let until_last = async {
        while !frames(&answer).0.iter().any(&is_last) && from.read_buf(&mut answer).await? > 0 {}
        Ok(())
    };
    let until_last = async { timeout(wait, until_last).await.unwrap_or(Ok(())) };
    let both = async { tokio::join!(until_last, write) };
    let (read, written) = timeout(PATIENCE, both).await.expect("the server takes the bytes");
    let rest = async {
        to.shutdown().await?;
        from.read_to_end(&mut answer).await
    };
    let rest = timeout(PATIENCE, rest).await.expect("the server ends the connection");
    (answer, read.and(written).and(rest.map(drop)))
}

/// The whole frames of an answer (RFC 9113, section 4.1), and the bytes after them.
fn frames(mut answer: &[u8]) -> (Vec<Frame<'_>>, &[u8]) {
    let mut frames = Vec::new();
    while let Some((head, rest)) = answer.split_first_chunk::<9>() {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some((payload, after)) = rest.split_at_checked(length) else { break };
        frames.push(Frame { kind: head[3], flags: head[4], payload });
        answer = after;
    }
    (frames, answer)
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// A header field that is neither indexed nor compressed, with the index of its name in the static table.
fn field(name: &[u8], value: &str) -> Vec<u8> {
    [name, &[u8::try_from(value.len()).expect("a short value")], value.as_bytes()].concat()
}

/// The frames of a call of `ShouldRateLimit` with the descriptor `alive=x`.
fn call() -> Vec<u8> {
    let headers = [
        vec![0x83, 0x86], // :method POST, :scheme http
        field(&[0x04], "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
        field(&[0x01], "fuzz"),                   // :authority
        field(&[0x0f, 0x10], "application/grpc"), // content-type
        field(b"\x00\x02te", "trailers"),
    ]
    .concat();
    let message = b"\x0a\x04fuzz\x12\x0c\x0a\x0a\x0a\x05alive\x12\x01x";
    let length = u8::try_from(message.len()).expect("a short message");
    let data = [&[0, 0, 0, 0, length], message.as_slice()].concat();
    [frame(SETTINGS, 0, 0, &[]), frame(HEADERS, END_HEADERS, 1, &headers), frame(DATA, END_STREAM, 1, &data)]
        .concat()
}
