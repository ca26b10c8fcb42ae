//! The leases of a process, and the keys for which one may soon begin. All workers share them, so a process counts
//! as one borrower.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use engine::algorithm::{Attempt, Verdict};
use engine::{Charge, DecidedBy, Outcome, StoreError};
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{Mutex, MutexGuard};

use super::lease::{Beginning, Heard, Lease, Refusal, Return, Taken};
use super::lender::Ask;
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Longest time for which the process borrows units ahead.
    pub horizon: Duration,
    pub margin: ClockMargin,
}

/// How much the store's clock may gain on this process's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockMargin {
    /// Thousandths by which the store's clock may run faster.
    pub per_mille: u64,
    /// Microseconds by which it may be ahead in any case.
    pub fixed_us: u64,
}

impl Default for ClockMargin {
    /// A tenth, which is more than programs that correct a clock use, and half a millisecond.
    fn default() -> Self {
        Self { per_mille: 100, fixed_us: 500 }
    }
}

/// Since startup, except for `keys` and `held`. When nothing is under way, `granted` is the sum of `spent`,
/// `returned`, `lapsed` and `held`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStats {
    /// Current leases.
    pub keys: u64,
    /// Units that are held now.
    pub held: u64,
    pub granted: u64,
    pub spent: u64,
    pub returned: u64,
    /// Units that were never admitted: their place ended, or the lease was dropped.
    pub lapsed: u64,
    pub asks_granted: u64,
    pub asks_refused: u64,
    pub asks_failed: u64,
    /// Requests that were decided without the store.
    pub decisions: u64,
}

/// Units set aside for one charge of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Portion {
    hash: u64,
    pub(super) taken: Taken,
}

impl Portion {
    pub(super) fn units(&self) -> u64 {
        self.taken.units.iter().map(|(_, units)| units).sum()
    }

    /// Returns a covered charge's outcome after its request was denied.
    pub(super) fn given_back(&self, charge: &Charge, outcome: Outcome) -> Outcome {
        let DecidedBy::Lease(mut snapshot) = outcome.decided_by else { return outcome };
        snapshot.reading = charge.kernel.given_back(snapshot.reading, self.units());
        let attempt = Attempt { now_us: snapshot.now_us, cost: charge.cost };
        let report = charge.kernel.report(&snapshot.reading, attempt, outcome.verdict);
        Outcome { report, decided_by: DecidedBy::Lease(snapshot), ..outcome }
    }

    /// Returns the store's outcome for a charge's rest. If the store charged the rest in a later window, a receipt
    /// names the earlier one: an undo there returns no unit that others were refused.
    pub(super) fn in_first_window(&self, charge: &Charge, outcome: Outcome) -> Outcome {
        let (Some(granted), DecidedBy::Store(mut snapshot)) = (self.taken.granted, outcome.decided_by) else {
            return outcome;
        };
        let is_later = charge.kernel.place_end_us(&granted) != charge.kernel.place_end_us(&snapshot.reading);
        if is_later && outcome.verdict == Verdict::Fits {
            snapshot.reading = granted;
        }
        Outcome { decided_by: DecidedBy::Store(snapshot), ..outcome }
    }
}

/// Recent calls for a key without a lease.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    hash: u64,
    calls: u64,
    since_us: u64,
}

#[derive(Debug)]
struct Shard {
    leases: HashTable<Lease>,
    cells: [Cell; CELLS],
    granted: u64,
    lapsed: u64,
}

impl Shard {
    /// Drops a key's lease: what it holds lapses.
    fn drop_lease(&mut self, hash: u64, key: &str) -> bool {
        let Ok(found) = self.leases.find_entry(hash, |lease| *lease.key == *key) else { return false };
        let (lease, _) = found.remove();
        self.lapsed += lease.held_units();
        true
    }

    /// The key's lease, if there is one for the charge's kernel, and the sum of lapsed units.
    fn lease_for(&mut self, hash: u64, (key, charge): (&str, &Charge)) -> Option<(&mut Lease, &mut u64)> {
        let lease = self.leases.find_mut(hash, |lease| *lease.key == *key)?;
        (lease.kernel == charge.kernel).then_some((lease, &mut self.lapsed))
    }

