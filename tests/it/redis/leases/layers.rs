//! The layer over the Redis store: the memory store follows it call by call, and two layers share counters under many
//! concurrent calls.

use std::sync::Arc;
use std::time::Duration;

use ::base::clock::{BootClock, ManualClock};
use ::store::leases::{LeaseStats, Leased, Leases};
use ::store::memory::{MemoryOptions, MemoryStore};
use ::store::redis::RedisStore;
use engine::algorithm::Kernel;
use engine::{Charges, Cost, LimitId, Outcomes, Store, StoreError, Verdict};
use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::redis::{kernels, one_charge, patient_options, remaining, store};
use crate::support::redis::Redis;

/// The algorithms whose units can be taken ahead. No unit is freed during a test.
fn leasable(limit: u64) -> impl Iterator<Item = (&'static str, Kernel)> {
    kernels(limit).into_iter().filter(|(_, kernel)| !matches!(kernel, Kernel::SlidingLog(_)))
}

fn leased_charge(kernel: Kernel, key: &str, cost: Cost) -> Charges {
    let mut charges = one_charge(kernel, key, cost);
    charges.set_leased(0, LimitId(0));
    charges
}

/// A process: the layer, and its lender.
struct Process<S> {
    layer: Leased<S, BootClock>,
    leases: Arc<Leases>,
    stop: CancellationToken,
    lender: JoinSet<()>,
}

impl<S: Store + 'static> Process<S> {
    fn start(below: S) -> Self {
        let leases = Arc::new(Leases::new(Duration::from_secs(1)));
        let (layer, lender) = Leased::new(below, Arc::clone(&leases), BootClock);
        let stop = CancellationToken::new();
        let mut running = JoinSet::new();
        running.spawn(lender.run(stop.clone()));
        Self { layer, leases, stop, lender: running }
    }

    /// Returns all units, and what became of them.
    async fn stop(self) -> LeaseStats {
        self.stop.cancel();
        self.lender.join_all().await;
        let stats = self.leases.stats();
        for units in [stats.windows, stats.gcra] {
            assert_eq!(units.granted, units.spent + units.returned + units.lapsed, "{stats:?}");
        }
        stats
    }
}

/// Redis, and a memory store that decides the same at the same times.
struct Twin {
    redis: RedisStore,
    memory: MemoryStore<Arc<ManualClock>>,
    clock: Arc<ManualClock>,
    turn: Mutex<()>,
}

impl Store for Twin {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let _turn = self.turn.lock().await;
        let outcomes = self.redis.decide(charges).await?;
        self.clock.set(outcomes.by_charge[0].decided_by.snapshot().expect("a counter").now_us);
        assert_eq!(outcomes, self.memory.decide(charges).await?, "{charges:?}");
        Ok(outcomes)
    }
}

#[tokio::test]
async fn asks_and_returns_leave_redis_and_memory_in_the_same_states() {
    let redis = Redis::start();
    for (name, kernel) in leasable(100_000) {
        let clock = Arc::new(ManualClock::default());
        let memory = MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock));
        let redis = store(&patient_options(&redis.url()));
        let process = Process::start(Twin { redis, memory, clock, turn: Mutex::default() });
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..400 {
            let cost = Cost::take(random.u64(1..=3));
            let outcomes =
                process.layer.decide(&leased_charge(kernel, name, cost)).await.expect("Redis answers");
            assert_eq!(outcomes.by_charge[0].verdict, Verdict::Fits, "{name}");
        }
        let stats = process.stop().await;
        assert!(stats.decisions > 100, "{name}: {stats:?}");
        assert!(matches!(kernel, Kernel::Gcra(_)) || stats.windows.returned > 0, "{name}: {stats:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_with_30_000_concurrent_calls_admit_the_limit_of_each_algorithm() {
    const LIMIT: u64 = 10_000;
    let redis = Redis::start();
    let options = patient_options(&redis.url());
    for (name, kernel) in leasable(LIMIT) {
        let processes = [(); 2].map(|()| Process::start(store(&options)));
        let charges = leased_charge(kernel, name, Cost::take(1));
        let calls = stream::iter(0..30_000).map(|call| processes[call % 2].layer.decide(&charges));
        let answers = calls.buffer_unordered(1_000).map(|answer| answer.expect("Redis answers").by_charge[0]);
        let admitted = answers.filter(|outcome| std::future::ready(outcome.verdict == Verdict::Fits));
        let admitted = admitted.count().await as u64;
        assert!(admitted <= LIMIT, "{name}: {admitted}");
        let mut decisions = 0;
        for process in processes {
            decisions += process.stop().await.decisions;
        }
        let left = remaining(&store(&options), kernel, name).await;
        println!("{name}: {admitted} admitted, {decisions} of them without Redis, {left} left");
        // Units of GCRA that nobody uses lapse.
        let is_whole = admitted + left == LIMIT || matches!(kernel, Kernel::Gcra(_));
        assert!(is_whole && decisions > 0, "{name}: {admitted} admitted, {left} left");
    }
}
