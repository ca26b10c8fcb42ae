//! Encodes requests and decodes answers. Counts what an answer contains before it is decoded: an empty resource takes
//! two bytes of the message and hundreds in memory, so a message within `max_message_bytes` could take gigabytes.

use prost::Message as _;
use prost::bytes::{Buf as _, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use super::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use crate::protobuf::Fields;

/// The most resources and descriptors of an answer, together. Each takes up to a kilobyte while rules are loaded.
const MAX_NODES: usize = 250_000;
/// The most fields of an answer: a usual descriptor with its limit has eight.
const MAX_FIELDS: usize = 10 * MAX_NODES;
/// Deeper messages are not counted: the decoder refuses a depth of 100.
const MAX_DEPTH: usize = 128;

/// The codec of the discovery service.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiscoveryCodec;

#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerDecoder;

impl Codec for DiscoveryCodec {
    type Encode = DiscoveryRequest;
    type Decode = DiscoveryResponse;
    type Encoder = ProstEncoder<DiscoveryRequest>;
    type Decoder = AnswerDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        AnswerDecoder
    }
}

impl Decoder for AnswerDecoder {
    type Item = DiscoveryResponse;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<DiscoveryResponse>, Status> {
        decode(source.copy_to_bytes(source.remaining())).map(Some)
    }
}

fn decode(message: Bytes) -> Result<DiscoveryResponse, Status> {
    let mut count = AnswerCount::default();
    count.add(&message, Kind::Answer, 0);
    // The code of a message above `max_message_bytes`.
    if count.nodes > MAX_NODES {
        return Err(Status::out_of_range(format!(
            "the answer has more than {MAX_NODES} resources and descriptors"
        )));
    }
    if count.fields > MAX_FIELDS {
        return Err(Status::out_of_range(format!("the answer has more than {MAX_FIELDS} fields")));
    }
    DiscoveryResponse::decode(message).map_err(|error| Status::internal(error.to_string()))
}

/// The messages of an answer that contain other messages.
#[derive(Clone, Copy)]
enum Kind {
    Answer,
    /// `google.protobuf.Any` around a configuration.
    Resource,
    Config,
    Descriptor,
    Limit,
    /// The metadata: `google.protobuf.Struct`, an entry of its map, `Value`, and `ListValue`.
    Struct,
    StructEntry,
    Value,
    List,
    /// Contains no message.
    Leaf,
}

impl Kind {
    /// The kind of the message in a field; `None` for any other field.
    fn of_field(self, number: u64) -> Option<Self> {
        Some(match (self, number) {
            (Self::Answer, 2) => Self::Resource,
            (Self::Resource, 2) => Self::Config,
            (Self::Config, 3) | (Self::Descriptor, 4) => Self::Descriptor,
            (Self::Descriptor, 3) => Self::Limit,
            (Self::Descriptor, 8) | (Self::Value, 5) => Self::Struct,
            (Self::Limit, 5) => Self::Leaf,
            (Self::Struct, 1) => Self::StructEntry,
            (Self::StructEntry, 2) | (Self::List, 1) => Self::Value,
            (Self::Value, 6) => Self::List,
            _ => return None,
        })
    }
}

#[derive(Default)]
struct AnswerCount {
    /// Resources and descriptors.
    nodes: usize,
    fields: usize,
}

impl AnswerCount {
    /// Adds the fields of a message, until too many are counted or the rest cannot be read: the decoder refuses it.
    fn add(&mut self, message: &[u8], kind: Kind, depth: usize) {
        let mut fields = Fields::of_message(message);
        while self.nodes <= MAX_NODES
            && self.fields <= MAX_FIELDS
            && let Ok(Some(field)) = fields.next_field()
        {
            self.fields += 1;
            let Some(inner) = kind.of_field(field.number).filter(|_| depth < MAX_DEPTH) else { continue };
            self.nodes += usize::from(matches!(inner, Kind::Resource | Kind::Descriptor));
            self.add(field.content, inner, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::encoding::encode_varint;

    use super::*;
    use crate::xds::pb::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy,
    };

    /// A field of this number (below 16) with this content.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut encoded = vec![number << 3 | 2];
        encode_varint(content.len() as u64, &mut encoded);
        [&encoded, content].concat()
    }

    fn refusal(message: Vec<u8>) -> Option<String> {
        decode(message.into()).err().map(|status| status.message().to_owned())
    }

    /// An answer with a configuration of these bytes.
    fn answer(config: &[u8]) -> Vec<u8> {
        field(2, &field(2, config))
    }

    #[test]
    fn an_answer_is_counted_before_it_is_decoded() {
        let nodes = || Some(format!("the answer has more than {MAX_NODES} resources and descriptors"));
        let fields = || Some(format!("the answer has more than {MAX_FIELDS} fields"));
        let empty = [2_u8 << 3 | 2, 0];
        assert_eq!(refusal(empty.repeat(MAX_NODES)), None);
        assert_eq!(refusal(empty.repeat(MAX_NODES + 1)), nodes());
        let descriptors = |count| [3_u8 << 3 | 2, 0].repeat(count);
        assert_eq!(refusal(answer(&descriptors(MAX_NODES - 1))), None);
        assert_eq!(refusal(answer(&descriptors(MAX_NODES))), nodes());
        let nested = |count| field(3, &[4_u8 << 3 | 2, 0].repeat(count));
        assert_eq!(refusal(answer(&nested(MAX_NODES))), nodes());
        let limit = field(3, &field(3, &[5_u8 << 3 | 2, 0].repeat(MAX_FIELDS)));
        assert_eq!(refusal(answer(&limit)), fields(), "names of replaced limits");
        let list = field(6, &[1_u8 << 3 | 2, 0].repeat(MAX_FIELDS));
        let metadata = field(3, &field(8, &field(1, &field(2, &list))));
        assert_eq!(refusal(answer(&metadata)), fields(), "a list in the metadata");
        assert_eq!(refusal([15_u8 << 3, 0].repeat(MAX_FIELDS + 1)), fields(), "unknown fields");
    }

    #[test]
    fn usual_rules_of_many_descriptors_have_room() {
        let descriptor = RateLimitDescriptor {
            key: "key".to_owned(),
            value: "value".to_owned(),
            rate_limit: Some(RateLimitPolicy { unit: 1, requests_per_unit: 5, ..Default::default() }),
            ..Default::default()
        };
        let config = RateLimitConfig {
            name: "n".to_owned(),
            domain: "d".to_owned(),
            descriptors: vec![descriptor; MAX_NODES - 1],
        };
        assert_eq!(refusal(answer(&config.encode_to_vec())), None);
    }

    #[test]
    fn a_message_that_cannot_be_read_is_refused_by_the_decoder() {
        let refused = refusal(b"\x12\x7f".to_vec()).expect("a truncated message");
        assert!(refused.contains("decode"), "{refused}");
    }
}
