//! Decides how many workers serve connections. At low load one worker serves all of them: it reads the calls of many
//! connections together, sends them to Redis together, and wakes up less often ([decision
//! 46](../../../docs/decisions/0046-as-many-workers-as-the-load-needs.md)). When a worker is busy, the number doubles,
//! up to `server.workers`; connections move between workers while they are served (`placement.rs`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;

use crate::grpc::worker_link::{GiveAway, WorkerLink, Workers};

/// How often the workers' load is measured.
const TICK: Duration = Duration::from_millis(20);
/// Adds workers when one is busy for more than this share of a tick, in thousandths.
const BUSY: u32 = 750;
/// Removes a worker if the others would then be busy for at most this share of the time, in thousandths.
const CALM: u32 = 550;
/// Calm ticks in succession before a worker is removed.
const CALM_TICKS: u32 = 50;

/// Measures the workers' load, and moves connections.
#[derive(Debug)]
pub(super) struct Balancer {
    pub(super) workers: Arc<Workers>,
}

impl Balancer {
    /// Never returns.
    pub(super) async fn run(&self) {
        if self.workers.links.len() == 1 {
            return std::future::pending().await;
        }
        let mut ticks = base::ticks(TICK);
        let mut last = ticks.tick().await;
        let mut before = self.busy_times();
        let mut need = Need { workers: self.workers.in_use(), calm_ticks: 0 };
        loop {
            tokio::select! {
                now = ticks.tick() => {
                    let times = self.busy_times();
                    let shares = times.iter().zip(&before).map(|(now, before)| *now - *before);
                    let busy: Vec<u32> = shares.map(|time| per_mille(time, now - last)).collect();
                    (before, last) = (times, now);
                    need.update(&busy, self.most_workers());
                }
                // Only useful while another worker would help: calls are held under any overload.
                () = self.workers.burst.notified(), if need.workers < self.most_workers() => {
                    need = Need { workers: self.most_workers(), calm_ticks: 0 };
                }
            }
            self.use_workers(need.workers);
        }
    }

    /// Serves the connections with this number of workers.
    fn use_workers(&self, workers: usize) {
        if workers != self.workers.in_use() {
            tracing::debug!(workers, "number of serving workers changed");
            if workers < self.workers.in_use() {
                // Calls held until now do not count as a burst.
                let _ = self.workers.burst.notified().now_or_never();
            }
            self.workers.set_in_use(workers);
        }
        let links = &self.workers.links;
        let connections: Vec<usize> = links.iter().map(WorkerLink::open_connections).collect();
        for (from, order) in moves(workers, &connections) {
            // If a worker has not finished its last orders, it gets another one at a later tick.
            if let Err(error) = links[from].orders.try_send(order) {
                tracing::debug!(
                    worker = from, %error,
                    "worker has unfinished moves; retrying at the next tick"
                );
            }
        }
    }

    /// More workers than connections would be idle.
    fn most_workers(&self) -> usize {
        let links = &self.workers.links;
        let connections: usize = links.iter().map(WorkerLink::open_connections).sum();
        connections.clamp(1, links.len())
    }

    /// How long each worker has been busy since it started.
    fn busy_times(&self) -> Vec<Duration> {
        let busy_time = |worker: &WorkerLink| Some(worker.metrics.get()?.worker_total_busy_duration(0));
        self.workers.links.iter().map(|worker| busy_time(worker).unwrap_or_default()).collect()
    }
}

fn per_mille(part: Duration, whole: Duration) -> u32 {
    let share = part.as_nanos() * 1_000 / whole.as_nanos().max(1);
    u32::try_from(share).unwrap_or(u32::MAX)
}

/// How many workers the load needs.
#[derive(Debug, PartialEq, Eq)]
struct Need {
    workers: usize,
    /// Ticks in succession for which one worker less would have been enough.
    calm_ticks: u32,
}

impl Need {
    /// Updates the need. `busy`: each worker's busy share of the last tick, in thousandths. `most`: workers that can be
    /// of use.
    fn update(&mut self, busy: &[u32], most: usize) {
        if busy.iter().any(|&share| share > BUSY) {
            self.calm_ticks = 0;
            self.workers = (2 * self.workers).min(most).max(self.workers);
            return;
        }
        let total: u32 = busy.iter().sum();
        let others = u32::try_from(self.workers - 1).unwrap_or(u32::MAX);
        let one_less_is_enough = others > 0 && total <= CALM.saturating_mul(others);
        self.calm_ticks = if one_less_is_enough { self.calm_ticks + 1 } else { 0 };
        if self.calm_ticks == CALM_TICKS {
            *self = Self { workers: self.workers - 1, calm_ticks: 0 };
        }
    }
}

