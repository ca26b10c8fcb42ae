//! Requests over HTTP/1.1 with keep-alive, as a proxy sends them: one in flight on a connection, and the next one after
//! its answer.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Buf as _, Bytes, BytesMut};

use super::Connection;
use super::tally::{Answer, Tally};

/// A connection of HTTP/1.1, without its socket.
pub struct Http1<'a> {
    messages: &'a [Bytes],
    /// Bytes that the next write sends.
    out: Vec<u8>,
    /// Calls without an answer, by their turns and times: the first is in flight, the others wait for it.
    calls: VecDeque<(usize, Instant)>,
    has_ended: bool,
    /// In a closed loop: each answer before this time starts the next call.
    next_until: Option<Instant>,
}

impl<'a> Http1<'a> {
    /// A connection that sends these messages.
    pub fn new(messages: &'a [Bytes]) -> Self {
        Self { messages, out: Vec::new(), calls: VecDeque::new(), has_ended: false, next_until: None }
    }

    fn push(&mut self, turn: usize, due: Instant) {
        self.calls.push_back((turn, due));
        if self.calls.len() == 1 {
            self.send_first();
        }
    }

    fn send_first(&mut self) {
        if let Some((turn, _)) = self.calls.front() {
            self.out.extend_from_slice(&self.messages[turn % self.messages.len()]);
        }
    }
}

impl Connection for Http1<'_> {
    fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    fn keep_in_flight(&mut self, calls: usize, first_turn: usize, until: Instant) {
        assert_eq!(calls, 1, "a connection of HTTP/1.1 has one call in flight");
        self.next_until = Some(until);
        self.push(first_turn, Instant::now());
    }

    fn start(&mut self, turn: usize, due: Instant, tally: &mut Tally) {
        if self.has_ended {
            tally.broken += 1;
        } else {
            self.push(turn, due);
        }
    }

    fn receive(&mut self, input: &mut BytesMut, now: Instant, tally: &mut Tally) {
        while let Some(answer) = take_answer(input) {
            let (turn, due) = self.calls.pop_front().expect("an answer has a request");
            tally.record(&answer, now - due);
            self.send_first();
            if self.next_until.is_some_and(|until| now < until) {
                self.push(turn.wrapping_add(1), now);
            }
        }
    }

    fn break_off(&mut self, tally: &mut Tally) {
        self.has_ended = true;
        tally.broken += self.calls.len() as u64;
        self.calls.clear();
    }
}

/// Takes the first answer from the input if it is complete. The status is a decision of `/check` with the settings for
/// nginx, or an error.
fn take_answer(input: &mut BytesMut) -> Option<Answer> {
    let head_length = input.windows(4).position(|end| end == b"\r\n\r\n")?;
    let head = str::from_utf8(&input[..head_length]).expect("a head is text");
    let answer = match head.get(..12) {
        Some("HTTP/1.1 200") => Answer::Ok,
        Some("HTTP/1.1 403") => Answer::OverLimit,
        Some(status) if status.starts_with("HTTP/1.1 ") => Answer::Error,
        _ => panic!("an answer of HTTP/1.1, not {head}"),
    };
    let body = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let body: usize = body.expect("the length of the body").parse().expect("a number");
    let length = head_length + 4 + body;
    (input.len() >= length).then(|| {
        input.advance(length);
        answer
    })
}
