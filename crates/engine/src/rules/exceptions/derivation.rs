//! Records how an applied limit came from the limit of a rule: each change, and the exception that made it.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::rows::{ExceptionKind, ExceptionRow, FileTier, Multiplier};
use crate::limit::spec::LimitError;
use crate::limit::{Limit, LimitId};

/// The steps from the limit of a rule or request to the limit that applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derivation {
    /// The index of the descriptor in its request.
    pub descriptor: usize,
    pub limit: LimitId,
    /// [`Limit::label`].
    pub label: Arc<str>,
    /// `None` if the limit is not counted.
    pub charge: Option<usize>,
    /// The rule's limit.
    pub from: Amount,
    /// Not empty.
    pub steps: SmallVec<[DerivationStep; 2]>,
}

/// Units that a limit admits per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The descriptor matches no rule.
    NoLimit,
    Unlimited,
    Units(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivationStep {
    pub change: Change,
    pub by: ChangedBy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Every hit is denied, until this time (microseconds since the epoch) if there is one.
    Blocked { until_us: Option<u64> },
    /// Every hit is admitted, and none is counted.
    Exempt,
    /// The values of a tier apply.
    Tier(Arc<str>, Amount),
    /// The limit lacks the tier; `None` if the tier's name comes from the request.
    UnknownTier(Option<Arc<str>>),
    /// The exception's limit applies.
    Number(u64),
    /// The factor, and the resulting limit.
    Multiplied(Multiplier, u64),
    /// Added by a grant: its units, the resulting limit, and when its window or the exception ends (microseconds since
    /// the epoch).
    Added { units: u64, number: u64, until_us: u64 },
    /// `true`: shadow mode; `false`: enforced although its rule is in shadow mode.
    Shadow(bool),
    /// The limit cannot take the exception's value, so it stays unchanged.
    Unfit(Unfit),
}

/// Why a limit cannot take an exception's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("the limit is unlimited")]
    Unlimited,
    /// A grant needs a fixed or calendar window.
    #[error("the limit has no window that ends")]
    NoWindow,
    #[error(transparent)]
    Limit(#[from] LimitError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedBy {
    /// An entry of the descriptor whose node is a tier.
    Entry,
    Row(Arc<ExceptionRow>),
    /// A row of a file that only assigns tiers.
    Tier(FileTier),
}

impl Change {
    /// `None` if nothing changed.
    pub fn kind(&self) -> Option<ExceptionKind> {
        match self {
            Self::Blocked { .. } => Some(ExceptionKind::Block),
            Self::Exempt => Some(ExceptionKind::Exempt),
            Self::Tier(..) => Some(ExceptionKind::Tier),
            Self::Number(_) => Some(ExceptionKind::Limit),
            Self::Multiplied(..) => Some(ExceptionKind::Multiplier),
            Self::Added { .. } => Some(ExceptionKind::Add),
            Self::Shadow(_) => Some(ExceptionKind::ShadowMode),
            Self::UnknownTier(_) | Self::Unfit(_) => None,
        }
    }

    /// When this change by the row ends, microseconds since the epoch.
    pub fn until_us(&self, row: &ExceptionRow) -> Option<u64> {
        match self {
            Self::Blocked { until_us } => *until_us,
            Self::Added { until_us, .. } => Some(*until_us),
            _ => row.until_us,
        }
    }
}

impl Derivation {
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
