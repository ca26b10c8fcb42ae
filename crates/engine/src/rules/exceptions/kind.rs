//! The kinds of exceptions: what a row changes. They are the names of the metrics and of the log.

use strum::{EnumCount, EnumIter, IntoStaticStr};

use super::derivation::Change;
use super::rows::Effect;

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

impl Change {
    /// What a row has changed; `None` for a row that changes nothing.
    #[must_use]
    pub fn kind(&self) -> Option<ExceptionKind> {
        match self {
            Self::Blocked { .. } => Some(ExceptionKind::Block),
            Self::Exempt => Some(ExceptionKind::Exempt),
            Self::Tier(..) => Some(ExceptionKind::Tier),
            Self::Number(_) => Some(ExceptionKind::Limit),
            Self::Multiplied(..) => Some(ExceptionKind::Multiplier),
            Self::Shadow(_) => Some(ExceptionKind::ShadowMode),
            Self::UnknownTier(_) | Self::Unfit(_) => None,
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
            ExceptionKind::Tier => self.tier.is_some(),
            ExceptionKind::ShadowMode => self.shadow_mode.is_some(),
        };
        ExceptionKind::all().filter(is_set)
    }
}
