//! The calls of a connection that are accepted and not started.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;
use hyper::body::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::grpc::open_calls::OpenCall;

/// An empty list of held calls keeps room for this many.
const USUAL_HELD_CALLS: usize = 64;

/// The held calls of a connection, in the order of their arrival. A connection holds its calls while the store has
/// enough decisions. A call that starts later has its whole time for the store, and a call that its client resets
/// before it starts is not charged.
pub(super) struct HeldCalls {
    calls: VecDeque<HeldCall>,
    at_most: Duration,
    /// Wakes the connection when the oldest call must start.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether more calls arrive than can be decided. Then no call is held.
    is_overloaded: bool,
}

/// A call that has not been started.
pub(super) struct HeldCall {
    pub(super) request: Request<RecvStream>,
    pub(super) respond: SendResponse<Bytes>,
    pub(super) since: Instant,
    pub(super) time_limit: Duration,
    pub(super) open: OpenCall,
}

impl HeldCalls {
    /// An empty list. Each call is held for at most this time.
    pub(super) fn new(at_most: Duration) -> Self {
        Self { calls: VecDeque::new(), at_most, timer: None, is_overloaded: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Records whether the store has room. If it has none, and the oldest call has been held for the longest time
    /// allowed, this is not a burst: more calls arrive than can be decided, and to hold them would only delay them. The
    /// queue of the store then refuses the surplus.
    pub(super) fn record_load(&mut self, store_has_room: bool) {
        let is_due = || self.calls.front().is_some_and(|oldest| oldest.waited() >= self.at_most);
        self.is_overloaded = !store_has_room && (self.is_overloaded || is_due());
    }

    /// Whether calls start without being held, until the store has room again.
    pub(super) fn is_overloaded(&self) -> bool {
        self.is_overloaded
    }

    /// Wakes the task when the oldest call must start.
    pub(super) fn wake_when_due(&mut self, cx: &mut Context<'_>) {
        let Some(oldest) = self.calls.front() else { return };
        let due = oldest.since + self.at_most;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        if timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    /// Holds a call. A client may have at most `most` open calls, so it has reset any further ones. Reset calls are
    /// removed together, when there are `most` of them, so that each reset costs little.
    pub(super) fn push(&mut self, cx: &mut Context<'_>, most: usize, call: HeldCall) {
        if self.calls.len() >= 2 * most {
            self.calls.retain_mut(|call| !call.is_reset(cx));
        }
        self.calls.push_back(call);
    }

    /// The oldest call that its client has not reset.
    pub(super) fn next(&mut self, cx: &mut Context<'_>) -> Option<HeldCall> {
        while let Some(mut call) = self.calls.pop_front() {
            if !call.is_reset(cx) {
                return Some(call);
            }
        }
        self.calls.shrink_to(USUAL_HELD_CALLS);
        self.timer = None;
        None
    }
}

impl HeldCall {
    pub(super) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    fn is_reset(&mut self, cx: &mut Context<'_>) -> bool {
        self.respond.poll_reset(cx).is_ready()
    }
}