/// Returns the moves that leave the first `workers` workers with about equally many connections, and the others with
/// none.
fn moves(workers: usize, connections: &[usize]) -> Vec<(usize, GiveAway)> {
    let total: usize = connections.iter().sum();
    let share = |worker: usize| {
        if worker < workers { total / workers + usize::from(worker < total % workers) } else { 0 }
    };
    // An eighth above the fair share does not justify a move.
    let most = total.div_ceil(workers) + total / workers / 8;
    let is_fair = |worker: usize| worker < workers && connections[worker] <= most;
    let mut missing: Vec<usize> =
        connections.iter().enumerate().map(|(worker, own)| share(worker).saturating_sub(*own)).collect();
    let mut moves = Vec::new();
    for (from, own) in connections.iter().enumerate().filter(|(worker, _)| !is_fair(*worker)) {
        let mut surplus = own.saturating_sub(share(from));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_workers_are_used_at_once_and_fewer_after_a_calm_second() {
        let mut need = Need { workers: 1, calm_ticks: 0 };
        // (busy shares of four workers, workers then in use)
        let table: [([u32; 4], usize); 7] = [
            ([700, 0, 0, 0], 1),
            ([900, 0, 0, 0], 2),
            ([400, 800, 0, 0], 4),
            ([900, 900, 900, 900], 4),
            ([600, 600, 0, 0], 4),
            ([500, 500, 700, 100], 4),
            ([600, 600, 400, 100], 4),
        ];
        for (busy, expected) in table {
            need.update(&busy, 4);
            assert_eq!(need.workers, expected, "{busy:?}");
        }
        let calm = [100, 100, 100, 100];
        for expected in [3, 2, 1, 1] {
            for tick in 0..CALM_TICKS {
                let before = need.workers;
                need.update(&calm, 4);
                assert!(tick + 1 == CALM_TICKS || need.workers == before);
            }
            assert_eq!(need.workers, expected);
        }
    }

    #[test]
    fn a_pause_of_the_calm_starts_it_anew() {
        let mut need = Need { workers: 2, calm_ticks: 0 };
        for _ in 1..CALM_TICKS {
            need.update(&[100, 100], 2);
        }
        need.update(&[300, 300], 2);
        need.update(&[100, 100], 2);
        assert_eq!(need, Need { workers: 2, calm_ticks: 1 });
    }

    #[test]
    fn there_are_no_more_workers_than_connections() {
        let mut need = Need { workers: 1, calm_ticks: 0 };
        need.update(&[1_000, 0, 0, 0], 1);
        assert_eq!(need.workers, 1);
        need.update(&[1_000, 0, 0, 0], 3);
        need.update(&[1_000, 1_000, 0, 0], 3);
        assert_eq!(need.workers, 3);
    }

    #[test]
    fn connections_are_shared_equally_by_the_workers_in_use() {
        let give = |to, connections| GiveAway { to, connections };
        assert_eq!(moves(2, &[4, 0]), [(0, give(1, 2))]);
        assert_eq!(moves(2, &[2, 0]), [(0, give(1, 1))]);
        assert_eq!(moves(2, &[3, 0]), [(0, give(1, 1))]);
        assert_eq!(moves(3, &[3, 0, 0]), [(0, give(1, 1)), (0, give(2, 1))]);
        assert_eq!(moves(1, &[2, 2]), [(1, give(0, 2))]);
        assert_eq!(moves(4, &[50, 50, 0, 0]), [(0, give(2, 25)), (1, give(3, 25))]);
        assert_eq!(moves(2, &[1, 1, 3]), [(2, give(0, 2)), (2, give(1, 1))]);
        // Balanced enough.
        for connections in [[1, 1], [2, 1], [1, 2], [3, 2], [54, 46], [0, 0], [1, 0], [0, 1]] {
            assert_eq!(moves(2, &connections), [], "{connections:?}");
        }
    }
}
