//! Decides how many workers serve connections. While few calls come, one worker serves all of them: it reads the calls
//! of many connections at once, sends them to Redis together, and wakes up less often than several workers would. As
//! soon as the workers in use are busy, more are used, up to one per core. Connections move between workers while they
//! are served; their clients do not notice.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::RuntimeMetrics;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::acceptor::OpenConnections;

/// How often the load of the workers is measured.
const TICK: Duration = Duration::from_millis(20);
/// More workers are used when one is busy for more than this share of a tick, in thousandths.
const BUSY: u64 = 750;
/// One worker less is used when the others would then be busy for at most this share.
const CALM: u64 = 550;
/// For this number of ticks in a row.
const CALM_TICKS: u32 = 50;

/// An order to a worker: gives connections to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GiveAway {
    pub(super) to: usize,
    pub(super) connections: usize,
}

/// A worker as the balancer sees it.
#[derive(Debug)]
pub(super) struct BalancedWorker {
    pub(super) open: OpenConnections,
    pub(super) metrics: Arc<OnceLock<RuntimeMetrics>>,
    pub(super) orders: mpsc::Sender<GiveAway>,
}

/// How many workers serve connections: the first ones. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct WorkersInUse(Arc<AtomicUsize>);

impl WorkersInUse {
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(count)))
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }
}

/// Measures the load of the workers, and moves connections.
#[derive(Debug)]
pub(super) struct Balancer {
    pub(super) workers: Vec<BalancedWorker>,
    pub(super) in_use: WorkersInUse,
}

impl Balancer {
    /// Never returns.
    pub(super) async fn run(&self) {
        if self.workers.len() == 1 {
            return std::future::pending().await;
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = self.busy_times();
        let mut last = ticks.tick().await;
        let (mut active, mut calm) = (1, 0);
        loop {
            let now = ticks.tick().await;
            let times = self.busy_times();
            let length = (now - last).as_micros().max(1);
            let share = |(now, before): (&Duration, &Duration)| {
                u64::try_from(now.saturating_sub(*before).as_micros() * 1_000 / length).unwrap_or(u64::MAX)
            };
            let busy: Vec<u64> = times.iter().zip(&before).map(share).collect();
            (before, last) = (times, now);
            let counts: Vec<usize> = self.workers.iter().map(|worker| worker.open.count()).collect();
            let wanted = wanted_workers(active, &busy, &counts, &mut calm);
            if wanted != active {
                tracing::debug!(workers = wanted, "another number of workers serves the connections");
                active = wanted;
                self.in_use.set(active);
            }
            for (from, order) in moves(active, &counts) {
                // If the queue of orders is full, the worker gets a new one at a later tick.
                let _ = self.workers[from].orders.try_send(order);
            }
        }
    }

    fn busy_times(&self) -> Vec<Duration> {
        let time = |worker: &BalancedWorker| {
            worker.metrics.get().map(|metrics| metrics.worker_total_busy_duration(0)).unwrap_or_default()
        };
        self.workers.iter().map(time).collect()
    }
}

/// How many workers are to be used. `calm` counts the ticks in a row in which one less would be enough.
fn wanted_workers(active: usize, busy: &[u64], counts: &[usize], calm: &mut u32) -> usize {
    let connections: usize = counts.iter().sum();
    if busy.iter().any(|&share| share > BUSY) {
        *calm = 0;
        // A worker for each connection is enough.
        return (2 * active).min(busy.len()).min(connections.max(active));
    }
    let others = active as u64 - 1;
    *calm = if active > 1 && busy.iter().sum::<u64>() <= CALM * others { *calm + 1 } else { 0 };
    if *calm >= CALM_TICKS {
        *calm = 0;
        return active - 1;
    }
    active
}

/// The moves after which the first `active` workers have equally many connections and the others none.
fn moves(active: usize, counts: &[usize]) -> Vec<(usize, GiveAway)> {
    let total: usize = counts.iter().sum();
    let share = |worker: usize| {
        if worker < active { total / active + usize::from(worker < total % active) } else { 0 }
    };
    let mut moves = Vec::new();
    let mut missing: Vec<usize> =
        (0..counts.len()).map(|worker| share(worker).saturating_sub(counts[worker])).collect();
    for from in 0..counts.len() {
        // Workers in use may differ by a few connections: a move costs more than it gains.
        let is_even = from < active && counts[from] <= total.div_ceil(active) + total / active / 8;
        let mut surplus = if is_even { 0 } else { counts[from].saturating_sub(share(from)) };
        for (to, missing) in missing.iter_mut().enumerate() {
            let connections = surplus.min(*missing);
            if connections > 0 {
                moves.push((from, GiveAway { to, connections }));
                surplus -= connections;
                *missing -= connections;
            }
        }
    }
    moves
}
