//! Metrics of stores: durations and errors of decisions, sizes of batches and queues, breakers, and the keys in memory.

use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use engine::StoreError;
use parking_lot::Mutex;
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Registry, Result,
};
use store::breaker::BreakerState;
use store::leases::{LeaseStats, LeasedUnits};
use store::observer::{BreakerTransition, Observer};

use super::family::{
    DurationBuckets, ReadFamily, STORE_DURATIONS, add_series, counter, counters, duration_buckets, durations,
    register_read, watch,
};
use super::options::{MeteredParts, PulledStats};

/// Every value of [`StoreError::kind`].
const KINDS: [&str; 7] =
    ["timeout", "unreachable", OVERLOADED, "refused", "malformed", "forbidden", "breaker_open"];

const OVERLOADED: &str = "overloaded";

/// Kind of a decision whose caller cancelled the call.
const ABANDONED: &str = "abandoned";

const QUEUE_DEPTH: ReadFamily = ReadFamily::gauge(
    "ratelimitd_redis_queue_depth",
    "Requests waiting for a script call, summed over the workers; updated when requests leave a queue",
);
const BREAKERS_OPEN: ReadFamily =
    ReadFamily::gauge("ratelimitd_redis_breakers_open", "Open circuit breakers, summed over the workers");
const PER_SECOND_QUEUE_DEPTH: ReadFamily = ReadFamily::gauge(
    "ratelimitd_redis_per_second_queue_depth",
    "Share of ratelimitd_redis_queue_depth for the servers of store.redis.per_second",
);
const PER_SECOND_BREAKERS_OPEN: ReadFamily = ReadFamily::gauge(
    "ratelimitd_redis_per_second_breakers_open",
    "Share of ratelimitd_redis_breakers_open for the servers of store.redis.per_second",
);
const HOME_QUEUE_DEPTH: ReadFamily = ReadFamily::gauge(
    "ratelimitd_redis_home_queue_depth",
    "Share of ratelimitd_redis_queue_depth for the servers of store.redis.home",
);
const HOME_BREAKERS_OPEN: ReadFamily = ReadFamily::gauge(
    "ratelimitd_redis_home_breakers_open",
    "Share of ratelimitd_redis_breakers_open for the servers of store.redis.home",
);
const MEMORY_KEYS: ReadFamily = ReadFamily::gauge("ratelimitd_memory_keys", "Counters in the memory store");
const MEMORY_EVICTIONS: ReadFamily = ReadFamily::counter(
    "ratelimitd_memory_evictions_total",
    "Counters evicted because the memory store was full",
);
const DENY_CACHE_KEYS: ReadFamily =
    ReadFamily::gauge("ratelimitd_deny_cache_keys", "Denials in the deny cache");
const DENY_CACHE_HITS: ReadFamily = ReadFamily::counter(
    "ratelimitd_deny_cache_hits_total",
    "Requests denied from the deny cache, without a call to Redis",
);
const SLOTS_TO_RELEASE: ReadFamily = ReadFamily::gauge(
    "ratelimitd_slots_to_release",
    "Slots that this process releases later, because a take was not answered or a release failed",
);
const SLOTS_GIVEN_UP: ReadFamily = ReadFamily::counter(
    "ratelimitd_slots_given_up_total",
    "Slots that were too many to release later; each stays until it ends",
);
const LEASE_KEYS: ReadFamily =
    ReadFamily::gauge("ratelimitd_lease_keys", "Counters from which this process takes units ahead");
const LEASE_UNITS: ReadFamily = ReadFamily::counter(
    "ratelimitd_lease_units_total",
    "Units that this process took from Redis ahead, and what became of them",
);
const LEASE_ASKS: ReadFamily =
    ReadFamily::counter("ratelimitd_lease_asks_total", "Calls to take units ahead, by result");
const LEASE_DECISIONS: ReadFamily = ReadFamily::counter(
    "ratelimitd_lease_decisions_total",
    "Requests decided from units taken ahead, without a call to Redis",
);

