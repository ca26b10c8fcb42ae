//! Exceptions give a value of a request, such as a customer, another limit than its rule, without changing rules.
//!
//! An exception has a key and a value, and applies to every descriptor with an entry that has both, at any position.
//! One with an end is active while the plan's time is before it. Entry points: [`ExceptionsBuilder`], [`Exceptions`].

pub(crate) mod derivation;
pub(crate) mod effect;
mod live;
pub(crate) mod look_up;
mod network;
mod rows;
mod tier_table;

use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use self::network::Networks;
use crate::rules::wildcards::Glob;

pub use live::LiveRows;
pub use network::{Network, NetworkError, address_of};
pub use rows::{
    Effect, ExceptionKind, ExceptionRow, FileTier, Multiplier, MultiplierError, RowSource, RowTerms,
    RowValue, TierRow,
};
pub use tier_table::{Added, Space, TierMark, TierTable, TierTableBuilder};

/// All rows of all files. Immutable; a changed file makes a new one.
#[derive(Debug, Default)]
pub struct Exceptions {
    rows: Vec<RankedRow>,
    /// In no particular order.
    keys: Vec<RowsOfKey>,
    table: TierTable,
    /// By mark, starting at mark 1.
    tiers: Vec<FileTier>,
    /// Domains and keys of the table.
    spaces: Vec<TableSpace>,
}

/// A row with the position of its file: later files win.
#[derive(Debug)]
struct RankedRow {
    row: Arc<ExceptionRow>,
    file: u32,
}

/// The rows of one key, by index.
#[derive(Debug)]
struct RowsOfKey {
    key: Arc<str>,
    exact: HashMap<Arc<str>, SmallVec<[u32; 1]>>,
    networks: Networks,
    /// The distinct domains of the rows.
    domains: Vec<Glob>,
}

#[derive(Debug)]
struct TableSpace {
    /// The name of a domain, or `*`.
    domain: Box<str>,
    key: Arc<str>,
    space: Space,
    /// `true` if some value is an address. The table stores addresses in their shortest form.
    has_addresses: bool,
}

#[derive(Debug)]
pub struct ExceptionsBuilder {
    exceptions: Exceptions,
    table: TierTableBuilder,
    /// The file of the last row added, and its position.
    file: Option<Arc<str>>,
    rank: u32,
    keys: HashMap<Arc<str>, usize>,
    marks: HashMap<(u32, Arc<str>), TierMark>,
}

/// More distinct tiers, counted per file, than marks can identify: 65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many tiers: all files together may name 65,535")]
pub struct TooManyTiers;

impl ExceptionsBuilder {
    /// Starts empty. [`build`](Self::build) compares the tiers of values with `previous`.
    pub fn new(previous: &Exceptions) -> Self {
        Self {
            exceptions: Exceptions::default(),
            table: TierTableBuilder::new(previous.table.hashing()),
            file: None,
            rank: 0,
            keys: HashMap::new(),
            marks: HashMap::new(),
        }
    }

    /// Adds a row. Add rows in the order of their file, and files in the order of their names: later rows win.
    pub fn add_row(&mut self, mut row: ExceptionRow) {
        if let Some(last) = self.exceptions.rows.last()
            && last.row.terms == row.terms
        {
            row.terms = Arc::clone(&last.row.terms);
        }
        let file = self.rank_of(row.source.name());
        // A file has at most 100,000 rows.
        let index = u32::try_from(self.exceptions.rows.len()).unwrap_or(u32::MAX);
        let keys = &mut self.exceptions.keys;
        let at = *self.keys.entry(Arc::clone(&row.key)).or_insert_with(|| {
            keys.push(RowsOfKey::new(&row.key));
            keys.len() - 1
        });
        let of_key = &mut keys[at];
        match &row.value {
            RowValue::Exact(value) => of_key.exact.entry(Arc::clone(value)).or_default().push(index),
            RowValue::Network(network) => of_key.networks.insert(*network, index),
        }
        if !of_key.domains.contains(&row.domain) {
            of_key.domains.push(row.domain.clone());
        }
        self.exceptions.rows.push(RankedRow { row: Arc::new(row), file });
    }

