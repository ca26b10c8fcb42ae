//! The accepted calls of a connection: those that arrived in this poll, and those held because the store has as many
//! decisions in flight as it is given. Starts them in order of arrival.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;
use hyper::body::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};

use super::answering::{DEADLINE, send, spawn_decision};
use super::call::{CallServer, CallStarter, StartedCall};
use super::message::RequestBody;
use super::open_calls::{ConnectionCounts, OpenCall};
use super::routed_calls::spawn_routed;
use crate::grpc::head::{CALL_TIMEOUT, CallHead};
use crate::grpc::tonic_server::MAX_CONCURRENT_STREAMS;

/// Maximum held calls that start in one poll, about as many as one poll of a connection reads. The worker's other tasks
/// run before more calls start.
const STARTS_AT_ONCE: usize = 32;
/// Capacity to which the list of new calls shrinks after a burst.
const USUAL_CALLS: usize = 64;

/// Calls of a connection that are accepted but not started.
pub(super) struct AcceptedCalls {
    starter: CallStarter,
    /// For calls that started on workers which served the connection earlier, and that may still be open.
    earlier: Vec<Arc<ConnectionCounts>>,
    /// Accepted in this poll.
    new: Vec<(Request<RecvStream>, SendResponse<Bytes>)>,
    /// Accepted in earlier polls.
    held: HeldCalls,
}

impl AcceptedCalls {
    pub(super) fn new(starter: CallStarter) -> Self {
        let held = HeldCalls::new(starter.counts.worker.hold_at_most);
        Self { starter, earlier: Vec::new(), new: Vec::new(), held }
    }

    /// Starts later calls on another worker. Started calls end where they are.
    pub(super) fn move_to(&mut self, server: Arc<CallServer>) {
        let counts = server.counts.add_connection(Arc::clone(&self.starter.counts.slot_answers));
        self.starter.server = server;
        self.earlier.retain(|counts| counts.open_calls() > 0);
        self.earlier.push(std::mem::replace(&mut self.starter.counts, counts));
    }

    pub(super) fn has_pending_decisions(&self) -> bool {
        let earlier = self.earlier.iter().any(|counts| counts.has_pending_decisions());
        earlier || self.starter.counts.has_pending_decisions()
    }

    pub(super) fn push(&mut self, call: (Request<RecvStream>, SendResponse<Bytes>)) {
        self.new.push(call);
    }

    pub(super) fn new_calls(&self) -> usize {
        self.new.len()
    }

    /// Streams that h2 needs for calls: for the open and for the new ones.
    pub(super) fn streams(&self) -> usize {
        let earlier: usize = self.earlier.iter().map(|counts| counts.open_calls()).sum();
        earlier + self.starter.counts.open_calls() + self.new.len()
    }

    /// Releases the slots of answered calls that the client reset in this poll.
    pub(super) fn release_resets(&self) {
        self.starter.counts.slot_answers.release_resets();
    }

    /// Starts calls in order of arrival, and holds those that may not be decided yet.
    pub(super) fn start(&mut self, cx: &mut Context<'_>) {
        self.held.record_load(self.starter.counts.store_has_room());
        let mut started = 0;
        while started < STARTS_AT_ONCE
            && self.may_start()
            && let Some(call) = self.held.next(cx)
        {
            self.start_held(cx, call);
            started += 1;
        }
        let mut new = std::mem::take(&mut self.new);
        for (request, respond) in new.drain(..) {
            let CallHead { time_limit, is_long } = match self.starter.read_head(&request) {
                Ok(head) => head,
                Err(refused) => {
                    self.go_on(cx, refused, respond, CALL_TIMEOUT);
                    continue;
                }
            };
            let starts = self.held.is_empty() && self.may_start();
            // At the limit, `start_call` refuses the call.
            if starts || is_long || !self.starter.counts.has_room() {
                self.start_call(cx, request, respond, time_limit);
            } else {
                let (since, open) = (Instant::now(), self.starter.counts.count_open_call());
                let call = HeldCall { request, respond, since, time_limit, open };
                self.held.push(cx, call);
                self.starter.counts.record_held();
            }
        }
        new.shrink_to(USUAL_CALLS);
        self.new = new;
        if !self.held.is_empty() && self.may_start() {
            cx.waker().wake_by_ref();
        } else if !self.held.is_empty() {
            self.starter.counts.next_start.register(cx.waker());
            self.held.wake_when_due(cx);
        }
    }

