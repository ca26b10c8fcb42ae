//! The argument of the batch script: its requests without their keys. lua/batch.lua describes the bytes.
//!
//! The simple way is one request after another, in the order of arrival. `bundles` finds requests that can share what
//! is sent; without them a batch costs Redis more, and is decided the same.

use super::encoding::EncodedRequest;
use super::layout::{EQUAL, LogUse, When};

mod bundles;
#[cfg(test)]
mod tests;

pub(super) use self::bundles::RequestBundles;

/// The argument of a call with these requests in this order, each with the number of requests that it stands for.
/// `keys_repeat`: whether a key is sent more than once. `capacity`: about how many bytes they take.
pub(super) fn script_argument<'a>(
    requests: impl Iterator<Item = (&'a EncodedRequest, u16)> + Clone,
    keys_repeat: bool,
    when: When,
    capacity: usize,
) -> Vec<u8> {
    let log_use = requests.clone().map(|(request, _)| request.log_use()).max().unwrap_or(LogUse::Nothing);
    let mut bytes = Vec::with_capacity(capacity + 32);
    bytes.extend(when.bytes().as_flattened());
    bytes.extend([u8::from(keys_repeat), log_use as u8]);
    let mut requests = requests.peekable();
    while let Some((request, size)) = requests.next() {
        let mut number = size;
        let is_alike =
            |&(next, next_size): &(&EncodedRequest, u16)| next_size == 1 && next.bytes() == request.bytes();
        while size == 1 && number < u16::MAX && requests.next_if(is_alike).is_some() {
            number += 1;
        }
        bytes.extend_from_slice(&number.to_le_bytes());
        if size > 1 {
            bytes.push(EQUAL);
        }
        bytes.extend_from_slice(request.bytes());
    }
    bytes
}
