//! Calls of gRPC over HTTP/2, any number in flight on a connection.
//!
//! The client writes and reads HTTP/2 frames (RFC 9113) itself. h2's client takes as much CPU per call as the measured
//! service, on the same cores: the rate would be that of the generator. HPACK of answers is not read: a call without
//! DATA counts as a gRPC error.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::Connection;
use super::tally::{Answer, Tally};

const AUTHORITY: &str = "bench";
const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;

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
    due: Instant,
    /// The place of its message among the messages of the load.
    turn: usize,
    answer: Answer,
}

/// A connection of HTTP/2, without its socket.
pub struct Http2<'a> {
    messages: &'a [Bytes],
    fields: Fields,
    /// Bytes that the next write sends.
    out: Vec<u8>,
    /// By the identifiers of their streams, from `oldest` in steps of two; `None` has ended.
    calls: VecDeque<Option<Call>>,
    oldest: u32,
    in_flight: usize,
    /// Calls that the server admits at a time; `None` before its settings arrive.
    most_in_flight: Option<usize>,
    /// Bytes of DATA that the server accepts on this connection.
    send_window: i64,
    /// Bytes of DATA that arrived since the window was last enlarged.
    received: u32,
    /// Calls that are due, but neither window nor settings admit: their turns and times.
    waiting: VecDeque<(usize, Instant)>,
    /// The server has sent GOAWAY, or the connection has ended.
    closing: bool,
    /// In a closed loop: each answer before this time starts the next call.
    next_until: Option<Instant>,
}

impl Connection for Http2<'_> {
    fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn is_ready(&self) -> bool {
        self.most_in_flight.is_some()
    }

    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting.is_empty()
    }

    fn keep_in_flight(&mut self, calls: usize, first_turn: usize, until: Instant) {
        let most = self.most_in_flight.unwrap_or(usize::MAX);
        assert!(calls <= most, "the server admits {most} calls on a connection, not {calls}");
        self.next_until = Some(until);
        let now = Instant::now();
        for place in 0..calls {
            self.waiting.push_back((first_turn + place * 104_729, now));
        }
        self.start_waiting();
    }

    fn start(&mut self, turn: usize, due: Instant, tally: &mut Tally) {
        if self.closing {
            tally.broken += 1;
            return;
        }
        self.waiting.push_back((turn, due));
        self.start_waiting();
    }

    fn receive(&mut self, input: &mut BytesMut, now: Instant, tally: &mut Tally) {
        while let Some(mut rest) = input.get(..).filter(|rest| rest.len() >= FRAME_HEAD) {
            let length = usize::try_from(rest.get_uint(3)).expect("three bytes");
            let (kind, flags, stream) = (rest.get_u8(), rest.get_u8(), rest.get_u32());
            let Some(payload) = rest.get(..length) else { break };
            match kind {
                frame::DATA => self.read_data(flags, stream, payload),
                frame::HEADERS if flags & END_STREAM != 0 => self.end(stream, now, tally),
                frame::RST_STREAM => self.reset(stream, now, tally),
                frame::SETTINGS if flags & ACK == 0 => self.read_settings(payload),
                frame::PING if flags & ACK == 0 => put_frame(&mut self.out, frame::PING, ACK, 0, payload),
                frame::GOAWAY => self.stop_starting(tally),
                frame::WINDOW_UPDATE if stream == 0 => {
                    self.send_window += i64::from(window_increment(payload))
                }
                _ => {}
            }
            input.advance(FRAME_HEAD + length);
        }
        self.start_waiting();
    }

    fn break_off(&mut self, tally: &mut Tally) {
        self.stop_starting(tally);
        tally.broken += self.in_flight as u64;
        self.in_flight = 0;
        self.calls.clear();
    }
}

impl<'a> Http2<'a> {
    /// A connection that sends these messages.
    pub fn new(messages: &'a [Bytes]) -> Self {
        let mut new = Self {
            messages,
            fields: Fields::new(),
            out: PREFACE.to_vec(),
            calls: VecDeque::new(),
            oldest: 1,
            in_flight: 0,
            most_in_flight: None,
            send_window: i64::from(FIRST_WINDOW),
            received: 0,
            waiting: VecDeque::new(),
            closing: false,
            next_until: None,
        };
        put_frame(&mut new.out, frame::SETTINGS, 0, 0, &[]);
        put_frame(&mut new.out, frame::WINDOW_UPDATE, 0, 0, &MORE_WINDOW.to_be_bytes());
        new
    }

    /// Starts the calls that wait, as far as the window of the connection and the server admit.
    fn start_waiting(&mut self) {
        while let Some(&(turn, due)) = self.waiting.front() {
            let message = &self.messages[turn % self.messages.len()];
            let length = i64::try_from(message.len()).expect("a small message");
            assert!(message.len() <= MAX_FRAME, "a message larger than a frame");
            if length > self.send_window || self.in_flight >= self.most_in_flight.unwrap_or(usize::MAX) {
                return;
            }
            self.waiting.pop_front();
            self.send_window -= length;
            let stream = self.oldest + 2 * u32::try_from(self.calls.len()).expect("at most 2^30 calls");
            let fields = if stream == 1 { &self.fields.first } else { &self.fields.indexed };
            put_frame(&mut self.out, frame::HEADERS, END_HEADERS, stream, fields);
            put_frame(&mut self.out, frame::DATA, END_STREAM, stream, message);
            self.calls.push_back(Some(Call { due, turn, answer: Answer::Error }));
            self.in_flight += 1;
        }
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

    fn reset(&mut self, stream: u32, now: Instant, tally: &mut Tally) {
        if let Some(Some(call)) = self.call(stream) {
            call.answer = Answer::Broken;
            self.end(stream, now, tally);
        }
    }

    /// Counts the answer. In a closed loop the next call takes the next message.
    fn end(&mut self, stream: u32, now: Instant, tally: &mut Tally) {
        let Some(Call { due, turn, answer }) = self.call(stream).and_then(Option::take) else { return };
        tally.record(&answer, now - due);
        self.in_flight -= 1;
        while let Some(None) = self.calls.front() {
            self.calls.pop_front();
            self.oldest += 2;
        }
        if self.next_until.is_none_or(|until| now >= until) {
            return;
        }
        if self.closing {
            tally.broken += 1;
        } else {
            self.waiting.push_back((turn.wrapping_add(1), now));
        }
    }

    /// The server accepts no more calls on this connection. The calls that would be next count as broken.
    fn stop_starting(&mut self, tally: &mut Tally) {
        self.closing = true;
        tally.broken += self.waiting.len() as u64;
        self.waiting.clear();
    }

    fn read_settings(&mut self, mut payload: &[u8]) {
        let most = self.most_in_flight.get_or_insert(usize::MAX);
        while payload.len() >= 6 {
            let (setting, value) = (payload.get_u16(), payload.get_u32());
            match setting {
                HEADER_TABLE_SIZE => assert!(value >= 4_096, "the requests use a table of the usual size"),
                MAX_CONCURRENT_STREAMS => *most = value as usize,
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

/// The decision in a message; `None` for a further piece of it.
fn overall_code(data: &[u8]) -> Option<Answer> {
    // Five bytes of gRPC frame, then field 1 (overall_code) as a varint: 08 01 = OK, 08 02 = OVER_LIMIT.
    match data.get(5..7) {
        Some([0x08, 2]) => Some(Answer::OverLimit),
        Some([0x08, _]) => Some(Answer::Ok),
        _ => None,
    }
}
