//! The requests of a call as the script reads them. lua/counters.lua and lua/decide.lua describe the bytes.

use super::super::When;
use super::super::encode::Encoded;
use super::super::layout::{ALIKE, EQUAL, FEATURE_EQUAL, FEATURE_KEYS_REPEAT, FEATURE_ONE_BY_ONE};

/// Where the features are: after the time and the time for which counters are kept.
const FEATURES_AT: usize = 16;

/// The requests of a call, without their keys.
pub(super) struct Records {
    bytes: Vec<u8>,
    /// The functions of the script that the call needs, and whether a key is sent more than once.
    features: u16,
}

impl Records {
    /// The requests in this order, each as often as its number says. `keys_repeat`: whether a key is sent more than
    /// once. `capacity`: about how many bytes they take.
    pub(super) fn new<'a>(
        requests: impl Iterator<Item = (&'a Encoded, u16)>,
        keys_repeat: bool,
        when: When,
        capacity: usize,
    ) -> Self {
        let features = if keys_repeat { FEATURE_KEYS_REPEAT } else { 0 };
        let mut records = Self { bytes: Vec::with_capacity(capacity + 32), features };
        records.bytes.extend([when.now(), when.grace_ms()].map(f64::to_le_bytes).as_flattened());
        records.bytes.extend([0; 2]);
        let mut requests = requests.peekable();
        while let Some((request, size)) = requests.next() {
            if size > 1 {
                records.push_equal(request, size);
            } else if !keys_repeat && request.may_be_alike() {
                let is_alike =
                    |&(next, size): &(&Encoded, u16)| size == 1 && next.record() == request.record();
                let mut number = 1;
                while number < u16::MAX && requests.next_if(is_alike).is_some() {
                    number += 1;
                }
                records.push_alike(request, number);
            } else {
                records.push_one(request);
            }
        }
        records.bytes[FEATURES_AT..FEATURES_AT + 2].copy_from_slice(&records.features.to_le_bytes());
        records
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn push_equal(&mut self, request: &Encoded, size: u16) {
        self.features |= FEATURE_EQUAL | request.features();
        self.bytes.push(EQUAL);
        self.bytes.extend_from_slice(&size.to_le_bytes());
        self.bytes.extend_from_slice(request.record());
    }

    /// Adds requests that differ from this one in their keys only. `number` counts this one too.
    fn push_alike(&mut self, request: &Encoded, number: u16) {
        match (u16::try_from(request.key_count()), u16::try_from(request.reply_width())) {
            (Ok(keys), Ok(width)) => {
                self.features |= request.alike_features();
                self.bytes.push(ALIKE);
                self.bytes.extend_from_slice([number, keys, width].map(u16::to_le_bytes).as_flattened());
                self.bytes.extend_from_slice(request.record());
            }
            _ => (0..number).for_each(|_| self.push_one(request)),
        }
    }

    fn push_one(&mut self, request: &Encoded) {
        self.features |= FEATURE_ONE_BY_ONE | request.features();
        self.bytes.extend_from_slice(request.record());
    }
}
