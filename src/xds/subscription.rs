//! Builds the client's requests, with its identity and the version that it has accepted. Pure.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{Struct, Value};

use super::options::NodeIdentity;
use super::pb::envoy::config::core::v3::Node;
use super::pb::envoy::service::discovery::v3::DiscoveryRequest;
use super::pb::google::rpc::Status;

pub(super) const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Maximum bytes of a reason. A control plane logs it, or shows it in a resource's status.
const MAX_REASON_BYTES: usize = 4_096;

#[derive(Debug)]
pub(super) struct Subscription {
    node: Node,
    /// Empty before the first accepted answer.
    accepted_version: String,
}

impl Subscription {
    pub fn new(identity: &NodeIdentity) -> Self {
        Self { node: node(identity), accepted_version: String::new() }
    }

    /// Returns the first request of a stream. A server without a newer version does not answer it.
    pub fn first_request(&self) -> DiscoveryRequest {
        self.request(String::new())
    }

    /// Accepts an answer, and acknowledges it.
    pub fn accept(&mut self, version: &str, nonce: String) -> DiscoveryRequest {
        version.clone_into(&mut self.accepted_version);
        self.request(nonce)
    }

    /// Refuses an answer, with the version that stays current.
    pub fn refuse(&self, nonce: String, reason: &str) -> DiscoveryRequest {
        let end = reason.floor_char_boundary(MAX_REASON_BYTES);
        let error = Status { message: reason[..end].to_owned(), ..Status::default() };
        DiscoveryRequest { error_detail: Some(error), ..self.request(nonce) }
    }

    fn request(&self, nonce: String) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: self.accepted_version.clone(),
            node: Some(self.node.clone()),
            resource_names: Vec::new(),
            type_url: TYPE_URL.to_owned(),
            response_nonce: nonce,
            error_detail: None,
        }
    }
}

fn node(identity: &NodeIdentity) -> Node {
    let text = |value: &String| Value { kind: Some(Kind::StringValue(value.clone())) };
    let fields: BTreeMap<_, _> =
        identity.metadata.iter().map(|(key, value)| (key.clone(), text(value))).collect();
    let metadata = (!fields.is_empty()).then_some(Struct { fields });
    Node { id: identity.id.clone(), metadata }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_and_a_new_stream_name_the_last_accepted_version() {
        let identity = NodeIdentity { id: "node".to_owned(), metadata: BTreeMap::new() };
        let mut subscription = Subscription::new(&identity);
        let first = subscription.first_request();
        assert_eq!((first.version_info.as_str(), first.response_nonce.as_str()), ("", ""));
        assert_eq!((first.type_url.as_str(), first.resource_names.len()), (TYPE_URL, 0));

        let accepted = subscription.accept("1", "n1".to_owned());
        assert_eq!((accepted.version_info.as_str(), accepted.response_nonce.as_str()), ("1", "n1"));
        assert_eq!(accepted.error_detail, None);
        let refused = subscription.refuse("n2".to_owned(), "bad");
        assert_eq!((refused.version_info.as_str(), refused.response_nonce.as_str()), ("1", "n2"));
        assert_eq!(
            refused.error_detail.map(|error| (error.code, error.message)),
            Some((0, "bad".to_owned()))
        );
        let again = subscription.first_request();
        assert_eq!((again.version_info.as_str(), again.response_nonce.as_str()), ("1", ""));
    }

    #[test]
    fn a_reason_is_bounded_between_two_characters() {
        let identity = NodeIdentity { id: "node".to_owned(), metadata: BTreeMap::new() };
        let refused = Subscription::new(&identity).refuse(String::new(), &"é".repeat(5_000));
        let reason = refused.error_detail.expect("a refusal").message;
        assert_eq!(reason.len(), MAX_REASON_BYTES);
        let refused = Subscription::new(&identity).refuse(String::new(), &format!("a{}", "é".repeat(5_000)));
        assert_eq!(refused.error_detail.expect("a refusal").message.len(), MAX_REASON_BYTES - 1);
    }
}
