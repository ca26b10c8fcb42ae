//! What a store is asked to decide: the costs of one request, each against one counter.

use std::ops::Range;

use smallvec::SmallVec;

use super::algorithm::Kernel;
use super::{Charging, Cost, FailurePolicy, Verdict};

/// What a denial of one charge means for the rest of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It holds the request back.
    Enforce,
    /// It holds nothing back: a shadow rule, or a quota rule that cannot tip the balance.
    NonBinding,
    /// It holds the request back only if every quota group has a denial. Groups count from 0.
    Quota(u16),
}

/// One cost against one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Where the counter's key stands; see [`Charges::key`].
    pub key: Range<u32>,
    /// How to decide.
    pub kernel: Kernel,
    /// How much is asked.
    pub cost: Cost,
    /// When it is recorded.
    pub charging: Charging,
    /// What its denial means.
    pub role: Role,
    /// What to answer when the store cannot.
    pub on_store_failure: FailurePolicy,
}

impl Charge {
    /// Whether this charge is to be recorded, given its own verdict and whether the request is held back.
    #[must_use]
    pub fn is_recorded(&self, verdict: Verdict, request_denied: bool) -> bool {
        if !self.cost.changes() {
            return false;
        }
        match self.charging {
            Charging::Postpaid => true,
            Charging::Prepaid => verdict == Verdict::Fits && !request_denied,
        }
    }
}

/// All charges of one request. No two have the same key: costs that meet on a counter are added up beforehand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    keys: String,
    charges: SmallVec<[Charge; 2]>,
    quota_groups: u16,
}

/// Bytes that most keys have room in, so that the text seldom grows while one is spelt.
const USUAL_KEY: usize = 96;

impl Charges {
    /// Adds a charge whose key `spell` writes to the end of the text it is given. Returns its place, which is that of
    /// an earlier charge where both meet on one counter.
    pub fn push(&mut self, charge: Charge, spell: impl FnOnce(&mut String)) -> usize {
        let start = self.offset();
        self.keys.reserve(USUAL_KEY);
        spell(&mut self.keys);
        let key = start..self.offset();
        let spelt = &self.keys[start as usize..];
        if let Some(place) = self.charges.iter().position(|earlier| self.key(earlier) == spelt) {
            self.keys.truncate(start as usize);
            self.charges[place].cost = self.charges[place].cost.and(charge.cost);
            return place;
        }
        if let Role::Quota(group) = charge.role {
            self.quota_groups = self.quota_groups.max(group + 1);
        }
        self.charges.push(Charge { key, ..charge });
        self.charges.len() - 1
    }

    fn offset(&self) -> u32 {
        // The size bounds on requests keep all keys of one far below 4 GiB.
        u32::try_from(self.keys.len()).expect("the keys of one request are bounded far below 4 GiB")
    }

    /// The charges in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Charge] {
        &self.charges
    }

    /// The charges in order, to be changed in place.
    pub fn as_mut_slice(&mut self) -> &mut [Charge] {
        &mut self.charges
    }

    /// The counter's key of a charge of this request, without a store's prefix.
    #[must_use]
    pub fn key(&self, charge: &Charge) -> &str {
        &self.keys[charge.key.start as usize..charge.key.end as usize]
    }

    /// Number of quota groups.
    #[must_use]
    pub fn quota_groups(&self) -> u16 {
        self.quota_groups
    }

    /// Whether there is nothing to decide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// Those charges for which `keep` is true, for a store that decides only some of them.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&Charge) -> bool) -> Self {
        let mut kept = Self { quota_groups: self.quota_groups, ..Self::default() };
        for charge in self.charges.iter().filter(|charge| keep(charge)) {
            kept.push(charge.clone(), |keys| keys.push_str(self.key(charge)));
        }
        kept
    }

    /// Whether the request is held back: prepaid charges are then not recorded.
    ///
    /// So it is when a charge that enforces is over, or when there are quota groups and each has a charge over.
    /// `verdict` gives the verdict of the charge at a place.
    #[must_use]
    pub fn is_denied(&self, verdict: impl Fn(usize) -> Verdict) -> bool {
        let mut over_groups: SmallVec<[bool; 8]> = SmallVec::from_elem(false, usize::from(self.quota_groups));
        for (place, charge) in self.charges.iter().enumerate() {
            match (verdict(place), charge.role) {
                (Verdict::Over, Role::Enforce) => return true,
                (Verdict::Over, Role::Quota(group)) => over_groups[usize::from(group)] = true,
                _ => {}
            }
        }
        !over_groups.is_empty() && over_groups.iter().all(|&over| over)
    }
}
