//! The requests of a call as the script reads them. lua/decide.lua describes the bytes.

use super::super::encode::Encoded;
use super::super::layout::{ALIKE, EQUAL, FEATURE_EQUAL};

/// Requests that differ in their keys only are sent as alike from this many keys on. Fewer cost Redis less one by one.
const LEAST_ALIKE_KEYS: usize = 4;

/// The requests of a call, without their keys.
pub(super) struct Records {
    bytes: Vec<u8>,
    features: u16,
}

impl Records {
    /// The requests in this order, each as often as its number says. `keys_repeat`: whether a key is sent more than
    /// once. `capacity`: about how many bytes they take.
    pub(super) fn new<'a>(
        requests: impl Iterator<Item = (&'a Encoded, u16)>,
        keys_repeat: bool,
        capacity: usize,
    ) -> Self {
        let mut records = Self { bytes: Vec::with_capacity(capacity), features: 0 };
        let mut requests = requests.peekable();
        while let Some((request, size)) = requests.next() {
            if size > 1 {
                records.push_equal(request, size);
                continue;
            }
            let mut alike = 1;
            if !keys_repeat && request.may_be_alike() {
                let is_alike =
                    |&(next, size): &(&Encoded, u16)| size == 1 && next.record() == request.record();
                while alike < u16::MAX && requests.next_if(is_alike).is_some() {
                    alike += 1;
                }
            }
            records.push_alike(request, alike);
        }
        records
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The features of the script that the call needs beside those of its requests.
    pub(super) fn features(&self) -> u16 {
        self.features
    }

    fn push_equal(&mut self, request: &Encoded, size: u16) {
        self.features |= FEATURE_EQUAL;
        self.bytes.push(EQUAL);
        self.bytes.extend_from_slice(&size.to_le_bytes());
        self.bytes.extend_from_slice(request.record());
    }

    /// Adds requests that differ from this one in their keys only. `number` counts this one too.
    fn push_alike(&mut self, request: &Encoded, number: u16) {
        let is_worth_it = number > 1 && usize::from(number) * request.key_count() >= LEAST_ALIKE_KEYS;
        match (u16::try_from(request.key_count()), u16::try_from(request.reply_width())) {
            (Ok(keys), Ok(width)) if is_worth_it => {
                self.bytes.push(ALIKE);
                self.bytes.extend_from_slice([number, keys, width].map(u16::to_le_bytes).as_flattened());
                self.bytes.extend_from_slice(request.record());
            }
            _ => (0..number).for_each(|_| self.bytes.extend_from_slice(request.record())),
        }
    }
}
