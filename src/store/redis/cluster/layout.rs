//! Which node has which slot, as `CLUSTER SLOTS` reports it. Knows nothing of connections.

use std::ops::RangeInclusive;

use redis::Value;

use crate::engine::StoreError;
use crate::store::redis::address::{Address, SLOTS, known_host};

/// Slots and the primary that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) slots: RangeInclusive<u16>,
    pub(super) primary: Address,
}

/// Reads the answer of `teller` to `CLUSTER SLOTS`.
///
/// # Errors
/// [`StoreError::Malformed`] where it is none; [`StoreError::Refused`] where the node knows of no slots.
pub(super) fn layout(answer: &Value, teller: &Address) -> Result<Vec<Range>, StoreError> {
    let Value::Array(ranges) = answer else { return Err(malformed()) };
    if ranges.is_empty() {
        return Err(StoreError::Refused("the node knows of no slots".to_owned()));
    }
    ranges.iter().map(|told| range(told, teller).ok_or_else(malformed)).collect()
}

/// First slot, last slot, the primary and then the replicas, each as host, port and more.
fn range(told: &Value, teller: &Address) -> Option<Range> {
    let Value::Array(parts) = told else { return None };
    let [first, last, Value::Array(primary), ..] = parts.as_slice() else { return None };
    let [host, port, ..] = primary.as_slice() else { return None };
    let host = match host {
        Value::Nil => "",
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => return None,
    };
    let port = number(port).filter(|&port| port > 0)?;
    let (first, last) = (number(first)?, number(last).filter(|&last| last < SLOTS)?);
    let primary = Address { host: known_host(host).to_owned(), port }.reported_by(teller);
    Some(Range { slots: first..=last, primary })
}

fn number(value: &Value) -> Option<u16> {
    if let Value::Int(number) = value { u16::try_from(*number).ok() } else { None }
}

fn malformed() -> StoreError {
    StoreError::Malformed("no answer to CLUSTER SLOTS".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_read_whatever_more_the_nodes_tell() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| {
            Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![text("ip"), text("x")])])
        };
        let range = |first, last, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let teller = Address { host: "seed".to_owned(), port: 1 };
        let answer = Value::Array(vec![
            range(0, 5, vec![node(text("a"), 7_000), node(text("b"), 7_001)]),
            range(6, 16_383, vec![node(Value::Nil, 7_002)]),
        ]);
        let primaries: Vec<_> = layout(&answer, &teller)
            .expect("a good answer")
            .into_iter()
            .map(|range| (range.slots, range.primary.to_string()))
            .collect();
        assert_eq!(primaries, [(0..=5, "a:7000".to_owned()), (6..=16_383, "seed:7002".to_owned())]);

        assert!(matches!(layout(&Value::Array(vec![]), &teller), Err(StoreError::Refused(_))));
        for nonsense in
            [Value::Nil, Value::Array(vec![Value::Int(3)]), Value::Array(vec![range(0, 16_384, vec![])])]
        {
            assert!(matches!(layout(&nonsense, &teller), Err(StoreError::Malformed(_))), "{nonsense:?}");
        }
    }
}
