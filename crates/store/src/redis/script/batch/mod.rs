//! The argument of the batch script: its requests without their keys. lua/batch.lua describes the bytes.
//!
//! The simple way is one request after another, in the order of arrival. `bundles` finds requests that can share what
//! is sent; without them a batch costs Redis more, and is decided the same.

use super::encoding::EncodedRequest;
use super::layout::{EQUAL, FEATURE_EQUAL, FEATURE_KEYS_REPEAT, FEATURE_ONE_BY_ONE, SAME_SHAPE, When};

mod bundles;
#[cfg(test)]
mod tests;

pub(super) use self::bundles::RequestBundles;

/// Where the features begin: after the time and the time for which counters are kept.
const FEATURES_AT: usize = 16;

/// The argument of a call: its time and its requests without their keys.
pub(super) struct ScriptArgument {
    pub(super) bytes: Vec<u8>,
    /// The functions of the script that the call needs, and whether a key is sent more than once.
    features: u16,
}

impl ScriptArgument {
    /// The requests in this order, each with the number of requests that it stands for. `keys_repeat`: whether a key is
    /// sent more than once. `capacity`: about how many bytes they take.
    pub(super) fn new<'a>(
        requests: impl Iterator<Item = (&'a EncodedRequest, u16)>,
        keys_repeat: bool,
        when: When,
        capacity: usize,
    ) -> Self {
        let features = if keys_repeat { FEATURE_KEYS_REPEAT } else { 0 };
        let mut argument = Self { bytes: Vec::with_capacity(capacity + 32), features };
        argument.bytes.extend(when.bytes().as_flattened());
        argument.bytes.extend([0; 2]);
        let mut requests = requests.peekable();
        while let Some((request, size)) = requests.next() {
            if size > 1 {
                argument.push_equal(request, size);
            } else if !keys_repeat && request.may_share_shape() {
                let has_same_shape =
                    |&(next, size): &(&EncodedRequest, u16)| size == 1 && next.bytes() == request.bytes();
                let mut number = 1;
                while number < u16::MAX && requests.next_if(has_same_shape).is_some() {
                    number += 1;
                }
                argument.push_same_shape(request, number);
            } else {
                argument.push_one(request);
            }
        }
        argument.bytes[FEATURES_AT..FEATURES_AT + 2].copy_from_slice(&argument.features.to_le_bytes());
        argument
    }

    fn push_equal(&mut self, request: &EncodedRequest, size: u16) {
        self.features |= FEATURE_EQUAL | request.features();
        self.bytes.push(EQUAL);
        self.bytes.extend_from_slice(&size.to_le_bytes());
        self.bytes.extend_from_slice(request.bytes());
    }

    /// Adds requests that differ from this one in their keys only. `number` counts this one too.
    fn push_same_shape(&mut self, request: &EncodedRequest, number: u16) {
        match (u16::try_from(request.key_count()), u16::try_from(request.reply_width())) {
            (Ok(keys), Ok(width)) => {
                self.features |= request.same_shape_features();
                self.bytes.push(SAME_SHAPE);
                self.bytes.extend_from_slice([number, keys, width].map(u16::to_le_bytes).as_flattened());
                self.bytes.extend_from_slice(request.bytes());
            }
            _ => (0..number).for_each(|_| self.push_one(request)),
        }
    }

    fn push_one(&mut self, request: &EncodedRequest) {
        self.features |= FEATURE_ONE_BY_ONE | request.features();
        self.bytes.extend_from_slice(request.bytes());
    }
}