#[derive(Debug)]
pub(crate) struct StoreFamilies {
    durations: HistogramVec,
    errors: IntCounterVec,
    batch_sizes: Histogram,
    lost_undos: IntCounter,
    clock_difference: Gauge,
    breaker_transitions: IntCounterVec,
    /// One per running worker.
    workers: Workers,
    /// The same for each [`ServerGroup`].
    groups: [Workers; 2],
}

/// Redis servers for certain counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerGroup {
    /// For one-second limits.
    PerSecond,
    /// For limits of all regions.
    Home,
}

type Workers = Arc<Mutex<Vec<Weak<WorkerGauges>>>>;

/// Gauges of one worker's store. Each worker has its own, because workers would contend for the cache line of shared
/// ones.
#[derive(Debug, Default)]
struct WorkerGauges {
    queued: AtomicUsize,
    open_breakers: AtomicUsize,
}

/// The meter of one store's decisions. Clones share the counts.
#[derive(Clone, Debug)]
pub struct StoreMeter {
    duration: Histogram,
    errors: [IntCounter; KINDS.len()],
    abandoned: IntCounter,
}

#[derive(Debug)]
pub struct BatchMeter {
    sizes: Histogram,
    lost_undos: IntCounter,
    /// By new state, in the order of [`BreakerState::ALL`].
    transitions: [IntCounter; BreakerState::ALL.len()],
    gauges: Arc<WorkerGauges>,
}

impl StoreFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let workers = Workers::default();
        watch_workers(registry, &workers, [QUEUE_DEPTH, BREAKERS_OPEN])?;
        let clock_difference = Gauge::new(
            "ratelimitd_redis_clock_difference_seconds",
            "Seconds by which a Redis clock is ahead of the local clock: the largest difference of all \
             servers",
        )?;
        registry.register(Box::new(clock_difference.clone()))?;
        // Powers of two up to 1,024.
        let sizes = (0..=10).map(|power| f64::from(1_u32 << power)).collect();
        let sizes =
            HistogramOpts::new("ratelimitd_redis_batch_size", "Requests in one script call").buckets(sizes);
        let batch_sizes = Histogram::with_opts(sizes)?;
        registry.register(Box::new(batch_sizes.clone()))?;
        let histogram = HistogramOpts::new(
            "ratelimitd_store_duration_seconds",
            "Seconds per decision in the store, including the wait in the queue",
        );
        Ok(Self {
            durations: durations(registry, histogram.buckets(STORE_DURATIONS.to_vec()), "store")?,
            errors: counters(
                registry,
                "ratelimitd_store_errors_total",
                "Requests not decided by the store, by reason",
                &["store", "kind"],
            )?,
            batch_sizes,
            lost_undos: counter(
                registry,
                "ratelimitd_redis_lost_undos_total",
                "Charges possibly still recorded although their request was denied",
            )?,
            clock_difference,
            breaker_transitions: counters(
                registry,
                "ratelimitd_redis_breaker_transitions_total",
                "State changes of the circuit breakers, by new state",
                &["state"],
            )?,
            workers,
            groups: <[Workers; 2]>::default(),
        })
    }

    /// Registers the gauges of a server group.
    pub(super) fn watch_group(&self, registry: &Registry, group: ServerGroup) -> Result<()> {
        let families = match group {
            ServerGroup::PerSecond => [PER_SECOND_QUEUE_DEPTH, PER_SECOND_BREAKERS_OPEN],
            ServerGroup::Home => [HOME_QUEUE_DEPTH, HOME_BREAKERS_OPEN],
        };
        watch_workers(registry, &self.groups[group as usize], families)
    }

    /// Sets by how many microseconds the clock of Redis is ahead of this machine's.
    pub(crate) fn set_clock_difference(&self, ahead_us: i64) {
        // Exact up to 285 years.
        self.clock_difference.set(ahead_us as f64 / 1e6);
    }

    /// Script calls so far, and their requests.
    pub(super) fn batches_so_far(&self) -> (u64, u64) {
        // Sizes are integers, and their sum is below 2^53.
        (self.batch_sizes.get_sample_count(), self.batch_sizes.get_sample_sum() as u64)
    }

    /// Requests waiting for a script call.
    pub(super) fn queued(&self) -> u64 {
        sum(&self.workers, |gauges| &gauges.queued)
    }

    pub(super) fn durations(&self, store: &str) -> DurationBuckets {
        duration_buckets([&self.durations.with_label_values(&[store])])
    }

    pub(super) fn overloads(&self, store: &str) -> u64 {
        self.errors.with_label_values(&[store, OVERLOADED]).get()
    }

    /// `store` is the store's name in the settings.
    pub(crate) fn meter(&self, store: &'static str) -> StoreMeter {
        StoreMeter {
            duration: self.durations.with_label_values(&[store]),
            errors: KINDS.map(|kind| self.errors.with_label_values(&[store, kind])),
            abandoned: self.errors.with_label_values(&[store, ABANDONED]),
        }
    }

    /// The meter of one worker's calls. Those to a server group also count in the totals.
    pub(crate) fn batches(&self, group: Option<ServerGroup>) -> BatchMeter {
        let gauges = Arc::default();
        for workers in iter::once(&self.workers).chain(group.map(|group| &self.groups[group as usize])) {
            let mut workers = workers.lock();
            workers.retain(|worker| worker.strong_count() > 0);
            workers.push(Arc::downgrade(&gauges));
        }
        let transitions =
            BreakerState::ALL.map(|state| self.breaker_transitions.with_label_values(&[state.into_str()]));
        BatchMeter {
            sizes: self.batch_sizes.clone(),
            lost_undos: self.lost_undos.clone(),
            transitions,
            gauges,
        }
    }
}

