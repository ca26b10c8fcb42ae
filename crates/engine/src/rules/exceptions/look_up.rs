//! Finds the exceptions of a descriptor. Each domain lists its keys with exceptions, so an entry with another key costs
//! one comparison, and a domain without exceptions one branch.

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::effect::{self, Changed, RowsOfLimit};
use super::network::{EXACT, address_of};
use super::rows::{AnyRow, MatchedRow, Place};
use super::tier_table::{EVERY_DOMAIN, Space};
use super::{Exceptions, RankedRow};
use crate::limit::Limit;
use crate::limit::key::Entry;

/// The exceptions, by domain of one rule set.
#[derive(Clone, Debug)]
pub(crate) struct ExceptionsInForce {
    all: Arc<Exceptions>,
    /// By the index of the domain.
    by_domain: Box<[Option<RowsOfDomain>]>,
}

/// The keys with exceptions in one domain.
#[derive(Clone, Debug)]
pub(crate) struct RowsOfDomain {
    domain: Arc<str>,
    keys: SmallVec<[KeyOfDomain; 2]>,
}

#[derive(Clone, Debug)]
struct KeyOfDomain {
    key: Arc<str>,
    /// The key's index in [`Exceptions::keys`], if files with all columns contain it.
    rows: Option<usize>,
    /// The key's spaces in the table: for the domain, and for every domain.
    spaces: SmallVec<[Space; 2]>,
    /// `true` if values of the spaces are addresses.
    has_addresses: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DomainLookUp<'x> {
    all: &'x Exceptions,
    of_domain: &'x RowsOfDomain,
}

/// The exceptions for the entries of one descriptor.
#[derive(Debug, Default)]
pub(crate) struct MatchedRows<'x>(SmallVec<[MatchedRow<'x>; 2]>);

/// Longest form of an address: `0000:0000:0000:0000:0000:ffff:255.255.255.255`.
const LONGEST_ADDRESS: usize = 45;

/// Formats an address without an allocation.
fn written(address: IpAddr, buffer: &mut [u8; LONGEST_ADDRESS]) -> &str {
    let mut rest = &mut buffer[..];
    write!(rest, "{address}").expect("no address is longer");
    let len = LONGEST_ADDRESS - rest.len();
    str::from_utf8(&buffer[..len]).expect("an address is ASCII")
}

impl ExceptionsInForce {
    /// `None` if there are no exceptions. `domains`: the index and name of each domain.
    pub(crate) fn new<'r>(
        all: Arc<Exceptions>,
        domains: impl ExactSizeIterator<Item = (usize, &'r Arc<str>)>,
    ) -> Option<Self> {
        if all.is_empty() {
            return None;
        }
        let mut by_domain = vec![None; domains.len()];
        for (index, name) in domains {
            by_domain[index] = RowsOfDomain::new(&all, name);
        }
        Some(Self { all, by_domain: by_domain.into() })
    }

    pub(crate) fn all(&self) -> &Arc<Exceptions> {
        &self.all
    }

    /// `None` if the domain has no exceptions.
    pub(crate) fn of_domain(&self, index: usize) -> Option<DomainLookUp<'_>> {
        let of_domain = self.by_domain.get(index)?.as_ref()?;
        Some(DomainLookUp { all: &self.all, of_domain })
    }
}

impl RowsOfDomain {
    /// `None` if the domain has no exceptions.
    fn new(all: &Exceptions, domain: &Arc<str>) -> Option<Self> {
        let mut keys: SmallVec<[KeyOfDomain; 2]> = SmallVec::new();
        for (index, of_key) in all.keys.iter().enumerate() {
            if of_key.domains.iter().any(|glob| glob.matches(domain)) {
                let key = Arc::clone(&of_key.key);
                let spaces = SmallVec::new();
                keys.push(KeyOfDomain { key, rows: Some(index), spaces, has_addresses: false });
            }
        }
        let of_domain = all.spaces.iter().filter(|known| *known.domain == **domain);
        let of_all = all.spaces.iter().filter(|known| &*known.domain == EVERY_DOMAIN);
        for known in of_domain.chain(of_all) {
            let at = keys.iter().position(|of_key| of_key.key == known.key).unwrap_or_else(|| {
                let (key, spaces) = (Arc::clone(&known.key), SmallVec::new());
                keys.push(KeyOfDomain { key, rows: None, spaces, has_addresses: false });
                keys.len() - 1
            });
            keys[at].spaces.push(known.space);
            keys[at].has_addresses |= known.has_addresses;
        }
        (!keys.is_empty()).then(|| Self { domain: Arc::clone(domain), keys })
    }
}

