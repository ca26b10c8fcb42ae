//! The role of a charge: what its denial means for the request.

use strum::EnumCount;

/// What a denial of one charge means for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount)]
pub enum Role {
    Enforce,
    /// Denies nothing: it is counted and reported only (`shadow_mode`).
    Shadow,
    /// Denies nothing: a quota rule that cannot change the answer.
    IdleQuota,
    /// Denies nothing: the answer tells when it is over (`on_over: announce`).
    Announced,
    /// Denies nothing: it books the cost of a request that was admitted before (`reserve`).
    Booked,
    /// Denies the request only if every quota group has a denial. Groups count from 0.
    Quota(u16),
    /// Denies nothing, and is decided by the store alone ([`Charges::parts`](crate::Charges::parts)): the difference
    /// between an estimate and the real cost.
    Settle,
}

impl Role {
    /// How many kinds there are. A test that picks a role picks from all of them.
    pub const KINDS: usize = Self::COUNT;

    /// Whether the charge denies nothing, whatever the other charges of the request say, so that the status of its
    /// descriptor is OK.
    #[must_use]
    pub fn never_denies(self) -> bool {
        match self {
            Self::Shadow | Self::Announced | Self::Booked | Self::Settle => true,
            Self::Enforce | Self::IdleQuota | Self::Quota(_) => false,
        }
    }
}
