//! The rows of a descriptor. A domain knows the keys that have rows, so that an entry with another key costs one
//! comparison, and a domain without rows costs one branch.

use std::sync::Arc;

use smallvec::SmallVec;

use super::tier_table::Space;
use super::{ExceptionRow, Exceptions, FileTier};
use crate::request::Entry;
use crate::rule_set::DomainRules;

/// The exceptions, by the domains of one rule set.
#[derive(Clone, Debug)]
pub(crate) struct ExceptionsInForce {
    all: Arc<Exceptions>,
    /// By [`DomainRules::index`].
    by_domain: Box<[Option<RowsOfDomain>]>,
}

/// The keys with rows for one domain.
#[derive(Clone, Debug)]
pub(crate) struct RowsOfDomain {
    domain: Arc<str>,
    keys: SmallVec<[KeyOfDomain; 2]>,
}

#[derive(Clone, Debug)]
struct KeyOfDomain {
    key: Arc<str>,
    /// The index of the key in [`Exceptions::keys`], if rows of files with all columns name it.
    rows: Option<usize>,
    /// The spaces of the table that the key has: that of the domain, and that of every domain.
    spaces: SmallVec<[Space; 2]>,
}

/// A row that is for an entry of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchedRow<'x> {
    pub(super) place: Place,
    pub(super) row: AnyRow<'x>,
}

/// Which of two rows counts more, if neither or both name limits: the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The index of the entry: deeper entries count more.
    pub(super) entry: usize,
    /// The length of a network's prefix; the largest number for an exact value.
    pub(super) precision: u8,
    /// The position of the file, and that of the row in it.
    file: u32,
    row: u32,
}

/// A row with all columns, or one of the table of tiers.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyRow<'x> {
    Full(&'x Arc<ExceptionRow>),
    Tier(&'x FileTier),
}

/// Above the length of every prefix.
pub(super) const EXACT: u8 = u8::MAX;

impl ExceptionsInForce {
    /// `None` if there is no row.
    pub(crate) fn new<'r>(
        all: Arc<Exceptions>,
        domains: impl ExactSizeIterator<Item = &'r DomainRules>,
    ) -> Option<Self> {
        if all.is_empty() {
            return None;
        }
        let mut by_domain = vec![None; domains.len()];
        for domain in domains {
            by_domain[domain.index] = all.rows_of_domain(&domain.name);
        }
        Some(Self { all, by_domain: by_domain.into() })
    }

    pub(crate) fn all(&self) -> &Arc<Exceptions> {
        &self.all
    }
}

impl Exceptions {
    fn rows_of_domain(&self, domain: &Arc<str>) -> Option<RowsOfDomain> {
        let mut keys: SmallVec<[KeyOfDomain; 2]> = SmallVec::new();
        for (index, of_key) in self.keys.iter().enumerate() {
            if of_key.domains.iter().any(|glob| glob.matches(domain)) {
                let key = Arc::clone(&of_key.key);
                keys.push(KeyOfDomain { key, rows: Some(index), spaces: SmallVec::new() });
            }
        }
        let of_domain = self.spaces.iter().filter(|known| *known.domain == **domain);
        let of_all = self.spaces.iter().filter(|known| &*known.domain == "*");
        for known in of_domain.chain(of_all) {
            match keys.iter_mut().find(|of_key| of_key.key == known.key) {
                Some(of_key) => of_key.spaces.push(known.space),
                None => {
                    let spaces = SmallVec::from_elem(known.space, 1);
                    keys.push(KeyOfDomain { key: Arc::clone(&known.key), rows: None, spaces });
                }
            }
        }
        (!keys.is_empty()).then(|| RowsOfDomain { domain: Arc::clone(domain), keys })
    }
}