    /// Counts a call for a key without a lease. Once the key is hot, returns the calls, and when the first of them was.
    fn is_hot(&mut self, hash: u64, horizon_us: u64, now_us: u64) -> Option<(u64, u64)> {
        let cell = &mut self.cells[usize::try_from(hash >> 6).unwrap_or(usize::MAX) % CELLS];
        let is_recent = now_us.saturating_sub(cell.since_us) < horizon_us;
        if !is_recent {
            *cell = Cell { hash, calls: 0, since_us: now_us };
        }
        if cell.hash != hash {
            return None;
        }
        cell.calls += 1;
        (cell.calls >= HOT_CALLS).then(|| (cell.calls, std::mem::take(cell).since_us))
    }
}

/// A process's borrowed units, by key. Shared by all its workers. At most 4,096 keys, some MB.
#[derive(Debug)]
pub struct Leases {
    shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    longest_us: u64,
    margin: ClockMargin,
    /// Current leases: without any, a request looks up nothing.
    count: AtomicUsize,
    is_closed: AtomicBool,
    serials: AtomicU64,
    swept_us: AtomicU64,
    spent: AtomicU64,
    returned: AtomicU64,
    /// By result: granted, refused, failed.
    asks: [AtomicU64; 3],
    decisions: AtomicU64,
}

