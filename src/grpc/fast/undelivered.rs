//! Releases the slots of answers that do not arrive. A client may stop waiting while its answer is on the way: then it
//! resets the call, and never returns the receipt. h2 ignores resets of answered calls, so `connection_io` records
//! them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::Charges;
use h2::StreamId;
use parking_lot::Mutex;

/// Answers with slots that a connection remembers: a second's, at 256 slots per second.
const MAX_REMEMBERED: usize = 256;

/// Sends charges to the store, without waiting.
pub(super) type SendCharges = Arc<dyn Fn(Charges) + Send + Sync>;

/// The last answers with slots of one connection, and the calls that its client reset since the last poll.
pub(super) struct SlotAnswers {
    send: SendCharges,
    has_resets: AtomicBool,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    answered: VecDeque<(u32, Charges)>,
    reset: Vec<u32>,
}

impl SlotAnswers {
    pub(super) fn new(send: SendCharges) -> Self {
        Self { send, has_resets: AtomicBool::new(false), calls: Mutex::default() }
    }

    /// Remembers how to release an answer's slots. Call it before the answer is sent.
    pub(super) fn remember(&self, stream: StreamId, release: Charges) {
        let mut calls = self.calls.lock();
        if calls.answered.len() == MAX_REMEMBERED {
            calls.answered.pop_front();
        }
        calls.answered.push_back((stream.into(), release));
    }

    /// Releases a remembered answer's slots.
    pub(super) fn release(&self, stream: StreamId) {
        self.release_all(&[stream.into()]);
    }

    pub(super) fn record_resets(&self, streams: &mut Vec<u32>) {
        self.calls.lock().reset.append(streams);
        self.has_resets.store(true, Ordering::Relaxed);
    }

    /// Releases the slots of reset calls. Call it after h2 processed the resets: an answer sent later fails, and its
    /// sender calls [`SlotAnswers::release`].
    pub(super) fn release_resets(&self) {
        if self.has_resets.load(Ordering::Relaxed) && self.has_resets.swap(false, Ordering::Relaxed) {
            let reset = std::mem::take(&mut self.calls.lock().reset);
            self.release_all(&reset);
        }
    }

    fn release_all(&self, streams: &[u32]) {
        let mut released = Vec::new();
        self.calls.lock().answered.retain_mut(|(stream, release)| {
            let is_kept = !streams.contains(stream);
            if !is_kept {
                released.push(std::mem::take(release));
            }
            is_kept
        });
        released.into_iter().for_each(|release| (self.send)(release));
    }
}
