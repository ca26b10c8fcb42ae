//! Reads the usual request: a domain and descriptors of keys and values, and nothing else. Without the structs that
//! prost fills first, a request of two entries takes 2,200 instructions instead of 3,100 (callgrind). Knows of the
//! protobuf encoding what such a message needs; what is unusual or wrong is left to prost, so that there is one decoder
//! that refuses.

use engine::wire::{RawDescriptor, RawRequest};
use engine::{Entry, text_of_bytes};

use super::field_count::COUNTED_FROM_BYTES;

/// The tags of the fields, each a number of a field and the wire type of a text or message (2).
const DOMAIN: u8 = 1 << 3 | 2;
const DESCRIPTOR: u8 = 2 << 3 | 2;
const ENTRY: u8 = 1 << 3 | 2;
const KEY: u8 = 1 << 3 | 2;
const VALUE: u8 = 2 << 3 | 2;

/// The request in `message`, as prost reads it; `None` if it is for prost.
#[must_use]
pub fn usual_request(mut message: &[u8]) -> Option<RawRequest> {
    // The fields of longer messages are counted before they are decoded.
    if message.len() >= COUNTED_FROM_BYTES {
        return None;
    }
    let mut request = RawRequest::default();
    while let Some(field) = take_field(&mut message)? {
        match field.tag {
            DOMAIN if request.domain.is_empty() => request.domain = text_of_bytes(field.content),
            DESCRIPTOR => request.descriptors.push(descriptor(field.content)?),
            _ => return None,
        }
    }
    Some(request)
}

fn descriptor(mut message: &[u8]) -> Option<RawDescriptor> {
    let mut descriptor = RawDescriptor::default();
    while let Some(field) = take_field(&mut message)? {
        if field.tag != ENTRY {
            return None;
        }
        descriptor.entries.push(entry(field.content)?);
    }
    Some(descriptor)
}

fn entry(mut message: &[u8]) -> Option<Entry> {
    let mut entry = Entry { key: String::new(), value: String::new() };
    while let Some(field) = take_field(&mut message)? {
        // Of a repeated text the last counts, which prost knows.
        match field.tag {
            KEY if entry.key.is_empty() => entry.key = text_of_bytes(field.content),
            VALUE if entry.value.is_empty() => entry.value = text_of_bytes(field.content),
            _ => return None,
        }
    }
    Some(entry)
}

/// A field with a length.
struct SizedField<'m> {
    tag: u8,
    content: &'m [u8],
}

/// Splits a field off the start of `message`: `Some(None)` at its end, `None` if the field is for prost.
fn take_field<'m>(message: &mut &'m [u8]) -> Option<Option<SizedField<'m>>> {
    let Some((&tag, rest)) = message.split_first() else {
        return Some(None);
    };
    let (&first, rest) = rest.split_first()?;
    // A length of seven bits or of twice seven bits: a message has fewer bytes than that.
    let (length, rest) = match first {
        0..0x80 => (usize::from(first), rest),
        0x80.. => {
            let (&second, rest) = rest.split_first()?;
            if second >= 0x80 {
                return None;
            }
            (usize::from(first & 0x7f) | usize::from(second) << 7, rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *message = rest;
    Some(Some(SizedField { tag, content }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::grpc::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use crate::grpc::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor as wire;
    use crate::grpc::pb::envoy::service::ratelimit::v3::RateLimitRequest;

    fn by_prost(message: &[u8]) -> Option<RawRequest> {
        RateLimitRequest::decode(message).ok().map(RawRequest::from)
    }

    /// What is unusual comes in one of ten descriptors.
    fn any_descriptor() -> impl Strategy<Value = RateLimitDescriptor> {
        let entry = (any_bytes(), "[a-z]{0,140}")
            .prop_map(|(key, value)| wire::Entry { key, value: value.into_bytes() });
        let limit = wire::RateLimitOverride { requests_per_unit: 1, unit: 1, unit_multiplier: Some(2) };
        let limit = prop::option::weighted(0.1, Just(limit));
        let hits = prop::option::weighted(0.1, any::<u64>());
        (prop::collection::vec(entry, 0..4), limit, hits).prop_map(|(entries, limit, hits_addend)| {
            RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits: false }
        })
    }

    /// Often a text, as are all pieces of it.
    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![".{0,3}".prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 0..90)]
    }

    fn any_request() -> impl Strategy<Value = RateLimitRequest> {
        let hits = prop_oneof![9 => Just(0), 1 => any::<u32>()];
        (any_bytes(), prop::collection::vec(any_descriptor(), 0..3), hits).prop_map(
            |(domain, descriptors, hits_addend)| RateLimitRequest { domain, descriptors, hits_addend },
        )
    }

    proptest! {
        #[test]
        fn a_usual_request_is_read_as_prost_reads_it(
            request in any_request(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut message = request.encode_to_vec();
            for (place, byte) in changes.iter().filter(|_| !request.domain.is_empty()) {
                let place = place.index(message.len());
                message[place] = *byte;
            }
            if let Some(cut) = cut.filter(|_| !message.is_empty()) {
                message.truncate(cut.index(message.len()));
            }
            if let Some(read) = usual_request(&message) {
                prop_assert_eq!(Some(read), by_prost(&message));
            }
        }

        #[test]
        fn a_request_of_entries_alone_is_usual(mut request in any_request()) {
            request.hits_addend = 0;
            for descriptor in &mut request.descriptors {
                (descriptor.limit, descriptor.hits_addend) = (None, None);
            }
            let message = request.encode_to_vec();
            let is_short = message.len() < COUNTED_FROM_BYTES;
            prop_assert_eq!(usual_request(&message), by_prost(&message).filter(|_| is_short));
        }
    }

    #[test]
    fn what_is_unusual_or_wrong_is_for_prost() {
        let table: [(&[u8], &str); 8] = [
            (b"\x0a\x01d\x0a\x01e", "a second domain"),
            (b"\x12\x06\x0a\x04\x0a\x00\x18\x01", "an unknown field of an entry"),
            (b"\x12\x02\x20\x01", "a refund"),
            (b"\x18\x05", "hits"),
            (b"\x0a\x05d", "a domain longer than the message"),
            (b"\x0a", "a tag alone"),
            (b"\x8a\x00\x01d", "a tag of two bytes"),
            (b"\x0a\x81\x80\x00d", "a length of three bytes"),
        ];
        for (message, why) in table {
            assert_eq!(usual_request(message), None, "{why}");
        }
        assert_eq!(usual_request(&b"\x12\x00".repeat(COUNTED_FROM_BYTES / 2)), None, "a long message");
    }
}
