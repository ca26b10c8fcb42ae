//! Counts, between two readings, the keys that a worker denies and its requests without a limit. Only the denied path
//! gets here. Each worker counts under its own lock, which is shared only with the console's sampler, once a second.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use engine::algorithm::Kernel;
use engine::{ChargedLimit, Decision, HeavyKey, Quantity, Request, SpaceSaving};
use parking_lot::Mutex;

use super::limit_counts::LimitCounts;

/// Maximum limits whose keys a worker counts between two readings.
const MOST_LIMITS: usize = 32;
/// Maximum keys per limit.
const KEYS: usize = 32;
/// Maximum kinds of requests without a limit.
const SHAPES: usize = 64;
/// Maximum unknown domains.
const DOMAINS: usize = 16;
/// On average, one in this many requests without a limit is sampled.
pub const LOOKED_AT: u32 = 16;
/// Longer names of domains are cut, as are longer lists of keys.
const DOMAIN_CHARS: usize = 64;
const NAMES_CHARS: usize = 200;

/// Counts of a worker. Clones share them. The default counts nothing, for when nobody reads it.
#[derive(Clone, Debug, Default)]
pub struct DeniedKeys(Option<Arc<WorkerKeys>>);

#[derive(Debug, Default)]
pub(super) struct WorkerKeys {
    counted: Mutex<CountedKeys>,
    /// Requests without a limit, of domains with rules and of unknown domains.
    without_limit: SomeOf,
    unknown_domain: SomeOf,
}

/// Samples one in [`LOOKED_AT`] requests on average, including the first: holds the number of requests until the next
/// sample. The distances vary, so that no regular pattern of requests is missed. Only one worker counts here.
#[derive(Debug, Default)]
struct SomeOf(AtomicU32);

impl SomeOf {
    fn take_next(&self) -> bool {
        let left = self.0.load(Ordering::Relaxed);
        // The mean of the random values, plus the sampled request, is LOOKED_AT.
        let next = if left > 0 { left - 1 } else { fastrand::u32(..2 * LOOKED_AT - 1) };
        self.0.store(next, Ordering::Relaxed);
        left == 0
    }
}

/// Counts of one worker since the last reading.
#[derive(Debug, Default)]
pub struct CountedKeys {
    pub limits: Vec<DeniedByLimit>,
    /// Requests without a limit, as `domain: key, key`, each standing for [`LOOKED_AT`] requests.
    pub without_limit: SpaceSaving<SHAPES>,
    /// The same for domains without rules.
    pub unknown_domains: SpaceSaving<DOMAINS>,
}

/// Denied keys of the limits with the same labels.
#[derive(Debug)]
pub struct DeniedByLimit {
    pub limit: LimitRef,
    keys: SpaceSaving<KEYS, DeniedCharge>,
}

/// What was charged to a denied key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeniedCharge {
    /// The kernel that decided.
    pub kernel: Kernel,
    /// The limit that decided: of the rule, of a tier, or of an exception.
    pub requests_per_unit: u64,
    /// The kernel of the rule's limit, without tiers and exceptions.
    pub rule: Quantity,
}

/// Identifies the limits with the same labels, also after a reload of the rules.
#[derive(Clone, Debug)]
pub struct LimitRef(pub(super) Arc<LimitCounts>);

impl PartialEq for LimitRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LimitRef {}

impl Hash for LimitRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl DeniedByLimit {
    pub fn into_keys(self) -> Vec<HeavyKey<DeniedCharge>> {
        self.keys.into_keys()
    }
}

impl DeniedKeys {
    /// Counts a charge over its limit. `rule`: the kernel of the rule's own limit.
    pub(super) fn count(
        &self,
        counts: &Arc<LimitCounts>,
        rule: Quantity,
        decision: &Decision,
        charged: &ChargedLimit<'_>,
    ) {
        let Some(worker) = &self.0 else { return };
        let (key, kernel) = decision.charged_counter(charged.index);
        let requests_per_unit = charged.limit.spec.requests_per_unit;
        let charge = DeniedCharge { kernel, requests_per_unit, rule };
        worker.counted.lock().count(counts, key, charge);
    }

