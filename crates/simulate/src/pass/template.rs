//! What requests with the same limits have in common: a plan, and what counting needs of it.

use std::hash::Hasher as _;
use std::num::NonZeroU32;
use std::sync::Arc;

use engine::algorithm::Kernel;
use engine::{Cost, Decision, Enforcement, Limit, Outcomes, Plan, Role};
use smallvec::SmallVec;

/// A plan of one rule set, prepared for deciding and counting.
#[derive(Debug)]
pub(super) struct Template {
    pub plan: Arc<Plan>,
    /// For each charge how it is decided.
    pub kernels: SmallVec<[Kernel; 2]>,
    /// For each charge the hash of its limit's fingerprint.
    pub salts: SmallVec<[u64; 2]>,
    /// For each charge the index of its limit in the rule set.
    pub limits: SmallVec<[usize; 2]>,
    /// The limits whose verdicts are counted: one for each counter.
    pub counted: SmallVec<[CountedLimit; 2]>,
    /// The indexes of unlimited limits.
    pub unlimited: SmallVec<[usize; 2]>,
}

/// A limit and its charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountedLimit {
    /// The index of the limit in its rule set.
    pub limit: usize,
    /// The index of the charge.
    pub charge: usize,
    pub is_shadow: bool,
    /// Its counter gets a part of its requests: [`Thinned`].
    pub is_thinned: bool,
}

/// The charges on counters that get a part of their requests, because other requests of them are not in the sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thinned {
    /// A bit for each charge; the last one is for all further ones, too.
    pub charges: u64,
    /// They are decided by this part of their limits.
    pub one_in: NonZeroU32,
}

impl Thinned {
    pub fn holds(self, charge: usize) -> bool {
        self.charges >> charge.min(63) & 1 == 1
    }
}

/// Key and cost of one charge of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChargedKey {
    /// [`text_hash`] of the key.
    pub hash: u64,
    /// Where in the text of its block the key is.
    pub start: u32,
    pub length: u32,
    pub cost: Cost,
}

impl Template {
    pub fn new(plan: Arc<Plan>, thinned: Thinned) -> Self {
        let index = |limit: &Limit| limit.id.0 as usize;
        let mut salts = SmallVec::from_elem(0, plan.charges.len());
        let mut limits = SmallVec::from_elem(0, plan.charges.len());
        let mut counted = SmallVec::new();
        for charged in plan.charged() {
            salts[charged.index] = text_hash(&charged.limit.fingerprint);
            limits[charged.index] = index(charged.limit);
            if plan.charges.last_on_counter(charged.index) == charged.index {
                let is_shadow = charged.role == Role::Shadow;
                counted.push(CountedLimit {
                    limit: index(charged.limit),
                    charge: charged.index,
                    is_shadow,
                    is_thinned: thinned.holds(charged.index),
                });
            }
        }
        let unlimited = plan.unlimited().map(index).collect();
        let mut kernels: SmallVec<[Kernel; 2]> = plan.charges.values().map(|charge| charge.kernel).collect();
        for charge in (0..kernels.len()).filter(|charge| thinned.holds(*charge)) {
            kernels[charge] = kernels[charge].share_of(thinned.one_in);
            // A request may have the same key with a whole limit.
            salts[charge] = mixed(salts[charge]);
        }
        Self { kernels, salts, limits, counted, unlimited, plan }
    }

    /// The identity of the counter of a charge: 64 bits, in which two of ten million counters are equal with a
    /// probability of 3 in a million.
    pub fn counter(&self, charge: usize, key: &ChargedKey) -> u64 {
        mixed(key.hash ^ self.salts[charge])
    }

    /// Whether a limit applies to the request, which may be unlimited.
    pub fn has_limit(&self) -> bool {
        !self.plan.charges.is_empty() || !self.unlimited.is_empty()
    }

    /// The whole decision about a request with these keys.
    pub fn decision(&self, keys: &[ChargedKey], outcomes: Outcomes) -> Decision {
        let mut plan = Plan::clone(&self.plan);
        for ((charge, key), kernel) in plan.charges.values_mut().zip(keys).zip(&self.kernels) {
            (charge.cost, charge.kernel) = (key.cost, *kernel);
        }
        Decision::merge(plan, outcomes, Enforcement::Enforce)
    }
}

/// The hash of a text. It is the same in every run, so that a report is.
pub(super) fn text_hash(text: &str) -> u64 {
    // SipHash with fixed keys.
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Spreads a number over 64 bits; different numbers stay different (the finalizer of SplitMix64).
pub(super) fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
