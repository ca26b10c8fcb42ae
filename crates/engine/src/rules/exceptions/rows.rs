//! Exceptions as an operator writes them: which request values, which limits, what changes, and why.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use strum::{EnumCount, EnumIter, IntoStaticStr};

use super::network::Network;
use crate::limit::announce::{parse_millionths, write_millionths};
use crate::rules::wildcards::Glob;

/// One exception: a row of a file, or one that was set while the process runs. Dereferences to its terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceptionRow {
    pub source: RowSource,
    /// The value of an entry of a descriptor.
    pub value: RowValue,
    /// Start, microseconds since the epoch. The row is active from it on.
    pub from_us: Option<u64>,
    /// End, microseconds since the epoch. The row is active before it.
    pub until_us: Option<u64>,
    /// Rows with equal terms can share them: a hundred thousand rows rarely differ in more than their values.
    pub terms: Arc<RowTerms>,
}

/// What a row says besides its value and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RowTerms {
    /// Matched against the request's domain.
    pub domain: Glob,
    /// The key of the entry with the value.
    pub key: Arc<str>,
    /// Matched against the keys and values of the rule, joined by dots: `key_value.key`.
    pub path: Glob,
    /// Matched against the limit's name, which may be empty.
    pub limit_name: Glob,
    pub effect: Effect,
    /// As the operator wrote it.
    pub reason: Option<Arc<str>>,
    /// As the operator wrote it.
    pub by: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowSource {
    File {
        file: Arc<str>,
        /// The first line of the row.
        line: u32,
    },
    /// Set while the process runs: a row of [`LiveRows`](super::LiveRows).
    Live {
        id: Arc<str>,
        /// Of two live rows the later version wins.
        version: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RowValue {
    /// Exactly this string.
    Exact(Arc<str>),
    /// Every address of a network, in any spelling. A single address is also a network.
    Network(Network),
}

/// Unset fields change nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Effect {
    /// Applies to limits that have this tier.
    pub tier: Option<Arc<str>>,
    /// Replaces the limit of the tier or rule.
    pub limit: Option<u64>,
    /// Applied to the limit.
    pub multiplier: Option<Multiplier>,
    /// A grant: this many units, 1 to 2^52, on top of the limit in the window that contains the row's start. Without a
    /// start it changes nothing.
    pub add: Option<u64>,
    /// `true`: every hit is denied.
    pub block: bool,
    /// `true`: every hit is admitted, and none is counted.
    pub exempt: bool,
    /// `true`: limits count but never deny. Overrides the rule's `shadow_mode`.
    pub shadow_mode: Option<bool>,
}

/// What a row changes, named after its column in metrics and logs. A row may change several things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum ExceptionKind {
    Block,
    /// Every hit is admitted and none is counted.
    Exempt,
    /// Another limit.
    Limit,
    /// A multiple of the limit.
    Multiplier,
    /// More units in one window.
    Add,
    /// The limit of a tier.
    Tier,
    /// Whether denials take effect.
    ShadowMode,
}

/// A row of a file that only assigns tiers, such as a CSV file of a million rows.
#[derive(Clone, Copy, Debug)]
pub struct TierRow<'r> {
    pub file: &'r Arc<str>,
    /// The name of a domain, or `*` for every domain.
    pub domain: &'r str,
    pub key: &'r str,
    /// The exact value. All spellings of an address are equal.
    pub value: &'r str,
    pub tier: &'r str,
}

/// A tier that rows of one file assign to values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTier {
    pub file: Arc<str>,
    pub tier: Arc<str>,
    pub(super) rank: u32,
}

/// A factor with six decimals, from 0.001 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Multiplier {
    millionths: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultiplierError {
    #[error("not a number such as 2 or 0.5, with at most six decimals")]
    NotANumber,
    #[error("out of range: a multiplier is at least 0.001 and at most 1000")]
    OutOfRange,
}

/// A row that applies to an entry of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchedRow<'x> {
    pub(super) place: Place,
    pub(super) row: AnyRow<'x>,
}

/// Precedence between two rows if neither or both name limits: the greater wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Deeper entries take precedence.
    pub(super) entry: usize,
    /// The prefix length of a network; the largest number for an exact value.
    pub(super) precision: u8,
    /// The position of the file; live rows come after the last one.
    pub(super) file: u32,
    /// The position in the file, or the version.
    pub(super) row: u64,
}

