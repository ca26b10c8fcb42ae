//! The leases of a process, and the keys for which one may soon begin. All workers share them, so a process counts
//! as one borrower.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::algorithm::{Attempt, Kernel, Verdict};
use engine::{Charge, CounterSnapshot, DecidedBy, LimitId, Outcome, StoreError, is_global_key};
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::lease::{ClockMargin, Heard, Lease, Portion};
use super::lender::Errand;
use super::sizing;

/// More shards than cores, so that two workers rarely need the same one.
const SHARDS: usize = 64;
/// Most leases of a shard: 4,096 in all. Further hot keys are decided in the store.
const LEASES_PER_SHARD: usize = 64;
/// Keys of a shard that are watched for calls: one for each value of six bits of the hash.
const CELLS: usize = 64;
/// A lease begins after this many calls for a key within its limit's horizon.
const HOT_CALLS: u64 = 4;
/// Between two sweeps.
pub(super) const SWEEP_US: u64 = 50_000;
/// A refused ask is not repeated for this long.
const REFUSED_US: u64 = 200_000;
/// A failed ask is not repeated for this long. It is unknown whether its units were charged, so they are never spent
/// and never returned.
const FAILED_US: u64 = 1_000_000;

/// Borrowed units since startup. While no call is in flight, `granted` equals `spent` + `returned` + `lapsed` + the
/// units held now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeasedUnits {
    pub granted: u64,
    pub spent: u64,
    pub returned: u64,
    /// Units that were never admitted: their place ended, or the lease was dropped.
    pub lapsed: u64,
}

impl AddAssign for LeasedUnits {
    fn add_assign(&mut self, other: Self) {
        self.granted += other.granted;
        self.spent += other.spent;
        self.returned += other.returned;
        self.lapsed += other.lapsed;
    }
}

/// Current leases, and the units that they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BorrowedUnits {
    pub keys: u64,
    pub held: u64,
}

/// Since startup, except for `keys` and `held`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStats {
    /// Current leases.
    pub keys: u64,
    /// Units that are held now.
    pub held: u64,
    /// Units of windows and interval buckets: all units of a window end with it.
    pub windows: LeasedUnits,
    /// Units of GCRA limits: each ends at its own time, so some lapse even if nothing is wrong.
    pub gcra: LeasedUnits,
    pub asks_granted: u64,
    pub asks_refused: u64,
    pub asks_failed: u64,
    /// Requests that were decided without the store.
    pub decisions: u64,
}

impl LeaseStats {
    fn of(&mut self, kernel: &Kernel) -> &mut LeasedUnits {
        if matches!(kernel, Kernel::Gcra(_)) { &mut self.gcra } else { &mut self.windows }
    }
}

/// Recent calls for a key without a lease.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    hash: u64,
    calls: u64,
    since_us: u64,
}

impl Cell {
    fn is_hot(&self, hash: u64) -> bool {
        self.hash == hash && self.calls >= HOT_CALLS
    }
}

/// What the leases contribute to a charge. The default is a key that is not hot: the store decides it, and nothing
/// remains to be done.
#[derive(Debug, Default)]
pub(super) struct Contribution {
    /// Units set aside.
    pub(super) portion: Option<Portion>,
    /// `true` if the leases need to hear the store's answer.
    pub(super) is_hot: bool,
    /// Due now.
    pub(super) ask: Option<Errand>,
}

#[derive(Debug)]
struct Shard {
    leases: HashTable<Lease>,
    cells: [Cell; CELLS],
    stats: LeaseStats,
}

impl Shard {
    /// Drops a key's lease: what it holds lapses.
    fn drop_lease(&mut self, hash: u64, key: &str) {
        if let Ok(found) = self.leases.find_entry(hash, |lease| *lease.key == *key) {
            let lease = found.remove().0;
            self.stats.of(&lease.kernel).lapsed += lease.held_units();
        }
    }

    fn cell(&mut self, hash: u64) -> &mut Cell {
        &mut self.cells[usize::try_from(hash >> 6).unwrap_or(usize::MAX) % CELLS]
    }

    /// Counts a call for a key without a lease. Returns `true` if the key is hot.
    fn count(&mut self, hash: u64, horizon_us: u64, now_us: u64) -> bool {
        let cell = self.cell(hash);
        if now_us.saturating_sub(cell.since_us) >= horizon_us {
            *cell = Cell { hash, calls: 0, since_us: now_us };
        }
        cell.calls += u64::from(cell.hash == hash);
        cell.is_hot(hash)
    }
}

