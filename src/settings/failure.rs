//! `failure.*`: what is answered while the store cannot. Which policy a limit has is its rule's own business.

use std::num::NonZeroU32;

use super::kinds::positive_u32;
use super::reader::Reader;

/// What holds for all limits while the store gives no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `failure.local_share`: limits with the policy `local` count to this part of themselves, 1 to 1,000: as many as
    /// there are instances.
    pub local_share: NonZeroU32,
}

impl Failure {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self { local_share: reader.read("failure.local_share", "1", positive_u32(1_000)) }
    }
}
