//! Finds the shares that a decision's counters reach, by their level: the next request finds again what was lost.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use base::clock::Clock;
use engine::{ChargedLimit, Decision, Level, LimitSpec, Outcome, Share};
use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{NotifyStats, count};

/// Shares that wait for the task. About 1 MB.
const MAX_QUEUED: usize = 1_000;
/// Shares in a worker's memory. A full one is halved: the store's marks remain.
const MAX_KNOWN: usize = 10_000;

/// Creates the workers' sides of the queue.
#[derive(Debug)]
pub struct Notices {
    queue: mpsc::Sender<Reached>,
    stats: Arc<NotifyStats>,
    clock: Arc<dyn Clock>,
}

/// Where a worker's limiter looks. Clones share their memory. The default finds nothing.
#[derive(Clone, Debug, Default)]
pub struct WorkerNotices(Option<Arc<Worker>>);

#[derive(Debug)]
struct Worker {
    known: Known,
    hasher: DefaultHashBuilder,
    queue: mpsc::Sender<Reached>,
    stats: Arc<NotifyStats>,
    clock: Arc<dyn Clock>,
}

/// When the periods of shares end, by the store's clock in microseconds since the epoch. A hash with a random seed
/// stands for counter and limit: with 64 bits, about one process in 10^11 confuses two of 10,000.
type Known = Arc<Mutex<HashMap<(u64, u8), u64>>>;

/// A share, and the counter on which it is reached.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) domain: Arc<str>,
    pub(super) rule: Arc<str>,
    /// The counter's.
    pub(super) key: Box<str>,
    pub(super) share: Share,
    pub(super) level: Level,
    /// Without its tiers, which can be many.
    pub(super) spec: Box<LimitSpec>,
    /// By the process's clock, microseconds since the epoch.
    pub(super) queued_us: u64,
    known: Known,
    place: (u64, u8),
}

impl Notices {
    /// Also returns the receiver, for the task.
    pub(super) fn channel(clock: Arc<dyn Clock>, stats: Arc<NotifyStats>) -> (Self, mpsc::Receiver<Reached>) {
        let (queue, reached) = mpsc::channel(MAX_QUEUED);
        (Self { queue, stats, clock }, reached)
    }

    pub fn worker(&self) -> WorkerNotices {
        WorkerNotices(Some(Arc::new(Worker {
            known: Known::default(),
            hasher: DefaultHashBuilder::default(),
            queue: self.queue.clone(),
            stats: Arc::clone(&self.stats),
            clock: Arc::clone(&self.clock),
        })))
    }
}

impl WorkerNotices {
    /// Queues shares that a charge's counter reached, except known ones. For limits with `notify`. `outcome` is the
    /// charge's.
    pub fn look(&self, decision: &Decision, charged: &ChargedLimit<'_>, outcome: &Outcome) {
        let Some(worker) = &self.0 else { return };
        if let Some(level) = decision.level(charged, outcome) {
            worker.look(decision, charged, level);
        }
    }
}

impl Worker {
    fn look(&self, decision: &Decision, charged: &ChargedLimit<'_>, level: Level) {
        let spec = &charged.limit.spec;
        let (key, _) = decision.charged_counter(charged.index);
        let counter = self.hasher.hash_one((key, &charged.limit.label, level.of, level.window_us));
        let mut known = self.known.lock();
        let reached = spec.notify.iter().take_while(|share| share.is_reached(level.used, level.of));
        for (place, share) in (0..).map(|index| (counter, index)).zip(reached) {
            if known.get(&place).is_some_and(|end_us| *end_us > level.now_us) {
                continue;
            }
            let found = Reached {
                domain: charged.rule.map_or_else(|| "".into(), |rule| Arc::clone(&rule.domain)),
                rule: Arc::clone(&charged.limit.label),
                key: key.into(),
                share,
                level,
                spec: Box::new(LimitSpec { tiers: BTreeMap::new(), ..spec.clone() }),
                queued_us: self.clock.now_us(),
                known: Arc::clone(&self.known),
                place,
            };
            let end_us = level.now_us.saturating_add(found.rest_us(found.queued_us));
            if self.queue.try_send(found).is_err() {
                return count(&self.stats.dropped);
            }
            if known.len() >= MAX_KNOWN {
                let mut is_kept = false;
                known.retain(|_, _| {
                    is_kept = !is_kept;
                    is_kept
                });
            }
            known.insert(place, end_us);
        }
    }
}

impl Reached {
    /// Microseconds until its period ends: the window, or for an algorithm without windows, one period since it was
    /// found. `now_us`: by the process's clock.
    pub(super) fn rest_us(&self, now_us: u64) -> u64 {
        let whole_us = match self.level.window_us {
            Some((_, end_us)) => end_us.saturating_sub(self.level.now_us),
            None => self.spec.period.us(),
        };
        whole_us.saturating_sub(now_us.saturating_sub(self.queued_us))
    }

    /// Lets the next request find it again.
    pub(super) fn forget(&self) {
        self.known.lock().remove(&self.place);
    }
}
