//! How the limit that applies came from the limit of a rule: what changed it, and which row said so.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::rows::{ExceptionKind, ExceptionRow, FileTier, Multiplier};
use crate::limit::spec::LimitError;
use crate::limit::{Limit, LimitId};

/// The way from a limit of a rule, or of a request, to the limit that applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derivation {
    /// The index of the descriptor in its request.
    pub descriptor: usize,
    pub limit: LimitId,
    /// [`Limit::label`].
    pub label: Arc<str>,
    /// The index of the charge; `None` if the limit is not counted.
    pub charge: Option<usize>,
    /// The number of the rule.
    pub from: Amount,
    /// Not empty.
    pub steps: SmallVec<[DerivationStep; 2]>,
}

/// How much a limit admits per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The descriptor matches no rule.
    NoLimit,
    Unlimited,
    Units(u64),
}

/// One change of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivationStep {
    pub change: Change,
    pub by: ChangedBy,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Every hit is denied, until that time in microseconds since the epoch if there is one.
    Blocked { until_us: Option<u64> },
    /// Every hit is admitted, and none is counted.
    Exempt,
    /// The numbers of a tier count.
    Tier(Arc<str>, Amount),
    /// The limit does not have the tier; `None` if its name is a value of the request.
    UnknownTier(Option<Arc<str>>),
    /// The number of the row counts.
    Number(u64),
    /// The number is multiplied.
    Multiplied(Multiplier, u64),
    /// The limit is in shadow mode, or is not although its rule is.
    Shadow(bool),
    /// The limit cannot have the number of the row, so that it stays as it is.
    Unfit(Unfit),
}

/// Why a limit cannot have the number of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("the limit is unlimited")]
    Unlimited,
    #[error(transparent)]
    Limit(#[from] LimitError),
}

/// What made a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedBy {
    /// An entry of the descriptor whose node is a tier.
    Entry,
    Row(Arc<ExceptionRow>),
    /// A row of a file that has tiers only.
    Tier(FileTier),
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

impl Derivation {
    /// Whether this is the way to a limit of a descriptor.
    pub(crate) fn is_of(&self, descriptor: usize, limit: LimitId) -> bool {
        self.descriptor == descriptor && self.limit == limit
    }
}

impl Amount {
    pub(crate) fn for_limit(limit: &Limit) -> Self {
        if limit.spec.unlimited { Self::Unlimited } else { Self::Units(limit.spec.requests_per_unit) }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimit => f.write_str("no limit"),
            Self::Unlimited => f.write_str("unlimited"),
            Self::Units(units) => write!(f, "{units}"),
        }
    }
}
