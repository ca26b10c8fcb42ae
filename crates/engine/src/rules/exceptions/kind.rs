//! The kinds of exceptions: what a row changes. They are the names of the metrics and of the log.

use strum::{EnumCount, EnumIter, IntoStaticStr};

/// One thing that a row changes. A row may change several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ExceptionKind {
    /// Every hit is denied.
    Block,
    /// Every hit is admitted and none is counted.
    Exempt,
    /// Another number.
    Limit,
    /// A multiple of the number.
    Multiplier,
    /// The number of a tier.
    Tier,
    /// Whether denials take effect.
    ShadowMode,
}

impl ExceptionKind {
    /// The number of kinds.
    pub const COUNT: usize = <Self as EnumCount>::COUNT;

    /// The name of the column.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Every kind; the position of a kind is its number.
    pub fn all() -> impl Iterator<Item = Self> {
        <Self as strum::IntoEnumIterator>::iter()
    }
}
