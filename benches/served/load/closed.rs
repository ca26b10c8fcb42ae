//! The closed loop of one connection: each answer starts the next call.
//!
//! It writes and reads HTTP/2 frames (RFC 9113) itself. h2's client takes as much CPU per call as the measured service,
//! on the same cores: the rate would be that of the generator, and not comparable with redis-benchmark's, which sends
//! prepared bytes too. HPACK of answers is not read: a call without DATA counts as a gRPC error.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{AUTHORITY, Answer, Load, PATH, Tally, overall_code};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const RECEIVE_BUFFER: usize = 64 << 10;

/// Types of frames.
mod frame {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
}

const END_STREAM: u8 = 0x01;
const ACK: u8 = 0x01;
const END_HEADERS: u8 = 0x04;
const PADDED: u8 = 0x08;

const HEADER_TABLE_SIZE: u16 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// The largest payload that every server accepts.
const MAX_FRAME: usize = 16_384;
/// The window of a connection and of a stream before any frame changes it, in bytes.
const FIRST_WINDOW: u32 = 65_535;
/// By how much the client enlarges the window of the connection, and after how many bytes it does so again.
const MORE_WINDOW: u32 = 16 << 20;

/// The fields of each request as additions to the HPACK table (RFC 7541, 6.2.1), and as indices of these entries.
struct Fields {
    first: Vec<u8>,
    indexed: Vec<u8>,
}

impl Fields {
    fn new() -> Self {
        // From the static table: `:method: POST` and `:scheme: http`.
        let (mut first, mut indexed) = (vec![0x83, 0x86], vec![0x83, 0x86]);
        // Indices of the static table for names that it has; 0 and the name for another.
        let fields: [(u8, &str, &str); 4] =
            [(1, "", AUTHORITY), (4, "", PATH), (31, "", "application/grpc"), (0, "te", "trailers")];
        for (place, (index, name, value)) in fields.into_iter().enumerate() {
            first.push(0x40 | index);
            for text in [name, value].into_iter().filter(|text| !text.is_empty()) {
                first.push(u8::try_from(text.len()).expect("a length below 127"));
                first.extend_from_slice(text.as_bytes());
            }
            // The entry that was added last has the index 62.
            indexed.push(0x80 | (62 + u8::try_from(fields.len() - 1 - place).expect("four fields")));
        }
        Self { first, indexed }
    }
}

/// A call in flight.
struct Call {
    started: Instant,
    /// The place of its message among the messages of the load.
    turn: usize,
    answer: Answer,
}

struct Connection<'a> {
    messages: &'a [Bytes],
    fields: Fields,
    /// Bytes that the next write sends.
    out: Vec<u8>,
    /// By the identifiers of their streams, from `oldest` in steps of two; `None` has ended.
    calls: VecDeque<Option<Call>>,
    oldest: u32,
    in_flight: usize,
    /// Bytes of DATA that the server accepts on this connection.
    send_window: i64,
    /// Bytes of DATA that arrived since the window was last enlarged.
    received: u32,
    /// Calls that wait for `send_window`: their turns.
    waiting: VecDeque<usize>,
    /// The server has sent GOAWAY.
    closing: bool,
    until: Instant,
    tally: Tally,
}

/// Keeps `calls` calls in flight on a connection. They begin at different places among the messages.
///
/// # Panics
/// If the server breaks the protocol, or its settings do not admit the load, or the load wants TLS.
pub async fn run(mut stream: TcpStream, load: Load, calls: usize, first_turn: usize) -> Tally {
    assert!(load.tls.is_none(), "the closed loop has no TLS");
    let mut connection = Connection::new(&load);
    for place in 0..calls {
        connection.waiting.push_back(first_turn + place * 104_729);
    }
    connection.start_waiting(Instant::now());
    let mut input = BytesMut::with_capacity(RECEIVE_BUFFER);
    while connection.in_flight > 0 || !connection.waiting.is_empty() {
        let sent = stream.write_all(&connection.out).await;
        connection.out.clear();
        input.reserve(RECEIVE_BUFFER);
        let read = stream.read_buf(&mut input).await;
        if sent.is_err() || !matches!(read, Ok(1..)) {
            connection.tally.broken += (connection.in_flight + connection.waiting.len()) as u64;
            break;
        }
        connection.receive(&mut input, Instant::now(), calls);
    }
    connection.tally
}

impl<'a> Connection<'a> {
    fn new(load: &'a Load) -> Self {
        let mut new = Self {
            messages: &load.messages,
            fields: Fields::new(),
            out: PREFACE.to_vec(),
            calls: VecDeque::new(),
            oldest: 1,
            in_flight: 0,
            send_window: i64::from(FIRST_WINDOW),
            received: 0,
            waiting: VecDeque::new(),
            closing: false,
            until: Instant::now() + load.duration,
            tally: Tally::new(),
        };
        put_frame(&mut new.out, frame::SETTINGS, 0, 0, &[]);
        put_frame(&mut new.out, frame::WINDOW_UPDATE, 0, 0, &MORE_WINDOW.to_be_bytes());
        new
    }