impl Leases {
    #[must_use]
    pub fn new(options: LeaseOptions) -> Self {
        let shard =
            || Shard { leases: HashTable::new(), cells: [Cell::default(); CELLS], granted: 0, lapsed: 0 };
        Self {
            shards: std::iter::repeat_with(|| Mutex::new(shard())).take(SHARDS).collect(),
            // A table is small and bounded, so chosen collisions cost little.
            hasher: DefaultHashBuilder::default(),
            longest_us: u64::try_from(options.horizon.as_micros()).unwrap_or(u64::MAX),
            margin: options.margin,
            count: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            serials: AtomicU64::new(1),
            swept_us: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            asks: Default::default(),
            decisions: AtomicU64::new(0),
        }
    }

    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let [asks_granted, asks_refused, asks_failed] = self.asks.each_ref().map(read);
        let (spent, returned, decisions) = (read(&self.spent), read(&self.returned), read(&self.decisions));
        let calls = LeaseStats {
            spent,
            returned,
            decisions,
            asks_granted,
            asks_refused,
            asks_failed,
            ..LeaseStats::default()
        };
        self.shards.iter().map(|shard| shard.lock()).fold(calls, |sum, shard| LeaseStats {
            keys: sum.keys + shard.leases.len() as u64,
            held: sum.held + shard.leases.iter().map(Lease::held_units).sum::<u64>(),
            granted: sum.granted + shard.granted,
            lapsed: sum.lapsed + shard.lapsed,
            ..sum
        })
    }

    /// Returns the unspent units that the process holds of a counter.
    #[cfg(test)]
    pub(super) fn held(&self, key: &str) -> u64 {
        let hash = self.hash(key);
        self.shard(hash).leases.find(hash, |lease| *lease.key == *key).map_or(0, Lease::held_units)
    }

    /// Drops a counter's lease, because an operator resets or sets the counter. Call it before and after the change.
    pub fn forget(&self, key: &str) {
        let hash = self.hash(key);
        self.drop_lease(&mut self.shard(hash), hash, key);
    }

    fn drop_lease(&self, shard: &mut Shard, hash: u64, key: &str) {
        if shard.drop_lease(hash, key) {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Drops all leases, without returning their units: the store may not remember the charges.
    pub fn forget_all(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            self.count.fetch_sub(shard.leases.len(), Ordering::Relaxed);
            let held: u64 = shard.leases.drain().map(|lease| lease.held_units()).sum();
            shard.lapsed += held;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn hash(&self, key: &str) -> u64 {
        self.hasher.hash_one(key)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The table inside a shard uses other bits.
        self.shards[usize::try_from(hash >> 32).unwrap_or(0) % SHARDS].lock()
    }

    fn serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// Sets units aside for a charge. Also returns an ask that is due.
    pub(super) fn set_aside(&self, (key, charge): (&str, &Charge), now_us: u64) -> (Portion, Option<Ask>) {
        if self.is_empty() {
            return (Portion::default(), None);
        }
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        let Some((lease, lapsed)) = shard.lease_for(hash, (key, charge)) else {
            return (Portion::default(), None);
        };
        let taken = lease.take(charge.cost, now_us, lapsed);
        let ask = self.ask(lease, now_us, lapsed);
        (Portion { hash, taken }, ask)
    }

    fn ask(&self, lease: &mut Lease, now_us: u64, lapsed: &mut u64) -> Option<Ask> {
        let units = if self.is_closed.load(Ordering::Relaxed) { None } else { lease.ask(now_us, lapsed) };
        units.map(|units| Ask::of(lease, units))
    }

    pub(super) fn spent(&self, units: u64) {
        self.spent.fetch_add(units, Ordering::Relaxed);
    }

    /// The portions decided a request without the store.
    pub(super) fn decided(&self, portions: &[Portion]) {
        self.spent(portions.iter().map(Portion::units).sum());
        self.decisions.fetch_add(1, Ordering::Relaxed);
    }

    /// Restores a portion's units. If their place or their lease is over, they lapse.
    pub(super) fn put_back(&self, portion: &Portion, now_us: u64) {
        if portion.taken.units.is_empty() {
            return;
        }
        let mut shard = self.shard(portion.hash);
        let Shard { leases, lapsed, .. } = &mut *shard;
        for &(serial, units) in &portion.taken.units {
            let lease = leases.find_mut(portion.hash, |lease| lease.holds(serial));
            *lapsed += lease.map_or(units, |lease| lease.put_back((serial, units), now_us));
        }
    }

    /// Records the answer to a charge from below, of which `recorded` units were recorded. A lease
    /// begins if the key is hot. Returns the units that the process can still spend, and an ask that is due.
    pub(super) fn hear(
        &self,
        (key, charge): (&str, &Charge),
        (outcome, recorded): (&Outcome, u64),
        (sent_us, now_us): (u64, u64),
    ) -> (u64, Option<Ask>) {
        let hash = self.hash(key);
        let is_admitted = outcome.verdict == Verdict::Fits && recorded > 0;
        let heard = match outcome.decided_by {
            DecidedBy::Store(snapshot) => Some(Heard { sent_us, snapshot }),
            _ => None,
        };
        let mut shard = self.shard(hash);
        let Some((lease, lapsed)) = shard.lease_for(hash, (key, charge)) else {
            if let Some(heard) = heard.filter(|_| is_admitted) {
                self.begin(&mut shard, hash, (key, charge), (heard, now_us));
            }
            return (0, None);
        };
        if heard.is_some_and(|heard| !lease.hear(heard, recorded, now_us)) {
            self.drop_lease(&mut shard, hash, key);
            return (0, None);
        }
        if is_admitted {
            lease.admitted(charge.cost.taken(), now_us);
        }
        (lease.usable(now_us, lapsed), self.ask(lease, now_us, lapsed))
    }

    /// Begins a lease if the key is hot, and there is room.
    fn begin(
        &self,
        shard: &mut Shard,
        hash: u64,
        (key, charge): (&str, &Charge),
        (heard, now_us): (Heard, u64),
    ) {
        let horizon_us = sizing::horizon_us(&charge.kernel, self.longest_us);
        let Some(calls) = shard.is_hot(hash, horizon_us, now_us) else { return };
        // A lease of another kernel ends once it is idle.
        let is_taken = shard.leases.find(hash, |lease| *lease.key == *key).is_some();
        if shard.leases.len() < LEASES_PER_SHARD && !is_taken {
            let (serial, margin) = (self.serial(), self.margin);
            let beginning = Beginning { hash, serial, charge, heard, calls, horizon_us, margin };
            self.insert(shard, Lease::begin(key, beginning, now_us));
        }
    }

    fn insert(&self, shard: &mut Shard, lease: Lease) {
        shard.leases.insert_unique(lease.hash, lease, |lease| lease.hash);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the answer to an ask.
    pub(super) fn asked(
        &self,
        ask: &Ask,
        result: Result<&Outcome, &StoreError>,
        (sent_us, now_us): (u64, u64),
    ) {
        let refusal = match result {
            Ok(outcome) if outcome.verdict == Verdict::Fits => None,
            Ok(_) => Some(Refusal::Refused),
            Err(_) => Some(Refusal::Failed),
        };
        let place = match refusal {
            None => 0,
            Some(Refusal::Refused) => 1,
            Some(Refusal::Failed) => 2,
        };
        self.asks[place].fetch_add(1, Ordering::Relaxed);
        let granted = if refusal.is_none() { ask.units } else { 0 };
        let snapshot = result.ok().and_then(|outcome| match outcome.decided_by {
            DecidedBy::Store(snapshot) => Some(snapshot),
            _ => None,
        });
        let (hash, serial) = (self.hash(&ask.key), self.serial());
        let mut shard = self.shard(hash);
        shard.granted += granted;
        let found = shard.leases.find_mut(hash, |lease| lease.serial == ask.lease);
        let Some(lease) = found else {
            // The lease was dropped meanwhile.
            shard.lapsed += granted;
            return;
        };
        lease.asked(refusal, now_us);
        let Some(snapshot) = snapshot else { return };
        if lease.hear(Heard { sent_us, snapshot }, granted, now_us) {
            if granted > 0 {
                lease.grant((serial, granted), snapshot);
            }
        } else {
            shard.lapsed += granted;
            self.drop_lease(&mut shard, hash, &ask.key);
        }
    }

    /// An ask for any number of units, of a lease that begins if there is none.
    #[cfg(test)]
    pub(super) fn ask_for(
        &self,
        (key, kernel, units): (&str, engine::algorithm::Kernel, u64),
        snapshot: engine::CounterSnapshot,
        now_us: u64,
    ) -> Ask {
        let (hash, charge) = (self.hash(key), super::lease::charge(kernel, engine::Cost::take(1)));
        let mut shard = self.shard(hash);
        if shard.lease_for(hash, (key, &charge)).is_none() {
            let (serial, heard) = (self.serial(), Heard { sent_us: now_us, snapshot });
            let horizon_us = sizing::horizon_us(&kernel, self.longest_us);
            let (charge, calls, margin) = (&charge, (HOT_CALLS, now_us), self.margin);
            let beginning = Beginning { hash, serial, charge, heard, calls, horizon_us, margin };
            self.insert(&mut shard, Lease::begin(key, beginning, now_us));
        }
        let (lease, _) = shard.lease_for(hash, (key, &charge)).expect("a lease");
        Ask::of(lease, units)
    }

    /// Records whether the store accepted returned units.
    pub(super) fn returned(&self, key: &str, units: u64, has_returned: bool) {
        if has_returned {
            self.returned.fetch_add(units, Ordering::Relaxed);
        } else {
            self.shard(self.hash(key)).lapsed += units;
        }
    }

    /// Takes out what the process no longer uses, at most once per [`SWEEP_US`] whatever the number of workers.
    pub(super) fn sweep(&self, now_us: u64) -> Vec<Return> {
        let swept_us = self.swept_us.load(Ordering::Relaxed);
        let is_due = now_us.saturating_sub(swept_us) >= SWEEP_US / 2;
        let claim =
            |_| self.swept_us.compare_exchange(swept_us, now_us, Ordering::Relaxed, Ordering::Relaxed).ok();
        match is_due.then_some(()).and_then(claim) {
            Some(_) => self.take_out(now_us, false),
            None => Vec::new(),
        }
    }

    /// Ends all leases, and begins no more. Units that are granted later are to be taken out by another call.
    pub(super) fn close(&self, now_us: u64) -> Vec<Return> {
        self.is_closed.store(true, Ordering::Relaxed);
        self.take_out(now_us, true)
    }

    fn take_out(&self, now_us: u64, is_stopping: bool) -> Vec<Return> {
        let mut returns = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let Shard { leases, lapsed, .. } = &mut *shard;
            let before = leases.len();
            leases.retain(|lease| {
                returns.extend(lease.sweep((now_us, is_stopping), lapsed));
                !lease.is_over(now_us)
            });
            self.count.fetch_sub(before - leases.len(), Ordering::Relaxed);
        }
        returns
    }
}