impl<'x> DomainLookUp<'x> {
    /// Returns the exceptions for `entries` at `now_us`. `hash_of` returns the hash shown instead of a secret value: an
    /// exception may contain the value or its hash.
    pub(crate) fn rows<'e>(
        &self,
        entries: &[Entry],
        hash_of: impl Fn(usize) -> Option<&'e str>,
        now_us: u64,
    ) -> MatchedRows<'x> {
        let mut rows = SmallVec::new();
        for (index, entry) in entries.iter().enumerate() {
            let Some(of_key) = self.of_domain.keys.iter().find(|of_key| *of_key.key == *entry.key) else {
                continue;
            };
            self.add_rows(&mut rows, of_key, (index, &entry.value), now_us);
            if let Some(hash) = hash_of(index) {
                self.add_rows(&mut rows, of_key, (index, hash), now_us);
            }
        }
        MatchedRows(rows)
    }

    /// Adds the tiers of a value from the table.
    fn add_tiers(
        &self,
        rows: &mut SmallVec<[MatchedRow<'x>; 2]>,
        of_key: &KeyOfDomain,
        (entry, value): (usize, &str),
    ) {
        for space in &of_key.spaces {
            if let Some(tier) = self.all.table.get(*space, value).and_then(|mark| self.all.tier(mark)) {
                let place = Place { entry, precision: EXACT, file: tier.rank, row: 0 };
                rows.push(MatchedRow { place, row: AnyRow::Tier(tier) });
            }
        }
    }

    fn add_rows(
        &self,
        rows: &mut SmallVec<[MatchedRow<'x>; 2]>,
        of_key: &KeyOfDomain,
        (entry, value): (usize, &str),
        now_us: u64,
    ) {
        self.add_tiers(rows, of_key, (entry, value));
        if of_key.has_addresses
            && let Some(address) = address_of(value)
        {
            let mut buffer = [0; LONGEST_ADDRESS];
            let address = written(address, &mut buffer);
            // A value with a port may have its own exception, which wins within a file: the table gives it the tier of
            // a later row for the address.
            if address != value {
                self.add_tiers(rows, of_key, (entry, address));
            }
        }
        let Some(indexed) = of_key.rows.map(|index| &self.all.keys[index]) else { return };
        let exact = indexed.exact.get(value).into_iter().flatten().map(|row| (EXACT, *row));
        for (precision, index) in exact.chain(indexed.networks.rows_of(value)) {
            let RankedRow { row, file } = &self.all.rows[index as usize];
            if row.is_in_force(now_us) && row.domain.matches(&self.of_domain.domain) {
                let place = Place { entry, precision, file: *file, row: index };
                rows.push(MatchedRow { place, row: AnyRow::Full(row) });
            }
        }
    }
}

impl MatchedRows<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn leave_out_blocks(&mut self) {
        self.0.retain(|matched| !matches!(matched.row, AnyRow::Full(row) if row.effect.block));
    }

    /// Applies the exceptions to a limit. `path`: its rule's path below the domain; `entry_tier`: the tier that an
    /// entry of the request names.
    pub(crate) fn change(&self, limit: &Arc<Limit>, path: &str, entry_tier: Option<&str>) -> Changed {
        let rows = RowsOfLimit::new(&self.0, path, limit.name());
        effect::changed(limit, &rows, entry_tier)
    }

    /// Applies the exceptions to a limit without a rule: an override, or the limit of a descriptor that has none. Only
    /// a block changes it. `of_rule`: path and limits of the rule that would apply to the descriptor.
    pub(crate) fn block(&self, limit: &Limit, of_rule: Option<(&str, &[Arc<Limit>])>) -> Option<Changed> {
        let block = |path, name| RowsOfLimit::new(&self.0, path, name).block();
        let block = match of_rule {
            Some((path, limits)) => limits.iter().find_map(|limit| block(path, limit.name())),
            None => block("", ""),
        }?;
        Some(block.apply_to(limit))
    }
}