/// A row with all columns, or one of the table of tiers.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyRow<'x> {
    Full(&'x Arc<ExceptionRow>),
    Tier(&'x FileTier),
}

impl ExceptionKind {
    pub const COUNT: usize = <Self as EnumCount>::COUNT;

    /// Every kind; its position is its number.
    pub fn all() -> impl Iterator<Item = Self> {
        <Self as strum::IntoEnumIterator>::iter()
    }
}

impl Multiplier {
    const ONE: u32 = 1_000_000;
    const SMALLEST: u64 = 1_000;
    const LARGEST: u64 = 1_000_000_000;

    /// `number` times the factor, rounded down, but at least 1 unless `number` is 0.
    pub fn times(self, number: u64) -> u64 {
        let product = u128::from(number) * u128::from(self.millionths) / u128::from(Self::ONE);
        u64::try_from(product).unwrap_or(u64::MAX).max(number.min(1))
    }
}

impl FromStr for Multiplier {
    type Err = MultiplierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let millionths = parse_millionths(text).ok_or(MultiplierError::NotANumber)?;
        match u32::try_from(millionths) {
            Ok(exact) if (Self::SMALLEST..=Self::LARGEST).contains(&millionths) => {
                Ok(Self { millionths: exact })
            }
            _ => Err(MultiplierError::OutOfRange),
        }
    }
}

/// In the shortest form.
impl fmt::Display for Multiplier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_millionths(f, self.millionths)
    }
}

impl fmt::Display for RowSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Live { id, .. } => write!(f, "live row {id}"),
        }
    }
}

impl RowSource {
    /// The file name, or the live row's id.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::File { file, .. } => file,
            Self::Live { id, .. } => id,
        }
    }
}

impl Effect {
    /// What the row changes, in the order of [`ExceptionKind::all`].
    pub fn kinds(&self) -> impl Iterator<Item = ExceptionKind> {
        let is_set = |kind: &ExceptionKind| match kind {
            ExceptionKind::Block => self.block,
            ExceptionKind::Exempt => self.exempt,
            ExceptionKind::Limit => self.limit.is_some(),
            ExceptionKind::Multiplier => self.multiplier.is_some(),
            ExceptionKind::Add => self.add.is_some(),
            ExceptionKind::Tier => self.tier.is_some(),
            ExceptionKind::ShadowMode => self.shadow_mode.is_some(),
        };
        ExceptionKind::all().filter(is_set)
    }
}

impl Deref for ExceptionRow {
    type Target = RowTerms;

    fn deref(&self) -> &RowTerms {
        &self.terms
    }
}

impl ExceptionRow {
    /// Changes the terms of this row only.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut RowTerms)) -> Self {
        change(Arc::make_mut(&mut self.terms));
        self
    }

    /// `true` if the row is active at this time.
    pub fn is_in_force(&self, now_us: u64) -> bool {
        self.has_started(now_us) && !self.has_ended(now_us)
    }

    pub(super) fn has_started(&self, now_us: u64) -> bool {
        self.from_us.is_none_or(|from_us| from_us <= now_us)
    }

    /// `true` if the row is never active at this time or later.
    pub fn has_ended(&self, now_us: u64) -> bool {
        self.until_us.is_some_and(|until_us| until_us <= now_us)
    }

    /// `true` if the row names limits by path or name, instead of applying to all limits of a descriptor.
    pub(super) fn names_limits(&self) -> bool {
        self.path != Glob::Any || self.limit_name != Glob::Any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiplier_has_six_decimals_and_a_range() {
        let parsed = |text: &str| text.parse::<Multiplier>();
        for (text, shown) in
            [("2", "2"), ("0.5", "0.5"), ("0.001", "0.001"), ("1000", "1000"), ("01.50", "1.5")]
        {
            assert_eq!(parsed(text).map(|multiplier| multiplier.to_string()).as_deref(), Ok(shown));
        }
        for text in ["", ".", "1.", ".5", "-1", "+1", "1e3", "1.0000001", "2x", "1,5", " 1"] {
            assert_eq!(parsed(text), Err(MultiplierError::NotANumber), "{text:?}");
        }
        for text in ["0", "0.000999", "1000.000001", "4295", "99999999999999999999999"] {
            assert_eq!(parsed(text), Err(MultiplierError::OutOfRange), "{text}");
        }
    }

    #[test]
    fn a_product_is_rounded_down_but_admits_what_admitted_something() {
        let table = [
            // multiplier, limit, product
            ("2", 600, 1_200),
            ("0.5", 50, 25),
            ("0.5", 5, 2),
            ("1.5", 5, 7),
            ("0.001", 60, 1),
            ("0.001", 0, 0),
            ("0.333333", 3, 1),
            ("1000", 1 << 52, 1_000 << 52),
            ("1000", u64::MAX, u64::MAX),
        ];
        for (multiplier, number, product) in table {
            let multiplier: Multiplier = multiplier.parse().expect("a multiplier");
            assert_eq!(multiplier.times(number), product, "{multiplier} times {number}");
        }
    }
}
