//! Finds the exceptions for a descriptor, in files and among the live rows. Each domain lists its keys with exceptions,
//! so an entry with another key costs a comparison, and a domain without exceptions one branch.

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::effect::{self, Changed, RowsOfLimit};
use super::live::{LiveGroup, LiveRows};
use super::network::{EXACT, address_of};
use super::rows::{AnyRow, ExceptionRow, MatchedRow, Place, RowSource};
use super::tier_table::{EVERY_DOMAIN, Space};
use super::{Exceptions, RankedRow};
use crate::limit::Limit;
use crate::limit::key::Entry;
use crate::rules::secret::is_hidden_value;

/// The exceptions, by domain of one rule set.
#[derive(Clone, Debug)]
pub(crate) struct ExceptionsInForce {
    files: Arc<Exceptions>,
    live: LiveRows,
    /// By the index of the domain.
    by_domain: Box<[Option<RowsOfDomain>]>,
}

/// The exceptions of one domain.
#[derive(Clone, Debug)]
pub(crate) struct RowsOfDomain {
    domain: Arc<str>,
    /// The keys with exceptions from files.
    keys: Arc<[KeyOfDomain]>,
    /// The live rows by key. A key repeats if rows are for several patterns of domains.
    live: Vec<(Arc<str>, Arc<LiveGroup>)>,
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
    files: &'x Exceptions,
    of_domain: &'x RowsOfDomain,
}

/// The exceptions for the entries of one descriptor.
#[derive(Debug, Default)]
pub(crate) struct MatchedRows<'x> {
    /// Active now or later.
    rows: SmallVec<[MatchedRow<'x>; 2]>,
    now_us: u64,
}

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
    /// `None` if there are no exceptions. `domains`: the index and name of each domain. `previous`: exceptions of the
    /// same domains, perhaps from the same files.
    pub(crate) fn new<'r>(
        files: Arc<Exceptions>,
        live: &LiveRows,
        domains: impl ExactSizeIterator<Item = (usize, &'r Arc<str>)>,
        previous: Option<&Self>,
    ) -> Option<Self> {
        if files.is_empty() && live.is_empty() {
            return None;
        }
        let of_same_files = previous.filter(|previous| Arc::ptr_eq(&previous.files, &files));
        let mut by_domain = vec![None; domains.len()];
        for (index, name) in domains {
            let keys = match of_same_files {
                Some(previous) => previous.by_domain[index].as_ref().map(|rows| Arc::clone(&rows.keys)),
                None => Some(keys_of_files(&files, name)),
            };
            let (keys, live) = (keys.unwrap_or_default(), live.groups_for(name));
            if !keys.is_empty() || !live.is_empty() {
                by_domain[index] = Some(RowsOfDomain { domain: Arc::clone(name), keys, live });
            }
        }
        Some(Self { files, live: live.clone(), by_domain: by_domain.into() })
    }

    pub(crate) fn files(&self) -> &Arc<Exceptions> {
        &self.files
    }

    pub(crate) fn live(&self) -> &LiveRows {
        &self.live
    }

    /// `None` if the domain has no exceptions.
    pub(crate) fn of_domain(&self, index: usize) -> Option<DomainLookUp<'_>> {
        let of_domain = self.by_domain.get(index)?.as_ref()?;
        Some(DomainLookUp { files: &self.files, of_domain })
    }
}

