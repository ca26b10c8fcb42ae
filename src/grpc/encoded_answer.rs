//! An answer in protobuf. The usual one, a code and a status for each descriptor, is written without the structs of
//! prost, which would be filled, measured and encoded in three passes: 640 instructions instead of 1,050 for one
//! descriptor (callgrind). An answer with headers or metadata is encoded by prost.

use engine::wire::WireUnit;
use engine::{Code, Limit};
use hyper::body::Bytes;
use prost::Message;
use prost::bytes::{BufMut as _, BytesMut};
use smallvec::SmallVec;

use super::message::PREFIX_BYTES;
use super::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::decide::answer::DescriptorStatus;
use crate::decide::headers::printable;
use crate::decide::{CallerAnswer, DecisionAnswer};

/// A message with its prefix.
#[derive(Debug)]
pub(super) struct EncodedAnswer(pub(super) Bytes);

/// An answer as it is written: two statuses fit without an allocation.
type Written = SmallVec<[u8; 128]>;

/// The numbers of fields, by message.
mod field {
    /// `RateLimitResponse`
    pub(super) const OVERALL_CODE: u8 = 1;
    pub(super) const STATUSES: u8 = 2;
    /// `DescriptorStatus`
    pub(super) const CODE: u8 = 1;
    pub(super) const CURRENT_LIMIT: u8 = 2;
    pub(super) const LIMIT_REMAINING: u8 = 3;
    pub(super) const DURATION_UNTIL_RESET: u8 = 4;
    /// `RateLimit`
    pub(super) const REQUESTS_PER_UNIT: u8 = 1;
    pub(super) const UNIT: u8 = 2;
    pub(super) const NAME: u8 = 3;
    pub(super) const UNIT_MULTIPLIER: u8 = 4;
    /// `google.protobuf.Duration`
    pub(super) const SECONDS: u8 = 1;
    pub(super) const NANOS: u8 = 2;
    /// `google.protobuf.UInt32Value`
    pub(super) const VALUE: u8 = 1;
}

impl From<DecisionAnswer<'_>> for EncodedAnswer {
    fn from(answer: DecisionAnswer<'_>) -> Self {
        let usual =
            if answer.is_plain() { usual_answer(answer.decision.overall, answer.statuses()) } else { None };
        usual.unwrap_or_else(|| encode(&RateLimitResponse::from(answer)))
    }
}

impl CallerAnswer for EncodedAnswer {
    fn denial() -> Self {
        encode(&RateLimitResponse::denial())
    }
}

fn encode(answer: &impl Message) -> EncodedAnswer {
    let length = answer.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    // Not compressed.
    bytes.put_u8(0);
    // An answer has some hundred bytes for each descriptor; the request had to fit in less.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    answer.encode_raw(&mut bytes);
    EncodedAnswer(bytes.freeze())
}

