//! Decodes an answer's messages into the resources that `rules` reads.

use std::iter::once;

use base::escaped;
use engine::{Metadata, Unit};
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Any, Struct, Value};
use rules::{ResourceDescriptor, ResourceLimit, ResourceRules, RuleResource};
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
            let descriptors = config.descriptors.into_iter().map(descriptor).collect();
            let rules = ResourceRules { domain: config.domain, descriptors };
            RuleResource { name: name.into(), rules: Ok(rules) }
        }
        Err(error) => {
            let reason = format!("cannot parse invalid wire-format data: {error}");
            RuleResource { name: unnamed().into(), rules: Err(reason) }
        }
    }
}

/// The decoder bounds the depth of messages, and so the recursion.
fn descriptor(descriptor: RateLimitDescriptor) -> ResourceDescriptor {
    ResourceDescriptor {
        key: descriptor.key,
        value: descriptor.value,
        rate_limit: descriptor.rate_limit.map(|policy| Box::new(limit(*policy))),
        descriptors: descriptor.descriptors.into_iter().map(self::descriptor).collect(),
        shadow_mode: descriptor.shadow_mode,
        quota_mode: descriptor.quota_mode,
        detailed_metric: descriptor.detailed_metric,
        metadata: descriptor.metadata.map(|fields| metadata(*fields)),
    }
}

fn limit(policy: RateLimitPolicy) -> ResourceLimit {
    ResourceLimit {
        unit: unit(policy.unit),
        requests_per_unit: policy.requests_per_unit,
        unlimited: policy.unlimited,
        name: policy.name,
        replaces: policy.replaces.into_iter().map(|replaced| replaced.name).collect(),
    }
}

fn unit(number: i32) -> Result<Unit, String> {
    let unit = RateLimitUnit::try_from(number).map_err(|_| number.to_string())?;
    Ok(match unit {
        RateLimitUnit::Unknown => return Err(unit.as_str_name().to_owned()),
        RateLimitUnit::Second => Unit::Second,
        RateLimitUnit::Minute => Unit::Minute,
        RateLimitUnit::Hour => Unit::Hour,
        RateLimitUnit::Day => Unit::Day,
        RateLimitUnit::Week => Unit::Week,
        RateLimitUnit::Month => Unit::Month,
        RateLimitUnit::Year => Unit::Year,
    })
}

fn metadata(fields: Struct) -> Metadata {
    Metadata::Map(fields.fields.into_iter().map(|(name, value)| (name, metadata_value(value))).collect())
}

fn metadata_value(value: Value) -> Metadata {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Metadata::Null,
        Some(Kind::BoolValue(flag)) => Metadata::Bool(flag),
        Some(Kind::NumberValue(number)) => Metadata::Number(number),
        Some(Kind::StringValue(text)) => Metadata::Text(text),
        Some(Kind::ListValue(list)) => Metadata::List(list.values.into_iter().map(metadata_value).collect()),
        Some(Kind::StructValue(fields)) => metadata(fields),
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(decoded.rules.map(|rules| rules.domain), Ok("d".to_owned()));
    }

    #[test]
    fn every_unit_is_known_and_others_are_named_by_their_number() {
        let units: Vec<_> = (0..9).map(unit).collect();
        let named = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year, Unit::Week];
        let mut expected = vec![Err("UNKNOWN".to_owned())];
        expected.extend(named.map(Ok));
        expected.push(Err("8".to_owned()));
        assert_eq!(units, expected);
    }
}