    /// `true` if the next call may start.
    fn may_start(&self) -> bool {
        self.starter.counts.may_decide() || self.held.is_overloaded
    }

    fn start_held(&mut self, cx: &mut Context<'_>, call: HeldCall) {
        let waited = call.waited();
        let HeldCall { request, respond, time_limit, open, .. } = call;
        match time_limit.checked_sub(waited) {
            Some(left) => {
                drop(open);
                self.start_call(cx, request, respond, left);
            }
            None => {
                send(respond, open.counts.record(DEADLINE).into(), &self.starter.counts);
            }
        }
    }

    fn start_call(
        &self,
        cx: &mut Context<'_>,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        time_limit: Duration,
    ) {
        self.go_on(cx, self.starter.start(request.map(RequestBody::from)), respond, time_limit);
    }

    /// Answers a started call, or lets it continue as a task. Polls its decision once. The decision is then ready if
    /// the counters are in memory, if no limit applies, or if the deny cache denies it, and its answer needs no task.
    /// With Redis this poll queues the request for its server, and a task waits for the reply.
    fn go_on(
        &self,
        cx: &mut Context<'_>,
        started: StartedCall,
        respond: SendResponse<Bytes>,
        time_limit: Duration,
    ) {
        let counts = &self.starter.counts;
        match started {
            StartedCall::Answered(reply) => send(respond, reply, counts),
            StartedCall::Deciding(mut deciding) => match deciding.as_mut().poll(cx) {
                Poll::Ready(reply) => send(respond, reply, counts),
                Poll::Pending => {
                    let pending = counts.count_pending_decision(true);
                    spawn_decision(respond, deciding, time_limit, pending, counts.count_open_call());
                }
            },
            StartedCall::Reading(reading) => {
                let pending = counts.count_pending_decision(false);
                spawn_decision(respond, reading, time_limit, pending, counts.count_open_call());
            }
            StartedCall::Routed(call) => spawn_routed(respond, call, counts.count_open_call()),
        }
    }
}

/// Capacity of an empty list of held calls.
const USUAL_HELD_CALLS: usize = 64;

/// A connection's held calls, in order of arrival. Calls are held while the store has enough decisions in flight. A
/// call that starts later has its full time for the store, and a call that its client resets before it starts is not
/// charged.
struct HeldCalls {
    calls: VecDeque<HeldCall>,
    at_most: Duration,
    /// Wakes the connection when the oldest call must start.
    timer: Option<Pin<Box<Sleep>>>,
    /// `true` while more calls arrive than can be decided. Then no call is held.
    is_overloaded: bool,
}

struct HeldCall {
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    since: Instant,
    time_limit: Duration,
    open: OpenCall,
}

impl HeldCalls {
    /// Each call is held for at most `at_most`.
    fn new(at_most: Duration) -> Self {
        Self { calls: VecDeque::new(), at_most, timer: None, is_overloaded: false }
    }

    fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Records whether the store has room. If it does not, and the oldest call has been held as long as allowed, this
    /// is not a burst: more calls arrive than can be decided, and holding them would only delay them. The store's queue
    /// then refuses the excess.
    fn record_load(&mut self, store_has_room: bool) {
        let is_due = || self.calls.front().is_some_and(|oldest| oldest.waited() >= self.at_most);
        self.is_overloaded = !store_has_room && (self.is_overloaded || is_due());
    }

    /// Wakes the task when the oldest call must start.
    fn wake_when_due(&mut self, cx: &mut Context<'_>) {
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

    /// Holds a call. A client can have [`MAX_CONCURRENT_STREAMS`] open calls, so any call beyond that is one it has
    /// reset. Reset calls are removed together, once they equal the open ones allowed, so that each reset costs little.
    fn push(&mut self, cx: &mut Context<'_>, call: HeldCall) {
        if self.calls.len() >= 2 * MAX_CONCURRENT_STREAMS as usize {
            self.calls.retain_mut(|call| !call.is_reset(cx));
        }
        self.calls.push_back(call);
    }

    /// Takes the oldest call that its client has not reset.
    fn next(&mut self, cx: &mut Context<'_>) -> Option<HeldCall> {
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
    fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    fn is_reset(&mut self, cx: &mut Context<'_>) -> bool {
        self.respond.poll_reset(cx).is_ready()
    }
}
