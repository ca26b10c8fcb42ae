//! Decodes an answer's messages into the resources that `rules` reads.

use std::iter::once;

use base::escaped;
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Any, Struct, Value};
use rules::yaml::Node;
use rules::{RuleResource, shortened};

use super::pb::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use super::subscription::TYPE_URL;

/// An answer with this many undecodable resources is refused for them. An empty resource takes two bytes of the answer,
/// but its reason several hundred in memory.
const MAX_FAULTS: usize = 1_000;

/// The rules of one domain.
pub type Resource = RuleResource<RateLimitConfig>;

/// Hash of a set of resources, to detect equal answers.
pub(super) type Fingerprint = [u8; 32];

/// Hashes an answer's type with its resources, which a server can send in any order.
pub(super) fn fingerprint(type_url: &str, resources: &[Any]) -> Fingerprint {
    let mut sorted: Vec<_> = resources.iter().map(|resource| (&resource.type_url, &resource.value)).collect();
    sorted.sort_unstable();
    let parts = sorted.into_iter().flat_map(|(type_url, value)| [type_url.as_bytes(), value]);
    base::sha256(once(type_url.as_bytes()).chain(parts))
}

/// Decodes an answer's resources, each with the reason if it fails. Ends at [`MAX_FAULTS`] reasons.
pub(super) fn decode_all(resources: Vec<Any>) -> Vec<Resource> {
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

fn decode(index: usize, resource: &Any) -> Resource {
    let rules = if resource.type_url == TYPE_URL {
        RateLimitConfig::decode(resource.value.as_slice())
            .map_err(|error| format!("cannot parse invalid wire-format data: {error}"))
    } else {
        let found = escaped(resource.type_url.clone());
        Err(format!("mismatched message type: got \"{found}\", want \"{TYPE_URL}\""))
    };
    let name = rules.as_ref().map_or("", |config| &config.name);
    let name =
        if name.is_empty() { format!("resource {}", index + 1) } else { shortened(escaped(name.to_owned())) };
    RuleResource { name: name.into(), rules }
}

impl From<RateLimitConfig> for Node {
    fn from(config: RateLimitConfig) -> Self {
        // Not `map`: for a file without a domain the reason is another.
        let descriptors = Self::list(config.descriptors.into_iter().map(descriptor));
        Self::map([("domain", Self::text(&config.domain)), ("descriptors", descriptors)])
    }
}

/// The decoder bounds the depth of messages, and so the recursion.
fn descriptor(descriptor: RateLimitDescriptor) -> Node {
    map([
        ("key", text(&descriptor.key)),
        ("value", text(&descriptor.value)),
        ("rate_limit", descriptor.rate_limit.map(|policy| limit(*policy))),
        ("descriptors", list(descriptor.descriptors, self::descriptor)),
        ("shadow_mode", flag(descriptor.shadow_mode)),
        ("quota_mode", flag(descriptor.quota_mode)),
        ("detailed_metric", flag(descriptor.detailed_metric)),
        ("metadata", descriptor.metadata.as_deref().map(metadata)),
    ])
}

fn limit(policy: RateLimitPolicy) -> Node {
    map([
        ("unit", text(&unit(policy.unit))),
        ("requests_per_unit", Some(Node::plain(&policy.requests_per_unit.to_string()))),
        ("unlimited", flag(policy.unlimited)),
        ("name", text(&policy.name)),
        ("replaces", list(policy.replaces, |replaced| map([("name", text(&replaced.name))]))),
    ])
}

/// The name, or the number if it is unknown.
fn unit(number: i32) -> String {
    RateLimitUnit::try_from(number).map_or_else(|_| number.to_string(), |unit| unit.as_str_name().to_owned())
}

/// A map of a rule file, without fields that are absent from the message: they would need more memory than the message.
fn map<const N: usize>(fields: [(&str, Option<Node>); N]) -> Node {
    Node::map(fields.into_iter().filter_map(|(name, value)| Some((name, value?))))
}

fn text(text: &str) -> Option<Node> {
    (!text.is_empty()).then(|| Node::text(text))
}

fn flag(is_set: bool) -> Option<Node> {
    is_set.then(|| Node::plain("true"))
}

fn list<T>(parts: Vec<T>, read: impl Fn(T) -> Node) -> Option<Node> {
    (!parts.is_empty()).then(|| Node::list(parts.into_iter().map(read)))
}

fn metadata(fields: &Struct) -> Node {
    Node::map(fields.fields.iter().map(|(name, value)| (name, metadata_value(value))))
}

fn metadata_value(value: &Value) -> Node {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Node::plain("null"),
        Some(Kind::BoolValue(flag)) => Node::plain(&flag.to_string()),
        // Spelt as in YAML, so that the reader refuses a number that is not finite.
        Some(Kind::NumberValue(number)) => {
            Node::plain(&format!("{number:?}").replace("NaN", ".nan").replace("inf", ".inf"))
        }
        Some(Kind::StringValue(text)) => Node::text(text),
        Some(Kind::ListValue(list)) => Node::list(list.values.iter().map(metadata_value)),
        Some(Kind::StructValue(fields)) => metadata(fields),
    }
}

#[cfg(test)]
mod tests {
    use engine::{Metadata, Unit, ValueHashing};

    use super::*;
    use crate::settings::Settings;

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
        assert_eq!(decoded.rules.map(|config| config.domain).as_deref(), Ok("d"));
    }

    #[test]
    fn a_long_name_is_shortened() {
        let decoded = decode(0, &any(&RateLimitConfig { name: "n".repeat(1 << 20), ..Default::default() }));
        assert!(decoded.name.len() < 1_100, "{}", decoded.name.len());
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
        let load = |number| {
            let value = Value { kind: Some(Kind::NumberValue(number)) };
            let fields = Struct { fields: [("n".to_owned(), value)].into() };
            let (key, metadata) = ("k".to_owned(), Some(Box::new(fields)));
            let limit = RateLimitPolicy { unit: 1, requests_per_unit: 5, ..Default::default() };
            let rate_limit = Some(Box::new(limit));
            let node = RateLimitDescriptor { key, metadata, rate_limit, ..Default::default() };
            let config =
                RateLimitConfig { domain: "d".to_owned(), descriptors: vec![node], ..Default::default() };
            let options = crate::app::load_options(&Settings::default(), ValueHashing::NONE);
            rules::load_resources(vec![decode(0, &any(&config))], &options)
        };
        for number in [5.0, -0.0, 1e300, f64::MIN_POSITIVE] {
            let specs = load(number).expect("valid rules").specs;
            let rule = specs[0].descriptors[0].rule.as_ref();
            let expected = Metadata::Map([("n".to_owned(), Metadata::Number(number))].into());
            assert_eq!(rule.and_then(|rule| rule.metadata.as_ref()), Some(&expected));
        }
        for (number, text) in [(f64::NAN, ".nan"), (f64::INFINITY, ".inf"), (f64::NEG_INFINITY, "-.inf")] {
            let problems = load(number).expect_err("refused").to_string();
            let reason = format!("error parsing metadata: {text} is not a finite number");
            assert_eq!(problems, format!("resource 1: {reason} (at descriptors[0].metadata.n)"));
        }
    }
}