/// Registers the gauges of these workers: queued requests, and open breakers.
fn watch_workers(registry: &Registry, workers: &Workers, [depth, breakers]: [ReadFamily; 2]) -> Result<()> {
    let [queued, open] = [Arc::clone(workers), Arc::clone(workers)];
    depth.register(registry, &[], move || sum(&queued, |gauges| &gauges.queued))?;
    breakers.register(registry, &[], move || sum(&open, |gauges| &gauges.open_breakers))
}

fn sum(workers: &Workers, count: impl Fn(&WorkerGauges) -> &AtomicUsize) -> u64 {
    let each = workers.lock();
    each.iter().filter_map(Weak::upgrade).map(|gauges| count(&gauges).load(Ordering::Relaxed) as u64).sum()
}

impl Observer for StoreMeter {
    fn decided(&self, took: Duration, result: std::result::Result<(), &StoreError>) {
        self.duration.observe(took.as_secs_f64());
        if let Err(error) = result
            && let Some(place) = KINDS.iter().position(|kind| *kind == error.kind())
        {
            self.errors[place].inc();
        }
    }

    fn abandoned(&self, after: Duration) {
        self.duration.observe(after.as_secs_f64());
        self.abandoned.inc();
    }
}

impl Observer for BatchMeter {
    fn batch(&self, requests: usize) {
        // A batch holds at most 1,024.
        self.sizes.observe(requests as f64);
    }

    fn queue_depth(&self, requests: usize) {
        self.gauges.queued.store(requests, Ordering::Relaxed);
    }