    /// Adds a row of a file that only assigns tiers, in the same order as [`add_row`](Self::add_row). The line number
    /// is not kept: commands that show it add the few rows they need with `add_row`.
    ///
    /// # Errors
    /// [`TooManyTiers`].
    pub fn add_tier(&mut self, row: TierRow<'_>) -> Result<(), TooManyTiers> {
        let rank = self.rank_of(row.file);
        let mark = self.mark_of(rank, &row)?;
        let spaces = &mut self.exceptions.spaces;
        let is_same = |known: &TableSpace| *known.domain == *row.domain && *known.key == *row.key;
        // Rows of one domain and key usually follow each other, and a table has few of them.
        let at = spaces.iter().rposition(is_same).unwrap_or_else(|| {
            let space = self.table.add_space(row.domain, row.key);
            let (domain, key) = (row.domain.into(), row.key.into());
            spaces.push(TableSpace { domain, key, space, has_addresses: false });
            spaces.len() - 1
        });
        match row.value.parse::<IpAddr>() {
            Ok(address) => {
                spaces[at].has_addresses = true;
                self.table.add(at, &address.to_canonical().to_string(), mark);
            }
            Err(_) => match address_of(row.value) {
                // A value with a port, to which rows for the bare address also apply.
                Some(address) => self.table.add_spelling(at, row.value, &address.to_string(), mark),
                None => self.table.add(at, row.value, mark),
            },
        }
        Ok(())
    }

    /// Builds the exceptions and calls `on_added` for each row of [`add_tier`](Self::add_tier), last row first. Marks
    /// refer to [`Exceptions::tier`] of the new and of the previous exceptions.
    pub fn build(self, previous: &Exceptions, on_added: impl FnMut(Added)) -> Exceptions {
        let file = |mark: TierMark| self.exceptions.tier(mark).map(|tier| tier.rank);
        let are_of_one_file = |one, other| file(one) == file(other);
        let table = self.table.build(Some(&previous.table), are_of_one_file, on_added);
        Exceptions { table, ..self.exceptions }
    }

    fn rank_of(&mut self, file: &Arc<str>) -> u32 {
        if self.file.as_ref().is_some_and(|last| last != file) {
            self.rank += 1;
        }
        self.file = Some(Arc::clone(file));
        self.rank
    }

    fn mark_of(&mut self, rank: u32, row: &TierRow<'_>) -> Result<TierMark, TooManyTiers> {
        let tiers = &mut self.exceptions.tiers;
        // Most rows repeat one of the most recent tiers.
        let tier: Arc<str> = match tiers.iter().rev().take(4).find(|known| *known.tier == *row.tier) {
            Some(known) => Arc::clone(&known.tier),
            None => row.tier.into(),
        };
        if let Some(mark) = self.marks.get(&(rank, Arc::clone(&tier))) {
            return Ok(*mark);
        }
        let number = u16::try_from(tiers.len() + 1).ok().and_then(TierMark::new).ok_or(TooManyTiers)?;
        tiers.push(FileTier { file: Arc::clone(row.file), tier: Arc::clone(&tier), rank });
        self.marks.insert((rank, tier), number);
        Ok(number)
    }
}

impl RowsOfKey {
    fn new(key: &Arc<str>) -> Self {
        Self {
            key: Arc::clone(key),
            exact: HashMap::new(),
            networks: Networks::default(),
            domains: Vec::new(),
        }
    }
}

impl Exceptions {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.table.is_empty()
    }

    /// The rows added by [`ExceptionsBuilder::add_row`], in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &ExceptionRow> {
        self.rows.iter().map(|ranked| ranked.row.as_ref())
    }

    /// The tiers added by [`ExceptionsBuilder::add_tier`].
    pub fn table(&self) -> &TierTable {
        &self.table
    }

    /// The meaning of a mark of the table.
    pub fn tier(&self, mark: TierMark) -> Option<&FileTier> {
        self.tiers.get(usize::from(mark.get()) - 1)
    }
}

#[cfg(test)]
mod tests;
