//! The recorded snapshots of `tests/data/xds/snapshots.json`, one after the other on one stream: the requests, and the
//! rules in force after each.

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::google::protobuf::value::Kind;
use serde_json::Value;

use super::resource::{from_hex, resource};
use super::{limits, plan};
use crate::support::ads::{AdsServer, TYPE_URL};

const SNAPSHOTS: &str = include_str!("../../data/xds/snapshots.json");

/// The reasons that differ from the recorded ones on purpose, each with the recorded one and ours. Ours say where, and
/// which values are good. Of two resources with one domain the second is refused, and not a random one.
const OTHER_REASONS: [(&str, &str); 9] = [
    ("bad: descriptor has empty key", "bad: descriptor has empty key (at descriptors[0])"),
    (
        "bad: invalid rate limit unit 'UNKNOWN'",
        "bad: invalid rate limit unit 'UNKNOWN'; expected one of second, minute, hour, day, week, month, \
         year (at descriptors[0].rate_limit)",
    ),
    (
        "bad: invalid rate limit unit '99'",
        "bad: invalid rate limit unit '99'; expected one of second, minute, hour, day, week, month, year \
         (at descriptors[0].rate_limit)",
    ),
    (
        "bad: duplicate descriptor composite key 'bad.k_v'",
        "bad: duplicate descriptor composite key 'bad.k_v', first on bad (at descriptors[0]) (at descriptors[1])",
    ),
    (
        "bad: replaces should not contain name of same descriptor",
        "bad: replaces should not contain name of same descriptor (at descriptors[0].rate_limit.replaces[0])",
    ),
    (
        "bad: should not have an empty replaces entry",
        "bad: should not have an empty replaces entry (at descriptors[0].rate_limit.replaces[0])",
    ),
    (
        "bad: should not specify rate limit unit when unlimited",
        "bad: should not specify rate limit unit when unlimited (at descriptors[0].rate_limit)",
    ),
    ("n1: duplicate domain 'd' in config file", "n2: duplicate domain 'd' in config file, first on n1"),
    (
        "proto: mismatched message type: got \"ratelimit.config.ratelimit.v3.RateLimitConfig\", want \"envoy.config.cluster.v3.Cluster\"",
        "resource 1: mismatched message type: got \"type.googleapis.com/envoy.config.cluster.v3.Cluster\", want \"type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig\"",
    ),
];
/// The text after this is the decoder's own.
const UNDECODED: (&str, &str) =
    ("proto: cannot parse invalid wire-format data", "resource 1: cannot parse invalid wire-format data");
/// A refused version that comes again at once is refused again after 500 ms, 1 s and so on; the recorded client refused
/// it thousands of times a second.
const MAX_REFUSALS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn the_recorded_snapshots_are_answered_as_recorded() {
    let recorded: Value = serde_json::from_str(SNAPSHOTS).expect("JSON");
    let server = AdsServer::start().await;
    let service = plan(&server)
        .set("rules.xds.node_metadata", "key1=val1,key2=a=b,k3=")
        .set("rules.xds.headers", "x-one:1,x-two:two words")
        .wait_for_livez()
        .start();
    let steps = recorded["steps"].as_array().expect("a list");
    assert_eq!(steps.len(), 36);
    let first = server.expect("first request", 0, |_| true).await.request;
    assert_eq!((first.version_info.as_str(), first.response_nonce.as_str()), ("", ""));

    for step in steps {
        let case = step["case"].as_str().expect("a name");
        let snapshot = &step["snapshot"];
        let skipped = server.received().len();
        // The recorded server answered with an empty version when it had nothing of this type.
        let version = if snapshot["no_type"].is_null() { snapshot["version"].as_str() } else { Some("") };
        server.set(version.expect("a version"), resources(snapshot));
        let expected = &step["requests"][0];
        let reason = &expected["error_detail"]["message"];
        let wanted = expected["version_info"].as_str().unwrap_or_default();
        let is_reply = |request: &DiscoveryRequest| {
            request.version_info == wanted && request.error_detail.is_some() == reason.is_string()
        };
        let reply = server.expect(case, skipped, is_reply).await.request;
        if let Some(detail) = &reply.error_detail {
            assert_eq!(detail.code, 0, "{case}");
            assert_reason(case, reason.as_str().expect("text"), &detail.message);
        }
        // Put in force before it is acknowledged.
        let expected_limits: Vec<&str> =
            step["rlconfig"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert_eq!(limits(&service), expected_limits, "{case}");
    }
    let refused = server.received().iter().filter(|received| received.request.error_detail.is_some()).count();
    assert!(refused <= 11 * MAX_REFUSALS, "{refused} refusals of 11 versions");
    assert_stream(&server, &recorded["stream"]);
}

fn resources(snapshot: &Value) -> Vec<envoy_types::pb::google::protobuf::Any> {
    let list = |name: &str| snapshot[name].as_array().into_iter().flatten().cloned().collect::<Vec<_>>();
    let raw = |raw: &Value| {
        from_hex(raw["type_url"].as_str().expect("a type"), raw["hex"].as_str().expect("bytes"))
    };
    list("resources").iter().map(resource).chain(list("raw").iter().map(raw)).collect()
}

fn assert_reason(case: &str, recorded: &str, ours: &str) {
    if recorded == UNDECODED.0 {
        assert!(ours.starts_with(UNDECODED.1), "{case}: {ours}");
        return;
    }
    let other = OTHER_REASONS.iter().find(|(theirs, _)| *theirs == recorded);
    assert_eq!(ours, other.map_or(recorded, |(_, ours)| ours), "{case}");
}

/// One stream, with the recorded headers, on which each request repeats the node and the type.
fn assert_stream(server: &AdsServer, recorded: &Value) {
    let streams = server.streams();
    assert_eq!(streams.len(), 1);
    for name in ["x-one", "x-two"] {
        let value = streams[0].get(name).and_then(|value| value.to_str().ok());
        assert_eq!(value, recorded["headers"][name].as_str(), "{name}");
    }
    let first = &recorded["first_request"];
    for request in server.received().into_iter().map(|received| received.request) {
        assert_eq!(request.type_url, TYPE_URL);
        assert!(request.resource_names.is_empty());
        let node = request.node.expect("a node");
        assert_eq!(Some(node.id.as_str()), first["node"]["id"].as_str());
        let fields = node.metadata.expect("metadata").fields;
        let recorded = first["node"]["metadata"].as_object().expect("an object");
        assert_eq!(fields.len(), recorded.len());
        for (key, value) in recorded {
            let text = value.as_str().expect("text").to_owned();
            assert_eq!(fields[key].kind, Some(Kind::StringValue(text)), "{key}");
        }
    }
}