/// A process's borrowed units, by key. Shared by all its workers. At most 4,096 keys, some MB.
#[derive(Debug)]
pub struct Leases {
    shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    longest_us: u64,
    /// For keys of limits that all regions share.
    longest_of_home_us: u64,
    pub(super) margin: ClockMargin,
    swept_us: AtomicU64,
    decisions: AtomicU64,
    /// Notified of each new lease.
    pub(super) began: Notify,
}

impl Leases {
    /// `horizon`: longest time for which the process borrows units ahead. The store's clock may run faster than the
    /// process's by a tenth, which is more than programs that correct a clock use, and be ahead by half a millisecond.
    #[must_use]
    pub fn new(horizon: Duration) -> Self {
        let (leases, stats) = (HashTable::new, LeaseStats::default());
        let shard = || Mutex::new(Shard { leases: leases(), cells: [Cell::default(); CELLS], stats });
        Self {
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
            // A table is small and bounded, so chosen collisions cost little.
            hasher: DefaultHashBuilder::default(),
            longest_us: micros(horizon),
            longest_of_home_us: micros(horizon),
            margin: ClockMargin { per_mille: 100, fixed_us: 500 },
            swept_us: AtomicU64::new(0),
            decisions: AtomicU64::new(0),
            began: Notify::new(),
        }
    }

    /// Sets another horizon for counters that all regions share.
    #[must_use]
    pub fn with_home(self, horizon: Duration) -> Self {
        Self { longest_of_home_us: micros(horizon), ..self }
    }

