//! The role of a charge: how its denial affects the request.

use strum::EnumCount;

/// What a denial of the charge means for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount)]
pub enum Role {
    Enforce,
    /// Denies nothing: counted and reported only (`shadow_mode`).
    Shadow,
    /// Denies nothing: a quota rule that cannot change the answer.
    IdleQuota,
    /// Denies nothing: the answer says if it is over (`on_over: announce`).
    Announced,
    /// Denies nothing: books the cost of a request that was admitted earlier (`reserve`).
    Booked,
    /// Denies the request only if every quota group has a denial. Groups count from 0.
    Quota(u16),
    /// Denies nothing, and the store decides it separately ([`Charges::parts`](crate::Charges::parts)): the difference
    /// between an estimate and the real cost.
    Settle,
}

impl Role {
    /// For tests that pick from all roles.
    pub const KINDS: usize = Self::COUNT;

    /// `true` if the charge denies nothing, whatever the request's other charges say. The status of its descriptor is
    /// OK.
    pub fn never_denies(self) -> bool {
        match self {
            Self::Shadow | Self::Announced | Self::Booked | Self::Settle => true,
            Self::Enforce | Self::IdleQuota | Self::Quota(_) => false,
        }
    }
}
