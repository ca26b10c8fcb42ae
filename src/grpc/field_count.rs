//! Counts the fields of an encoded request before it is decoded: an empty descriptor takes two bytes of the message and
//! a hundred in memory, so a message of 4 MiB could hold two million.

use engine::wire::{Bounds, DescriptorError, RequestError};

use crate::decide::{DecisionCallError, MessageError};
use crate::protobuf::{Fields, UncountableFields};

/// Shorter messages are not counted: decoding so few fields costs less than a decision.
pub(super) const COUNTED_FROM_BYTES: usize = 1_024;

/// What is known of the fields of a message.
#[derive(Clone, Copy)]
enum Kind {
    Request,
    Descriptor,
    /// Its fields hold no lists of messages.
    Other,
}

/// Refuses a message with more descriptors, entries or fields than a request may have.
///
/// # Errors
/// What is too many; or, since its fields cannot be counted, that the message is malformed.
pub(super) fn check(message: &[u8], bounds: &Bounds) -> Result<(), DecisionCallError> {
    if message.len() < COUNTED_FROM_BYTES {
        return Ok(());
    }
    let mut count = FieldCount { bounds, fields: 0, first_excess: None };
    count.add(message, Kind::Request)?;
    count.first_excess.map_or(Ok(()), |excess| Err(excess.into()))
}

fn malformed(cause: UncountableFields) -> MessageError {
    MessageError::Malformed { cause: cause.to_string() }
}

struct FieldCount<'b> {
    bounds: &'b Bounds,
    fields: usize,
    first_excess: Option<RequestError>,
}