    /// Counts a request without a limit. `is_known`: `true` if its domain has rules.
    pub(crate) fn count_without_limit(&self, request: &Request, is_known: bool) {
        let Some(worker) = &self.0 else { return };
        // Only this worker counts here.
        let requests = if is_known { &worker.without_limit } else { &worker.unknown_domain };
        if !requests.take_next() {
            return;
        }
        let domain: String = request.domain.chars().take(DOMAIN_CHARS).collect();
        let mut counted = worker.counted.lock();
        if !is_known {
            counted.unknown_domains.count(&domain, || ());
            return;
        }
        for descriptor in &request.descriptors {
            let names: Vec<_> = descriptor.entries.iter().map(|entry| entry.key.as_str()).collect();
            let names: String = names.join(", ").chars().take(NAMES_CHARS).collect();
            counted.without_limit.count(&format!("{domain}: {names}"), || ());
        }
    }
}

impl CountedKeys {
    fn count(&mut self, counts: &Arc<LimitCounts>, key: &str, charge: DeniedCharge) {
        let known = self.limits.iter_mut().position(|limit| Arc::ptr_eq(&limit.limit.0, counts));
        let place = match known {
            Some(place) => place,
            None if self.limits.len() < MOST_LIMITS => {
                let keys = SpaceSaving::default();
                self.limits.push(DeniedByLimit { limit: LimitRef(Arc::clone(counts)), keys });
                self.limits.len() - 1
            }
            None => return,
        };
        self.limits[place].keys.count(key, || charge);
    }
}

#[derive(Debug, Default)]
pub(super) struct CountingWorkers(Mutex<Vec<Weak<WorkerKeys>>>);

impl CountingWorkers {
    /// Returns counts for one worker.
    pub(super) fn add(&self) -> DeniedKeys {
        let worker = Arc::<WorkerKeys>::default();
        let mut workers = self.0.lock();
        workers.retain(|worker| worker.strong_count() > 0);
        workers.push(Arc::downgrade(&worker));
        DeniedKeys(Some(worker))
    }

    /// Takes what each worker has counted since the last call.
    pub(super) fn take(&self) -> Vec<CountedKeys> {
        let workers: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        workers.iter().map(|worker| std::mem::take(&mut *worker.counted.lock())).collect()
    }
}

#[cfg(test)]
mod tests {
    use engine::{Caller, Descriptor, Entry};

    use super::*;

    #[test]
    fn the_names_of_a_request_are_cut() {
        let entry = Entry { key: "k".repeat(65_536), value: String::new() };
        let request = Request {
            domain: "d".repeat(65_536),
            hits_addend: 1,
            descriptors: vec![Descriptor { entries: vec![entry; 32], ..Descriptor::default() }],
            caller: Caller::default(),
        };
        let worker = Arc::<WorkerKeys>::default();
        DeniedKeys(Some(Arc::clone(&worker))).count_without_limit(&request, true);
        let counted = worker.counted.lock();
        let key = &counted.without_limit.keys()[0].key;
        assert_eq!(key.len(), DOMAIN_CHARS + 2 + NAMES_CHARS, "{key}");
    }

    #[test]
    fn requests_in_turns_are_taken_alike() {
        fastrand::seed(1);
        let some = SomeOf::default();
        let mut taken = [0_u32; 2];
        for request in 0..100_000 {
            taken[request % 2] += u32::from(some.take_next());
        }
        let expected = 100_000 / LOOKED_AT / 2;
        assert!(taken.iter().all(|count| count.abs_diff(expected) < expected / 10), "{taken:?}");
        assert!(SomeOf::default().take_next(), "the first one");
    }
}