    fn longest_us(&self, key: &str) -> u64 {
        if is_global_key(key) { self.longest_of_home_us } else { self.longest_us }
    }

    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        let mut sum =
            LeaseStats { decisions: self.decisions.load(Ordering::Relaxed), ..LeaseStats::default() };
        for shard in self.locked() {
            sum.keys += shard.leases.len() as u64;
            sum.held += shard.leases.iter().map(Lease::held_units).sum::<u64>();
            sum.windows += shard.stats.windows;
            sum.gcra += shard.stats.gcra;
            sum.asks_granted += shard.stats.asks_granted;
            sum.asks_refused += shard.stats.asks_refused;
            sum.asks_failed += shard.stats.asks_failed;
        }
        sum
    }

    /// What the process holds of each limit, by the rules at the last call for each key.
    #[must_use]
    pub fn by_limit(&self) -> HashMap<LimitId, BorrowedUnits> {
        let mut sums = HashMap::<_, BorrowedUnits>::new();
        for shard in self.locked() {
            for lease in &shard.leases {
                let sum = sums.entry(lease.limit).or_default();
                sum.keys += 1;
                sum.held += lease.held_units();
            }
        }
        sums
    }

    /// Returns a counter's units that the process borrowed and still holds.
    #[must_use]
    pub fn held(&self, key: &str) -> u64 {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).leases.find(hash, |lease| *lease.key == *key).map_or(0, Lease::held_units)
    }

    /// Drops a counter's lease, because an operator resets or sets the counter. Call it before and after the change.
    pub fn forget(&self, key: &str) {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).drop_lease(hash, key);
    }

    /// Drops all leases, without returning their units: the store may not remember the charges.
    pub fn forget_all(&self) {
        for mut shard in self.locked() {
            let Shard { leases, stats, .. } = &mut *shard;
            leases.drain().for_each(|lease| stats.of(&lease.kernel).lapsed += lease.held_units());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.locked().all(|shard| shard.leases.is_empty())
    }

    fn locked(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(Mutex::lock)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The table inside a shard uses other bits.
        self.shards[usize::try_from(hash >> 32).unwrap_or(0) % SHARDS].lock()
    }

    /// Sets units aside for a charge, or spends them at once if they cover the request's only charge. Counts a call
    /// for a key without a lease.
    pub(super) fn set_aside(
        &self,
        ((key, charge), limit): ((&str, &Charge), LimitId),
        is_only: bool,
        now_us: u64,
    ) -> Contribution {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        let Shard { leases, stats, .. } = &mut *shard;
        let Some(lease) = leases.find_mut(hash, |lease| *lease.key == *key) else {
            let horizon_us = sizing::horizon_us(&charge.kernel, self.longest_us(key));
            let is_hot = charge.cost.taken() > 0 && shard.count(hash, horizon_us, now_us);
            return Contribution { is_hot, ..Contribution::default() };
        };
        // A lease of another kernel ends once it is idle.
        if lease.kernel != charge.kernel {
            return Contribution::default();
        }
        // After a reload the limit can have another position.
        lease.limit = limit;
        let units = stats.of(&charge.kernel);
        units.lapsed += lease.lapse(now_us);
        let portion = lease.set_aside(charge, now_us);
        if let Some(portion) = portion.as_ref().filter(|portion| is_only && portion.outcome.is_some()) {
            units.spent += portion.units - lease.finish(portion, false, now_us);
        }
        Contribution { portion, is_hot: true, ask: lease.ask(now_us) }
    }

    /// Spends set aside units, or restores them. If their place or their lease is over, they lapse.
    pub(super) fn finish(&self, portion: &Portion, goes_back: bool, now_us: u64) {
        let hash = self.hasher.hash_one(&*portion.lease);
        let Shard { leases, stats, .. } = &mut *self.shard(hash);
        let lease = leases.find_mut(hash, |lease| Arc::ptr_eq(&lease.key, &portion.lease));
        let back = lease.map_or(0, |lease| lease.finish(portion, goes_back, now_us));
        let units = if portion.is_gcra() { &mut stats.gcra } else { &mut stats.windows };
        *if goes_back { &mut units.lapsed } else { &mut units.spent } += portion.units - back;
    }

    /// The portions decided a request without the store. One that is alone was spent when it was set aside.
    pub(super) fn decided(&self, portions: &[Option<Portion>], now_us: u64) {
        self.decisions.fetch_add(1, Ordering::Relaxed);
        if portions.len() > 1 {
            portions.iter().flatten().for_each(|portion| self.finish(portion, false, now_us));
        }
    }

    /// Records the answer to a charge from below, of which `recorded` units were recorded. A lease begins if the key
    /// is hot. Returns the units that the process can still spend, and an ask that is due.
    pub(super) fn hear(
        &self,
        (charged @ (key, charge), limit): ((&str, &Charge), LimitId),
        (outcome, recorded): (&Outcome, u64),
        (sent_us, now_us): (u64, u64),
    ) -> (u64, Option<Errand>) {
        let hash = self.hasher.hash_one(key);
        let is_admitted = outcome.verdict == Verdict::Fits && recorded > 0;
        let heard = of_store(outcome).map(|snapshot| Heard { sent_us, snapshot });
        let mut shard = self.shard(hash);
        let Shard { leases, stats, .. } = &mut *shard;
        let Some(lease) = leases.find_mut(hash, |lease| *lease.key == *key) else {
            if let Some(heard) = heard.filter(|_| is_admitted && shard.cell(hash).is_hot(hash))
                && shard.leases.len() < LEASES_PER_SHARD
            {
                let Cell { since_us, .. } = std::mem::take(shard.cell(hash));
                self.begin(&mut shard, hash, (charged, limit), (heard, since_us, now_us));
            }
            return (0, None);
        };
        if lease.kernel != charge.kernel {
            return (0, None);
        }
        stats.of(&charge.kernel).lapsed += lease.lapse(now_us);
        if heard.is_some_and(|heard| !lease.hear(heard, recorded, now_us)) {
            shard.drop_lease(hash, key);
            return (0, None);
        }
        if is_admitted {
            lease.spend(charge.cost.taken(), now_us);
            lease.plan(now_us);
        }
        (lease.usable(now_us), lease.ask(now_us))
    }

    fn begin(
        &self,
        shard: &mut Shard,
        hash: u64,
        (charged, limit): ((&str, &Charge), LimitId),
        (heard, since_us, now_us): (Heard, u64, u64),
    ) {
        let calls = (HOT_CALLS, since_us, now_us);
        let lease = Lease::begin((charged, limit), heard, calls, (self.longest_us(charged.0), self.margin));
        shard.leases.insert_unique(hash, lease, |lease| self.hasher.hash_one(&*lease.key));
        self.began.notify_one();
    }

    /// Records the answer to an errand.
    pub(super) fn answered(
        &self,
        errand: &Errand,
        result: Result<&Outcome, &StoreError>,
        (sent_us, now_us): (u64, u64),
    ) {
        let Errand { ref key, kernel, cost } = *errand;
        let hash = self.hasher.hash_one(&**key);
        let mut shard = self.shard(hash);
        let Shard { leases, stats, .. } = &mut *shard;
        let snapshot = result.ok().and_then(of_store);
        if cost.is_refund() {
            let attempt = |now_us| Attempt { now_us, cost };
            let is_undone =
                |after: CounterSnapshot| kernel.has_returned(&after.reading, attempt(after.now_us));
            let units = stats.of(&kernel);
            let sum = if snapshot.is_some_and(is_undone) { &mut units.returned } else { &mut units.lapsed };
            *sum += cost.refunded();
            return;
        }
        let (count, pause_us, granted) = match result.map(|outcome| outcome.verdict) {
            Ok(Verdict::Fits) => (&mut stats.asks_granted, 0, cost.taken()),
            Ok(Verdict::Over) => (&mut stats.asks_refused, REFUSED_US, 0),
            Err(_) => (&mut stats.asks_failed, FAILED_US, 0),
        };
        *count += 1;
        stats.of(&kernel).granted += granted;
        let Some(lease) = leases.find_mut(hash, |lease| Arc::ptr_eq(&lease.key, key)) else {
            // The lease was dropped meanwhile.
            stats.of(&kernel).lapsed += granted;
            return;
        };
        lease.asks_from_us = now_us.saturating_add(pause_us);
        let Some(snapshot) = snapshot else { return };
        let is_trusted = lease.hear(Heard { sent_us, snapshot }, granted, now_us);
        if granted > 0 {
            lease.grant(granted, snapshot.reading);
        }
        if !is_trusted {
            shard.drop_lease(hash, key);
        }
    }

    /// Takes out what the process no longer uses, about once per [`SWEEP_US`] whatever the number of workers.
    pub(super) fn sweep(&self, now_us: u64) -> Vec<Errand> {
        if now_us.saturating_sub(self.swept_us.load(Ordering::Relaxed)) < SWEEP_US / 2 {
            return Vec::new();
        }
        self.swept_us.store(now_us, Ordering::Relaxed);
        self.take_out(now_us, false)
    }

    /// Takes out what the process no longer uses, or everything.
    pub(super) fn take_out(&self, now_us: u64, is_stopping: bool) -> Vec<Errand> {
        let mut returns = Vec::new();
        for mut shard in self.locked() {
            let Shard { leases, stats, .. } = &mut *shard;
            leases.retain(|lease| {
                let (unused, lapsed) = lease.sweep(now_us, is_stopping);
                returns.extend(unused);
                stats.of(&lease.kernel).lapsed += lapsed;
                !lease.is_over(now_us)
            });
        }
        returns
    }
}