    fn breaker(&self, transition: BreakerTransition<'_>) {
        for (state, counter) in BreakerState::ALL.iter().zip(&self.transitions) {
            if *state == transition.to {
                counter.inc();
            }
        }
        let open = &self.gauges.open_breakers;
        match (transition.from, transition.to) {
            (BreakerState::Closed, _) => open.fetch_add(1, Ordering::Relaxed),
            (_, BreakerState::Closed) => open.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
    }

    fn lost_undo(&self) {
        self.lost_undos.inc();
    }
}

/// Registers what is read from the stores of this process.
pub(super) fn watch_stores(registry: &Registry, parts: &MeteredParts) -> Result<()> {
    let MeteredParts { memory, deny_cache, releases, leases, .. } = parts;
    watch(registry, memory, [(MEMORY_KEYS, |now| now.keys), (MEMORY_EVICTIONS, |now| now.evictions)])?;
    watch(registry, deny_cache, [(DENY_CACHE_KEYS, |now| now.keys), (DENY_CACHE_HITS, |now| now.hits)])?;
    watch(registry, releases, [(SLOTS_TO_RELEASE, |now| now.waiting), (SLOTS_GIVEN_UP, |now| now.given_up)])?;
    leases.clone().map_or(Ok(()), |stats| watch_leases(registry, stats))
}

fn watch_leases(registry: &Registry, stats: PulledStats<LeaseStats>) -> Result<()> {
    let families = [LEASE_KEYS, LEASE_UNITS, LEASE_ASKS, LEASE_DECISIONS];
    let read = move || {
        let now = stats();
        let [mut keys, mut units, mut asks, mut decisions] = families.map(ReadFamily::empty);
        add_series(&mut keys, &[], now.keys);
        for (place, of_place) in [("window", now.windows), ("gcra", now.gcra)] {
            let LeasedUnits { granted, spent, returned, lapsed } = of_place;
            let events = [("granted", granted), ("spent", spent), ("returned", returned), ("lapsed", lapsed)];
            for (event, sum) in events {
                add_series(&mut units, &[("event", event), ("place", place)], sum);
            }
        }
        let results =
            [("granted", now.asks_granted), ("refused", now.asks_refused), ("failed", now.asks_failed)];
        results.iter().for_each(|(result, count)| add_series(&mut asks, &[("result", result)], *count));
        add_series(&mut decisions, &[], now.decisions);
        vec![keys, units, asks, decisions]
    };
    register_read(registry, &families, read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{DecidedBy, FailurePolicy, Outcome, PartialOutcomes, Report, Verdict};

    /// Index in [`KINDS`]. A missing error does not compile.
    fn place(error: &StoreError) -> usize {
        match error {
            StoreError::Timeout => 0,
            StoreError::Unreachable(_) | StoreError::Tls { .. } => 1,
            StoreError::Overloaded => 2,
            StoreError::Refused(_) | StoreError::ReadOnly(_) => 3,
            StoreError::Malformed(_) => 4,
            StoreError::Forbidden(_) => 5,
            StoreError::Open(_) => 6,
            StoreError::Partial(partial) => place(partial.failure()),
            StoreError::Policy(cause) => place(cause),
        }
    }

    #[test]
    fn every_kind_of_store_error_has_a_counter() {
        let text = String::new;
        let errors = [
            StoreError::Timeout,
            StoreError::Unreachable(text().into()),
            StoreError::Overloaded,
            StoreError::Refused(text()),
            StoreError::Malformed(text()),
            StoreError::Forbidden(text()),
            StoreError::Open(Arc::new(StoreError::Timeout)),
        ];
        let kinds: Vec<_> = errors.iter().map(StoreError::kind).collect();
        assert_eq!(kinds, KINDS);
        let decided_by = DecidedBy::Policy(FailurePolicy::Allow);
        let admitted = Outcome { verdict: Verdict::Fits, report: Report::unused(1), decided_by };
        for error in errors {
            assert_eq!(KINDS[place(&error)], error.kind());
            let partial = PartialOutcomes::collect(vec![Ok(admitted), Err(error.clone())], None);
            for wrapped in [StoreError::Policy(Box::new(error)), partial.expect_err("a failure")] {
                assert_eq!(KINDS[place(&wrapped)], wrapped.kind());
            }
        }
    }
}
