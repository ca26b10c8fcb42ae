//! Connections whose answers come in the order of the requests: HTTP/1.1 with keep-alive, as a proxy uses it, with one
//! request in flight and the next one after its answer; and the protocol of the floor, with any number in flight.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Buf as _, Bytes, BytesMut};

use super::Connection;
use super::tally::{Answer, Tally};
use crate::floor;

/// A connection of this kind, without its socket.
pub struct InOrder<'a> {
    messages: &'a [Bytes],
    most_in_flight: usize,
    /// Takes the first answer from the input if it is complete.
    take_answer: fn(&mut BytesMut) -> Option<Answer>,
    /// Bytes that the next write sends.
    out: Vec<u8>,
    /// Calls without an answer, by their turns and times: those in flight, then those that wait.
    calls: VecDeque<(usize, Instant)>,
    has_ended: bool,
    /// In a closed loop: each answer before this time starts the next call.
    next_until: Option<Instant>,
}

impl<'a> InOrder<'a> {
    /// A connection of HTTP/1.1 that sends these messages.
    pub fn http1(messages: &'a [Bytes]) -> Self {
        Self::new(messages, 1, take_http1_answer)
    }

    /// A connection to the floor that sends these messages.
    pub fn floor(messages: &'a [Bytes]) -> Self {
        Self::new(messages, usize::MAX, take_floor_answer)
    }

    fn new(
        messages: &'a [Bytes],
        most_in_flight: usize,
        take_answer: fn(&mut BytesMut) -> Option<Answer>,
    ) -> Self {
        let (out, calls) = (Vec::new(), VecDeque::new());
        Self { messages, most_in_flight, take_answer, out, calls, has_ended: false, next_until: None }
    }

    fn push(&mut self, turn: usize, due: Instant) {
        self.calls.push_back((turn, due));
        if self.calls.len() <= self.most_in_flight {
            self.send(turn);
        }
    }

    fn send(&mut self, turn: usize) {
        self.out.extend_from_slice(&self.messages[turn % self.messages.len()]);
    }
}

impl Connection for InOrder<'_> {
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
        let most = self.most_in_flight;
        assert!(calls <= most, "a connection has at most {most} calls in flight, not {calls}");
        self.next_until = Some(until);
        let now = Instant::now();
        (0..calls).for_each(|place| self.push(first_turn + place * 104_729, now));
    }

    fn start(&mut self, turn: usize, due: Instant, tally: &mut Tally) {
        if self.has_ended {
            tally.broken += 1;
        } else {
            self.push(turn, due);
        }
    }

    fn receive(&mut self, input: &mut BytesMut, now: Instant, tally: &mut Tally) {
        while let Some(answer) = (self.take_answer)(input) {
            let (turn, due) = self.calls.pop_front().expect("an answer has a request");
            tally.record(&answer, now - due);
            if let Some(&(waiting, _)) = self.calls.get(self.most_in_flight - 1) {
                self.send(waiting);
            }
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

fn take_floor_answer(input: &mut BytesMut) -> Option<Answer> {
    let answer = *input.first()?;
    input.advance(1);
    Some(if answer == floor::ADMITTED { Answer::Ok } else { Answer::OverLimit })
}

/// The status is a decision of `/check` with the settings for
/// nginx, or an error.
fn take_http1_answer(input: &mut BytesMut) -> Option<Answer> {
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
