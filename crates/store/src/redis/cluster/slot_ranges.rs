//! Parses the reply to `CLUSTER SLOTS`: slot ranges with their primaries.

use std::ops::RangeInclusive;

use engine::StoreError;
use redis::Value;

use crate::redis::address::{Address, known_host};
use crate::redis::slot::SLOTS;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) slots: RangeInclusive<u16>,
    pub(super) primary: Address,
}

/// Parses the reply of the node at `sender`.
///
/// # Errors
/// [`StoreError::Malformed`] for any other reply; [`StoreError::Refused`] if the node reports no slots.
pub(super) fn parse_slot_ranges(reply: &Value, sender: &Address) -> Result<Vec<SlotRange>, StoreError> {
    let Value::Array(ranges) = reply else { return Err(malformed()) };
    if ranges.is_empty() {
        return Err(StoreError::Refused("the node reports no slots".to_owned()));
    }
    ranges.iter().map(|range| parse_range(range, sender).ok_or_else(malformed)).collect()
}

/// Parses a range: first slot, last slot, primary, replicas. A node is a host, a port and additional fields.
fn parse_range(range: &Value, sender: &Address) -> Option<SlotRange> {
    let Value::Array(parts) = range else { return None };
    let [first, last, Value::Array(primary), ..] = parts.as_slice() else { return None };
    let [host, port, ..] = primary.as_slice() else { return None };
    let host = match host {
        Value::Nil => "",
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => return None,
    };
    let port = parse_u16(port).filter(|&port| port > 0)?;
    let (first, last) = (parse_u16(first)?, parse_u16(last).filter(|&last| last < SLOTS)?);
    let primary = Address { host: known_host(host).to_owned(), port }.reported_by(sender);
    Some(SlotRange { slots: first..=last, primary })
}

fn parse_u16(value: &Value) -> Option<u16> {
    if let Value::Int(number) = value { u16::try_from(*number).ok() } else { None }
}

fn malformed() -> StoreError {
    StoreError::Malformed("not a reply to CLUSTER SLOTS".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_ranges_are_parsed_and_further_fields_are_ignored() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| {
            Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![text("ip"), text("x")])])
        };
        let range = |first, last, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let sender = Address { host: "seed".to_owned(), port: 1 };
        let reply = Value::Array(vec![
            range(0, 5, vec![node(text("a"), 7_000), node(text("b"), 7_001)]),
            range(6, 16_383, vec![node(Value::Nil, 7_002)]),
        ]);
        let primaries: Vec<_> = parse_slot_ranges(&reply, &sender)
            .expect("a good reply")
            .into_iter()
            .map(|range| (range.slots, range.primary.to_string()))
            .collect();
        assert_eq!(primaries, [(0..=5, "a:7000".to_owned()), (6..=16_383, "seed:7002".to_owned())]);

        assert!(matches!(parse_slot_ranges(&Value::Array(vec![]), &sender), Err(StoreError::Refused(_))));
        let node = || vec![node(text("a"), 7_000)];
        let malformed_replies = [
            Value::Nil,
            Value::Array(vec![Value::Int(3)]),
            Value::Array(vec![range(0, 5, vec![])]),
            Value::Array(vec![range(0, 16_384, node())]),
            Value::Array(vec![range(-1, 5, node())]),
            Value::Array(vec![range(0, 5, vec![Value::Array(vec![text("a"), Value::Int(0)])])]),
            Value::Array(vec![range(0, 5, vec![Value::Array(vec![Value::Int(1), Value::Int(7_000)])])]),
        ];
        for malformed in malformed_replies {
            assert!(
                matches!(parse_slot_ranges(&malformed, &sender), Err(StoreError::Malformed(_))),
                "{malformed:?}"
            );
        }
    }
}