fn micros(horizon: Duration) -> u64 {
    u64::try_from(horizon.as_micros()).unwrap_or(u64::MAX)
}

fn of_store(outcome: &Outcome) -> Option<CounterSnapshot> {
    if let DecidedBy::Store(snapshot) = outcome.decided_by { Some(snapshot) } else { None }
}

#[cfg(test)]
mod testing {
    use engine::{Charging, Cost, FailurePolicy, Role};

    use super::*;

    impl Leases {
        /// An ask for any number of units, of a lease that begins if there is none.
        pub(in super::super) fn ask_for(
            &self,
            (key, kernel, units): (&str, engine::algorithm::Kernel, u64),
            snapshot: CounterSnapshot,
            now_us: u64,
        ) -> Errand {
            let (hash, cost) = (self.hasher.hash_one(key), Cost::take(1));
            let (charging, role, on_store_failure) = (Charging::Prepaid, Role::Enforce, FailurePolicy::Error);
            let charge = Charge { kernel, cost, charging, role, on_store_failure };
            let mut shard = self.shard(hash);
            let is_it = |lease: &Lease| *lease.key == *key && lease.kernel == kernel;
            if shard.leases.find(hash, is_it).is_none() {
                let heard = Heard { sent_us: now_us, snapshot };
                self.begin(&mut shard, hash, ((key, &charge), LimitId(0)), (heard, now_us, now_us));
            }
            shard.leases.find(hash, is_it).expect("a lease").errand(Cost::take(units))
        }
    }
}