impl FieldCount<'_> {
    /// Adds the fields of a message. Returns the number of its descriptors or entries.
    fn add(&mut self, message: &[u8], kind: Kind) -> Result<usize, MessageError> {
        let max = self.bounds.max_fields();
        let mut fields = Fields::of_message(message);
        let mut elements = 0;
        while let Some(field) = fields.next_field().map_err(malformed)? {
            self.fields += 1;
            if self.fields > max {
                return Err(MessageError::ManyFields { max });
            }
            match (kind, field.number) {
                (Kind::Request, 2) => {
                    let entries = self.add(field.content, Kind::Descriptor)?;
                    self.check_entries(elements, entries);
                    elements += 1;
                }
                (Kind::Descriptor, 1) => {
                    self.add(field.content, Kind::Other)?;
                    elements += 1;
                }
                (Kind::Descriptor, 2 | 3) => {
                    self.add(field.content, Kind::Other)?;
                }
                _ => {}
            }
        }
        if matches!(kind, Kind::Request) {
            self.check_descriptors(elements);
        }
        Ok(elements)
    }

    fn check_entries(&mut self, descriptor: usize, count: usize) {
        let max = self.bounds.max_entries;
        if count > max {
            self.first_excess.get_or_insert(DescriptorError::ManyEntries { count, max }.at(descriptor));
        }
    }

    /// Before any excess of a descriptor, as the validation of a decoded request does.
    fn check_descriptors(&mut self, count: usize) {
        let max = self.bounds.max_descriptors;
        if count > max {
            self.first_excess = Some(RequestError::ManyDescriptors { count, max });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::grpc::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use crate::grpc::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor as wire;
    use crate::grpc::pb::envoy::service::ratelimit::v3::RateLimitRequest;

    const BOUNDS: Bounds = Bounds { max_descriptors: 2, max_entries: 3, max_value_bytes: 10_000 };
    const EMPTY_DESCRIPTOR: &[u8] = b"\x12\x00";
    /// A value that makes any message long enough to be counted.
    const LONG: usize = COUNTED_FROM_BYTES;

    fn request(descriptors: &[usize]) -> Vec<u8> {
        let entry = |_| wire::Entry { key: b"key".to_vec(), value: b"v".repeat(LONG) };
        let descriptor = |&entries: &usize| RateLimitDescriptor {
            entries: (0..entries).map(entry).collect(),
            limit: Some(wire::RateLimitOverride { requests_per_unit: 1, unit: 1, unit_multiplier: Some(2) }),
            hits_addend: Some(3),
            is_negative_hits: true,
        };
        let descriptors = descriptors.iter().map(descriptor).collect();
        RateLimitRequest { domain: b"d".repeat(LONG), descriptors, hits_addend: 7 }.encode_to_vec()
    }

    fn refusal(message: &[u8]) -> Option<String> {
        check(message, &BOUNDS).err().map(|error| error.to_string())
    }

    #[test]
    fn a_request_at_the_bounds_is_decoded_and_one_above_them_is_not() {
        assert_eq!(refusal(&request(&[3, 3])), None);
        let table = [
            (&[1, 1, 1][..], "3 descriptors, more than the 2 allowed"),
            (&[3, 4], "descriptor 1: 4 entries, more than the 3 allowed"),
            (&[4, 5], "descriptor 0: 4 entries, more than the 3 allowed"),
            (&[4, 1, 1], "3 descriptors, more than the 2 allowed"),
        ];
        for (descriptors, reason) in table {
            assert_eq!(refusal(&request(descriptors)).as_deref(), Some(reason));
        }
    }

    #[test]
    fn the_smallest_fields_are_refused_before_all_of_them_are_counted() {
        let many = |field: &[u8]| field.repeat(1_000_000);
        let in_field = |tag: u8, content: &[u8]| {
            let mut message = vec![tag];
            prost::encoding::encode_varint(content.len() as u64, &mut message);
            [&message, content].concat()
        };
        let reason = format!("more than {} fields in the message", BOUNDS.max_fields());
        for message in [
            many(EMPTY_DESCRIPTOR),
            in_field(0x12, &many(b"\x0a\x00")), // entries of one descriptor
            in_field(0x12, &in_field(0x0a, &many(b"\x0a\x00"))), // the key of one entry
            in_field(0x12, &in_field(0x12, &many(b"\x08\x01"))), // a number of one limit
            many(b"\x0a\x00"),                  // the domain
            many(b"\x78\x01"),                  // an unknown number
            many(b"\x7b\x7c"),                  // an unknown group
        ] {
            assert_eq!(refusal(&message).as_deref(), Some(reason.as_str()));
        }
    }

    #[test]
    fn unknown_fields_are_walked_over() {
        let unknown = b"\x78\x01\x79\x01\x02\x03\x04\x05\x06\x07\x08\x7d\x01\x02\x03\x04\x7a\x02\x12\x00\x7b\x12\x00\x12\x00\x12\x00\x7c";
        let message = [&request(&[3, 3])[..], unknown].concat();
        assert_eq!(refusal(&message), None, "the descriptors in the unknown group are none of the request");
        assert!(RateLimitRequest::decode(&message[..]).is_ok_and(|request| request.descriptors.len() == 2));
    }

    #[test]
    fn short_messages_are_not_counted() {
        assert_eq!(refusal(&EMPTY_DESCRIPTOR.repeat(LONG / 2 - 1)), None);
        assert!(refusal(&EMPTY_DESCRIPTOR.repeat(LONG / 2)).is_some());
    }

    /// Bytes of a request, some of them changed.
    fn nearly_a_request() -> impl Strategy<Value = Vec<u8>> {
        let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
        (prop::collection::vec(0..5_usize, 0..4), changes).prop_map(|(descriptors, changes)| {
            let mut message = request(&descriptors);
            for (place, byte) in changes {
                let place = place.index(message.len());
                message[place] = byte;
            }
            message
        })
    }

    proptest! {
        #[test]
        fn counting_and_decoding_agree(message in nearly_a_request()) {
            let decoded = RateLimitRequest::decode(&message[..]);
            match (check(&message, &BOUNDS), decoded) {
                (Ok(()), Ok(request)) => {
                    prop_assert!(request.descriptors.len() <= BOUNDS.max_descriptors);
                    let longest = request.descriptors.iter().map(|descriptor| descriptor.entries.len()).max();
                    prop_assert!(longest.unwrap_or(0) <= BOUNDS.max_entries);
                }
                (Err(DecisionCallError::Message(_)), Ok(request)) => {
                    prop_assert!(false, "{request:?} can be decoded, but not counted");
                }
                (Err(DecisionCallError::Request(error)), Ok(request)) => {
                    prop_assert!(engine::wire::RawRequest::from(request).validate(&BOUNDS).is_err(), "{error}");
                }
                (_, Err(_)) | (Err(_), Ok(_)) => {}
            }
        }
    }
}