    /// Starts the calls that wait, as far as the window of the connection admits.
    fn start_waiting(&mut self, now: Instant) {
        while let Some(&turn) = self.waiting.front() {
            let message = &self.messages[turn % self.messages.len()];
            let length = i64::try_from(message.len()).expect("a small message");
            assert!(message.len() <= MAX_FRAME, "a message larger than a frame");
            if length > self.send_window {
                return;
            }
            self.waiting.pop_front();
            self.send_window -= length;
            let stream = self.oldest + 2 * u32::try_from(self.calls.len()).expect("at most 2^30 calls");
            let fields = if stream == 1 { &self.fields.first } else { &self.fields.indexed };
            put_frame(&mut self.out, frame::HEADERS, END_HEADERS, stream, fields);
            put_frame(&mut self.out, frame::DATA, END_STREAM, stream, message);
            self.calls.push_back(Some(Call { started: now, turn, answer: Answer::Error }));
            self.in_flight += 1;
        }
    }

    /// Reads the complete frames, which arrived at this time.
    fn receive(&mut self, input: &mut BytesMut, now: Instant, calls: usize) {
        while let Some(mut rest) = input.get(..).filter(|rest| rest.len() >= FRAME_HEAD) {
            let length = usize::try_from(rest.get_uint(3)).expect("three bytes");
            let (kind, flags, stream) = (rest.get_u8(), rest.get_u8(), rest.get_u32());
            let Some(payload) = rest.get(..length) else { break };
            match kind {
                frame::DATA => self.read_data(flags, stream, payload),
                frame::HEADERS if flags & END_STREAM != 0 => self.end(stream, now),
                frame::RST_STREAM => self.reset(stream, now),
                frame::SETTINGS if flags & ACK == 0 => self.read_settings(payload, calls),
                frame::PING if flags & ACK == 0 => put_frame(&mut self.out, frame::PING, ACK, 0, payload),
                frame::GOAWAY => self.stop_starting(),
                frame::WINDOW_UPDATE if stream == 0 => {
                    self.send_window += i64::from(window_increment(payload))
                }
                _ => {}
            }
            input.advance(FRAME_HEAD + length);
        }
        self.start_waiting(now);
    }

    fn call(&mut self, stream: u32) -> Option<&mut Option<Call>> {
        let place = stream.checked_sub(self.oldest)? / 2;
        self.calls.get_mut(usize::try_from(place).ok()?)
    }

    fn read_data(&mut self, flags: u8, stream: u32, payload: &[u8]) {
        assert!(flags & (PADDED | END_STREAM) == 0, "gRPC ends a stream with trailers, and needs no padding");
        if let Some((Some(call), answer)) = self.call(stream).zip(overall_code(payload)) {
            call.answer = answer;
        }
        self.received += u32::try_from(payload.len()).expect("a length of 24 bits");
        if self.received >= MORE_WINDOW {
            put_frame(&mut self.out, frame::WINDOW_UPDATE, 0, 0, &self.received.to_be_bytes());
            self.received = 0;
        }
    }

    fn reset(&mut self, stream: u32, now: Instant) {
        if let Some(Some(call)) = self.call(stream) {
            call.answer = Answer::Broken;
            self.end(stream, now);
        }
    }

    /// Counts the answer. The next call takes the next message.
    fn end(&mut self, stream: u32, now: Instant) {
        let Some(Call { started, turn, answer }) = self.call(stream).and_then(Option::take) else { return };
        self.tally.record(&answer, now - started);
        self.in_flight -= 1;
        while let Some(None) = self.calls.front() {
            self.calls.pop_front();
            self.oldest += 2;
        }
        if now >= self.until {
            return;
        }
        if self.closing {
            self.tally.broken += 1;
        } else {
            self.waiting.push_back(turn.wrapping_add(1));
        }
    }

    /// The server accepts no more calls on this connection. The calls that would be next count as broken.
    fn stop_starting(&mut self) {
        self.closing = true;
        self.tally.broken += self.waiting.len() as u64;
        self.waiting.clear();
    }

    fn read_settings(&mut self, mut payload: &[u8], calls: usize) {
        while payload.len() >= 6 {
            let (setting, value) = (payload.get_u16(), payload.get_u32());
            match setting {
                HEADER_TABLE_SIZE => assert!(value >= 4_096, "the requests use a table of the usual size"),
                MAX_CONCURRENT_STREAMS => assert!(
                    value as usize >= calls,
                    "the server admits {value} calls on a connection, not {calls}"
                ),
                INITIAL_WINDOW_SIZE => {
                    assert!(value >= FIRST_WINDOW, "the server makes windows of {value} bytes");
                }
                _ => {}
            }
        }
        put_frame(&mut self.out, frame::SETTINGS, ACK, 0, &[]);
    }
}

fn put_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.put_uint(payload.len() as u64, 3);
    out.put_slice(&[kind, flags]);
    out.put_u32(stream);
    out.put_slice(payload);
}

/// The increment of a WINDOW_UPDATE.
fn window_increment(mut payload: &[u8]) -> u32 {
    payload.get_u32() & 0x7FFF_FFFF
}
