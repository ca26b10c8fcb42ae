//! Maps whose keys are hashes already.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

/// A map from hashes.
pub(super) type ByHash<T> = HashMap<u64, T, BuildHasherDefault<SameHasher>>;

/// The hash of a number is the number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SameHasher(u64);

impl Hasher for SameHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only numbers are hashed; this is right, if slow, for any other type.
        for byte in bytes {
            self.0 = self.0.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
