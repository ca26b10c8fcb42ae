//! Decodes an answer's messages into the resources that `rules` reads.

use std::iter::once;

use base::escaped;
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Any, Struct, Value};
use rules::RuleResource;
use serde_json::{Number, Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::pb::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use super::subscription::TYPE_URL;

/// An answer with this many undecodable resources is refused for them. An empty resource takes two bytes of the answer,
/// but its reason several hundred in memory.
const MAX_FAULTS: usize = 1_000;

/// Hash of a set of resources, to detect equal answers.
pub(super) type Fingerprint = [u8; 32];

/// Hashes an answer's type with its resources, which a server can send in any order.
pub(super) fn fingerprint(type_url: &str, resources: &[Any]) -> Fingerprint {
    let mut sorted: Vec<_> = resources.iter().map(|resource| (&resource.type_url, &resource.value)).collect();
    sorted.sort_unstable();
    let mut hash = Sha256::new();
    let parts = sorted.into_iter().flat_map(|(type_url, value)| [type_url.as_bytes(), value]);
    for part in once(type_url.as_bytes()).chain(parts) {
        // A 64-bit length holds every usize.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Decodes an answer's resources, each with the reason if it fails. Ends at [`MAX_FAULTS`] reasons.
pub(super) fn decode_all(resources: Vec<Any>) -> Vec<RuleResource> {
    let mut decoded = Vec::new();
    let mut faults = 0;
    for (index, resource) in resources.into_iter().enumerate() {
        let resource = decode(index, &resource);
        faults += usize::from(resource.rules.is_err());
        decoded.push(resource);
        if faults == MAX_FAULTS {
            break;
        }
    }
    decoded
}

fn decode(index: usize, resource: &Any) -> RuleResource {
    let unnamed = || format!("resource {}", index + 1);
    if resource.type_url != TYPE_URL {
        let found = escaped(resource.type_url.clone());
        let reason = format!("mismatched message type: got \"{found}\", want \"{TYPE_URL}\"");
        return RuleResource { name: unnamed().into(), rules: Err(reason) };
    }
    match RateLimitConfig::decode(resource.value.as_slice()) {
        Ok(config) => {
            let name = if config.name.is_empty() { unnamed() } else { escaped(config.name) };
            let descriptors = all(config.descriptors, descriptor);
            // Not `map`: for a file without a domain the reason is another.
            let rules = descriptors.map(|nodes| json!({ "domain": config.domain, "descriptors": nodes }));
            RuleResource { name: name.into(), rules }
        }
        Err(error) => {
            let reason = format!("cannot parse invalid wire-format data: {error}");
            RuleResource { name: unnamed().into(), rules: Err(reason) }
        }
    }
}

/// The decoder bounds the depth of messages, and so the recursion.
fn descriptor(descriptor: RateLimitDescriptor) -> Result<Json, String> {
    let metadata = descriptor.metadata.map(|fields| metadata(*fields)).transpose().map_err(|number| {
        let key = escaped(descriptor.key.clone());
        format!("error parsing metadata of key '{key}': {number} is not a finite number")
    })?;
    Ok(map([
        ("key", descriptor.key.into()),
        ("value", descriptor.value.into()),
        ("rate_limit", descriptor.rate_limit.map(|policy| limit(*policy)).into()),
        ("descriptors", all(descriptor.descriptors, self::descriptor)?),
        ("shadow_mode", descriptor.shadow_mode.into()),
        ("quota_mode", descriptor.quota_mode.into()),
        ("detailed_metric", descriptor.detailed_metric.into()),
        ("metadata", metadata.into()),
    ]))
}

fn limit(policy: RateLimitPolicy) -> Json {
    let replaces = policy.replaces.into_iter().map(|replaced| map([("name", replaced.name.into())]));
    map([
        ("unit", unit(policy.unit).into()),
        ("requests_per_unit", policy.requests_per_unit.into()),
        ("unlimited", policy.unlimited.into()),
        ("name", policy.name.into()),
        ("replaces", replaces.collect()),
    ])
}

/// The name, or the number if it is unknown.
fn unit(number: i32) -> String {
    RateLimitUnit::try_from(number).map_or_else(|_| number.to_string(), |unit| unit.as_str_name().to_owned())
}

/// A map of a rule file, without fields that are absent from the message: they would need more memory than the message.
fn map<const N: usize>(fields: [(&str, Json); N]) -> Json {
    let is_set = |value: &Json| match value {
        Json::Null | Json::Bool(false) => false,
        Json::String(text) => !text.is_empty(),
        Json::Array(elements) => !elements.is_empty(),
        Json::Bool(true) | Json::Number(_) | Json::Object(_) => true,
    };
    fields.into_iter().filter(|(_, value)| is_set(value)).collect()
}

fn all<T, E>(parts: Vec<T>, read: impl Fn(T) -> Result<Json, E>) -> Result<Json, E> {
    parts.into_iter().map(read).collect::<Result<Vec<_>, _>>().map(Json::from)
}

/// Returns a number that is not finite as the error.
fn metadata(fields: Struct) -> Result<Json, f64> {
    let fields = fields.fields.into_iter().map(|(name, value)| Ok((name, metadata_value(value)?)));
    fields.collect::<Result<_, _>>().map(Json::Object)
}

fn metadata_value(value: Value) -> Result<Json, f64> {
    Ok(match value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(flag)) => flag.into(),
        Some(Kind::NumberValue(number)) => Number::from_f64(number).ok_or(number)?.into(),
        Some(Kind::StringValue(text)) => text.into(),
        Some(Kind::ListValue(list)) => all(list.values, metadata_value)?,
        Some(Kind::StructValue(fields)) => metadata(fields)?,
    })
}

#[cfg(test)]
mod tests {
    use engine::Unit;

    use super::*;

    fn any(config: &RateLimitConfig) -> Any {
        Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() }
    }

    #[test]
    fn the_order_of_an_answer_does_not_change_its_fingerprint() {
        let [a, b] = ["a", "b"]
            .map(|name| any(&RateLimitConfig { name: name.to_owned(), ..RateLimitConfig::default() }));
        let both = fingerprint(TYPE_URL, &[a.clone(), b.clone()]);
        assert_eq!(fingerprint(TYPE_URL, &[b.clone(), a.clone()]), both);
        assert_ne!(fingerprint("another type", &[a.clone(), b]), both);
        assert_ne!(fingerprint(TYPE_URL, &[a]), both);
    }

    #[test]
    fn a_resource_without_a_name_is_known_by_its_place() {
        let decoded = decode(4, &any(&RateLimitConfig { domain: "d".to_owned(), ..Default::default() }));
        assert_eq!(&*decoded.name, "resource 5");
        assert_eq!(decoded.rules, Ok(json!({ "domain": "d", "descriptors": [] })));
    }

    #[test]
    fn every_unit_is_known_and_others_are_named_by_their_number() {
        let units = (0..9).map(|number| unit(number).parse::<Unit>().map_err(|_| unit(number)));
        let named = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year, Unit::Week];
        let mut expected = vec![Err("UNKNOWN".to_owned())];
        expected.extend(named.map(Ok));
        expected.push(Err("8".to_owned()));
        assert_eq!(units.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused() {
        let rules = |number| {
            let value = Value { kind: Some(Kind::NumberValue(number)) };
            let fields = Struct { fields: [("n".to_owned(), value)].into() };
            let (key, metadata) = ("k\n".to_owned(), Some(Box::new(fields)));
            let node = RateLimitDescriptor { key, metadata, ..Default::default() };
            decode(0, &any(&RateLimitConfig { descriptors: vec![node], ..Default::default() })).rules
        };
        let descriptors = json!([{ "key": "k\n", "metadata": { "n": 5.0 } }]);
        assert_eq!(rules(5.0), Ok(json!({ "domain": "", "descriptors": descriptors })));
        for (number, text) in [(f64::NAN, "NaN"), (f64::NEG_INFINITY, "-inf")] {
            let reason = format!("error parsing metadata of key 'k\\n': {text} is not a finite number");
            assert_eq!(rules(number), Err(reason));
        }
    }
}
