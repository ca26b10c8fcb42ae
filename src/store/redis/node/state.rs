//! What the batchers and the probe of one node share.

use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::admission::Pace;
use super::gate::BreakerGate;
use super::job::{CallError, Job, deliver, turn_away};
use super::queue::{Queue, Taken};
use crate::engine::StoreError;
use crate::store::redis::connect::{ConnectionPool, Target};
use crate::store::redis::observer::QueueDepth;
use crate::store::redis::options::Topology;
use crate::store::redis::script::Encoded;

/// How the requests of a batch are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// As one call.
    One,
    /// As one call for each slot.
    PerSlot,
}

impl Calls {
    pub(super) fn for_topology(topology: &Topology) -> Self {
        match topology {
            Topology::Cluster => Self::PerSlot,
            Topology::Standalone | Topology::Sentinel(_) => Self::One,
        }
    }
}

/// What the batchers of a lane share.
pub(super) struct NodeState {
    pub(super) queue: Queue<Job>,
    pub(super) pool: ConnectionPool,
    /// Where the connections lead.
    pub(super) target: Target,
    pub(super) gate: BreakerGate,
    pub(super) pace: Mutex<Pacing>,
    pub(super) max_batch: usize,
    pub(super) max_queue: usize,
    /// The longest a decision may take.
    pub(super) timeout: Duration,
    /// What a probe asks to decide.
    pub(super) probe: Mutex<Encoded>,
    pub(super) calls: Calls,
    pub(super) queue_depth: QueueDepth,
}

/// The pace; when requests were last taken up, and whether others were left waiting then.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    pace: Pace,
    last_take: Option<Instant>,
    was_busy: bool,
}

impl NodeState {
    /// What waits, up to so many counters: what a call costs Redis, and so how long everybody else waits, goes by
    /// these and not by requests. Whom the answer would reach too late is told at once.
    pub(super) fn take(&self) -> Vec<Job> {
        let now = Instant::now();
        let latest = now + self.pace.lock().pace.lead(self.timeout);
        let weigh = |job: &Job| {
            let is_wanted = !job.answer.is_closed() && job.deadline > latest;
            is_wanted.then(|| job.request.key_count().max(1))
        };
        let taken = self.queue.take(self.max_batch, weigh);
        self.queue_depth.set(taken.left);
        self.pace(now, &taken);
        for job in taken.passed.into_iter().filter(|job| job.deadline > now) {
            deliver(job.answer, Err(CallError::Failed(StoreError::Overloaded)));
        }
        taken.items
    }

    /// Learns from what was taken how many may wait from now on: at least a full batch.
    fn pace(&self, now: Instant, taken: &Taken<Job>) {
        let mut pacing = self.pace.lock();
        let last = pacing.last_take.replace(now);
        let was_busy = std::mem::replace(&mut pacing.was_busy, taken.left > 0) || taken.overflowed;
        if let Some(last) = last.filter(|_| was_busy) {
            pacing.pace.taken_while_busy(taken.items.len(), now - last);
            if let Some(bearable) = pacing.pace.bearable(self.timeout) {
                self.queue.set_bound(bearable.max(self.max_batch).min(self.max_queue));
            }
        }
    }

    /// Waits for what a call comes to, and takes note of how long it took and whether the server is well.
    pub(super) async fn watch<T>(
        &self,
        call: impl Future<Output = T>,
        deadline: Instant,
        health: impl Fn(&T) -> Result<(), &StoreError>,
    ) -> T {
        let sent = Instant::now();
        let mut call = pin!(call);
        let answer = if let Ok(answer) = timeout_at(deadline, &mut call).await {
            self.record(health(&answer));
            answer
        } else {
            // One call, one failure, whatever comes of it later.
            self.record(Err(&StoreError::Timeout));
            call.await
        };
        self.pace.lock().pace.called(sent.elapsed());
        answer
    }

    /// Takes note of how a call ended; tells everyone who waits when there is to be no other.
    pub(super) fn record(&self, result: Result<(), &StoreError>) {
        if let Err(open) = self.gate.record(result) {
            turn_away(self.everyone(), &open);
        }
    }

    /// Empties the queue, not to decide.
    pub(super) fn everyone(&self) -> Vec<Job> {
        let waiting = self.queue.take(usize::MAX, |_| Some(0)).items;
        self.queue_depth.set(0);
        self.pace.lock().interrupted();
        waiting
    }
}

impl Pacing {
    /// Requests were not decided for a while: the time until the next ones says nothing of the server's pace.
    pub(super) fn interrupted(&mut self) {
        self.last_take = None;
        self.was_busy = false;
    }
}