/// Lists the keys with exceptions for the domain in files.
fn keys_of_files(all: &Exceptions, domain: &str) -> Arc<[KeyOfDomain]> {
    let mut keys: Vec<KeyOfDomain> = Vec::new();
    for (index, of_key) in all.keys.iter().enumerate() {
        if of_key.domains.iter().any(|glob| glob.matches(domain)) {
            let key = Arc::clone(&of_key.key);
            let spaces = SmallVec::new();
            keys.push(KeyOfDomain { key, rows: Some(index), spaces, has_addresses: false });
        }
    }
    let of_domain = all.spaces.iter().filter(|known| *known.domain == *domain);
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
    keys.into()
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
        let RowsOfDomain { keys, live, .. } = self.of_domain;
        let mut matched = MatchedRows { rows: SmallVec::new(), now_us };
        for (index, entry) in entries.iter().enumerate() {
            let of_key = keys.iter().find(|of_key| *of_key.key == *entry.key);
            let groups = live.iter().filter(|(key, _)| **key == *entry.key);
            let hash = hash_of(index);
            // Otherwise a hash could be sent instead of the secret.
            let clear = Some(&*entry.value).filter(|value| hash.is_none() || !is_hidden_value(value));
            for value in clear.into_iter().chain(hash) {
                if let Some(of_key) = of_key {
                    self.add_rows(&mut matched, of_key, (index, value));
                }
                for (_, group) in groups.clone() {
                    matched.add_live(group, (index, value));
                }
            }
        }
        matched
    }

    /// Adds the tiers of a value from the table.
    fn add_tiers(&self, matched: &mut MatchedRows<'x>, of_key: &KeyOfDomain, (entry, value): (usize, &str)) {
        for space in &of_key.spaces {
            if let Some(tier) = self.files.table.get(*space, value).and_then(|mark| self.files.tier(mark)) {
                // Every other row of the file wins. If a tier follows one for the same value, the loader keeps it out
                // of the table.
                let place = Place { entry, precision: EXACT, file: tier.rank, row: 0 };
                matched.rows.push(MatchedRow { place, row: AnyRow::Tier(tier) });
            }
        }
    }

    fn add_rows(
        &self,
        matched: &mut MatchedRows<'x>,
        of_key: &'x KeyOfDomain,
        (entry, value): (usize, &str),
    ) {
        self.add_tiers(matched, of_key, (entry, value));
        if of_key.has_addresses
            && let Some(address) = address_of(value)
        {
            let mut buffer = [0; LONGEST_ADDRESS];
            let address = written(address, &mut buffer);
            // A value with a port may have its own exception, which wins within a file: the table gives it the tier of
            // a later row for the address.
            if address != value {
                self.add_tiers(matched, of_key, (entry, address));
            }
        }
        let Some(indexed) = of_key.rows.map(|index| &self.files.keys[index]) else { return };
        let exact = indexed.exact.get(value).into_iter().flatten().map(|row| (EXACT, *row));
        for (precision, index) in exact.chain(indexed.networks.rows_of(value)) {
            let RankedRow { row, file } = &self.files.rows[index as usize];
            if row.domain.matches(&self.of_domain.domain) {
                matched.add(Place { entry, precision, file: *file, row: u64::from(index) + 1 }, row);
            }
        }
    }
}

impl<'x> MatchedRows<'x> {
    fn add_live(&mut self, group: &'x LiveGroup, (entry, value): (usize, &str)) {
        for (precision, row) in group.rows_of(value) {
            let version = if let RowSource::Live { version, .. } = row.source { version } else { 0 };
            self.add(Place { entry, precision, file: u32::MAX, row: version }, row);
        }
    }

    fn add(&mut self, place: Place, row: &'x Arc<ExceptionRow>) {
        // If a row ends before it starts, it is never active.
        if !row.has_ended(row.from_us.unwrap_or_default().max(self.now_us)) {
            self.rows.push(MatchedRow { place, row: AnyRow::Full(row) });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn leave_out_blocks(&mut self) {
        self.rows.retain(|matched| !matches!(matched.row, AnyRow::Full(row) if row.effect.block));
    }

    /// Applies the exceptions to a limit. `path`: its rule's path below the domain; `entry_tier`: the tier that an
    /// entry of the request names.
    pub(crate) fn change(&self, limit: &Arc<Limit>, path: &str, entry_tier: Option<&str>) -> Changed {
        let rows = RowsOfLimit::new(&self.rows, (path, limit.name()), self.now_us);
        effect::changed(limit, &rows, entry_tier)
    }

    /// Applies the exceptions to a limit without a rule: an override, or the limit of a descriptor that has none. Only
    /// a block changes it. `of_rule`: path and limits of the rule that would apply to the descriptor.
    pub(crate) fn block(&self, limit: &Limit, of_rule: Option<(&str, &[Arc<Limit>])>) -> Option<Changed> {
        let block = |path, name| RowsOfLimit::new(&self.rows, (path, name), self.now_us).block();
        let block = match of_rule {
            Some((path, limits)) => limits.iter().find_map(|limit| block(path, limit.name())),
            None => block("", ""),
        }?;
        Some(block.apply_to(limit))
    }
}