/// `None` if a part is longer than 127 bytes, as with the long name of a limit.
fn usual_answer<'d>(
    overall: Code,
    statuses: impl Iterator<Item = DescriptorStatus<'d>>,
) -> Option<EncodedAnswer> {
    // Not compressed; the length follows.
    let mut out = Written::from_slice(&[0; PREFIX_BYTES]);
    put_number(&mut out, field::OVERALL_CODE, code_number(overall));
    for status in statuses {
        put_message(&mut out, field::STATUSES, |out| put_status(out, &status))?;
    }
    let length = u32::try_from(out.len() - PREFIX_BYTES).ok()?;
    out[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    Some(EncodedAnswer(Bytes::copy_from_slice(&out)))
}

fn put_status(out: &mut Written, status: &DescriptorStatus<'_>) -> Option<()> {
    put_number(out, field::CODE, code_number(status.code));
    if let Some(limit) = status.limit {
        put_message(out, field::CURRENT_LIMIT, |out| put_limit(out, limit))?;
    }
    put_number(out, field::LIMIT_REMAINING, status.remaining.into());
    if let Some(wait) = status.until_reset {
        put_message(out, field::DURATION_UNTIL_RESET, |out| {
            put_number(out, field::SECONDS, wait.as_secs());
            put_number(out, field::NANOS, wait.subsec_nanos().into());
            Some(())
        })?;
    }
    Some(())
}

fn put_limit(out: &mut Written, limit: &Limit) -> Option<()> {
    let period = limit.spec.period;
    put_number(out, field::REQUESTS_PER_UNIT, limit.spec.requests_per_unit.into());
    put_number(out, field::UNIT, u64::try_from(WireUnit::from(period.unit()).number).ok()?);
    if let Some(name) = limit.spec.name.as_deref().filter(|name| !name.is_empty()) {
        // Envoy writes the name into a header, between quotes, without escaping it.
        put_message(out, field::NAME, |out| {
            out.extend_from_slice(printable(name).as_bytes());
            Some(())
        })?;
    }
    if period.multiplier() != 1 {
        put_message(out, field::UNIT_MULTIPLIER, |out| {
            put_number(out, field::VALUE, period.multiplier().into());
            Some(())
        })?;
    }
    Some(())
}

/// A number in groups of seven bits, the lowest first. 0 is not written.
fn put_number(out: &mut Written, field: u8, mut number: u64) {
    if number == 0 {
        return;
    }
    out.push(field << 3);
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// A message or text, written by `put`, with its length before it.
fn put_message(out: &mut Written, field: u8, put: impl FnOnce(&mut Written) -> Option<()>) -> Option<()> {
    out.push(field << 3 | 2);
    let start = out.len();
    out.push(0);
    put(out)?;
    out[start] = u8::try_from(out.len() - start - 1).ok().filter(|length| *length < 0x80)?;
    Some(())
}

fn code_number(code: Code) -> u64 {
    match code {
        Code::Ok => 1,
        Code::OverLimit => 2,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::grpc::pb::envoy::service::ratelimit::v3::rate_limit_response as wire;
    use engine::{Algorithm, LimitSpec, Period, Unit};

    fn any_code() -> impl Strategy<Value = Code> {
        prop_oneof![Just(Code::Ok), Just(Code::OverLimit)]
    }

    fn any_limit() -> impl Strategy<Value = Limit> {
        let unit = prop::sample::select(Unit::ALL.to_vec());
        let name = prop::option::of(".{0,40}");
        (unit, 1..200_u32, 1..u32::MAX, name).prop_filter_map("a period", |(unit, count, requests, name)| {
            let period = Period::new(unit, count)?;
            let spec = LimitSpec { name, ..LimitSpec::new(Algorithm::FixedWindow, requests, period) };
            Limit::new(spec).ok()
        })
    }

    type AnyStatus = (Code, Option<Limit>, u32, Option<(u64, u32)>);

    fn any_status() -> impl Strategy<Value = AnyStatus> {
        let wait = prop::option::of((0..40_000_000_u64, 0..1_000_000_000_u32));
        (any_code(), prop::option::of(any_limit()), any::<u32>(), wait)
    }

    fn status((code, limit, remaining, wait): &AnyStatus) -> DescriptorStatus<'_> {
        let until_reset = wait.map(|(seconds, nanos)| Duration::new(seconds, nanos));
        DescriptorStatus { code: *code, limit: limit.as_ref(), remaining: *remaining, until_reset }
    }

    proptest! {
        #[test]
        fn a_usual_answer_is_written_as_prost_writes_it(
            overall in any_code(),
            statuses in prop::collection::vec(any_status(), 0..5),
        ) {
            let of_prost = RateLimitResponse {
                overall_code: i32::try_from(code_number(overall)).expect("1 or 2"),
                statuses: statuses.iter().map(status).map(wire::DescriptorStatus::from).collect(),
                ..RateLimitResponse::default()
            };
            let longest = of_prost.statuses.iter().map(Message::encoded_len).max().unwrap_or(0);
            let written = usual_answer(overall, statuses.iter().map(status));
            prop_assert_eq!(written.is_some(), longest < 0x80);
            if let Some(EncodedAnswer(written)) = written {
                prop_assert_eq!(written, encode(&of_prost).0);
            }
        }
    }
}
