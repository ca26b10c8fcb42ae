//! The rules of Envoy Gateway, byte for byte as its own code sends them, with the calls of its Envoys and the recorded
//! answers of envoyproxy/ratelimit.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use serde_json::Value;

use super::plan;
use super::resource::from_hex;
use crate::support::ads::{AdsServer, TYPE_URL};
use crate::support::grpc::{
    Code, DescriptorStatus, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, Rls, descriptor,
    request,
};
use crate::support::wait;

const RECORDED: &str = include_str!("../../data/xds/envoy_gateway.json");
/// The shortest window that is counted in: a turn of it starts the counters again.
const WINDOW_S: u64 = 3_600;

#[tokio::test(flavor = "multi_thread")]
async fn the_configurations_of_envoy_gateway_are_answered_as_recorded() {
    // A window may turn over once, and not again within seconds.
    for _ in 0..2 {
        let server = AdsServer::start().await;
        let service = plan(&server).set("rules.xds.start_without_rules", true).start();
        if play_all(&server, async || Rls::connect(service.grpc_port()).await).await {
            return;
        }
    }
    panic!("the hour turned over twice");
}

/// Serves the configurations one after the other, and sends their calls over a connection each. Fails the test if an
/// answer differs; returns false if the hour turned over meanwhile.
pub async fn play_all(server: &AdsServer, connect: impl AsyncFn() -> Rls) -> bool {
    let cases: Vec<Value> = serde_json::from_str(RECORDED).expect("JSON");
    assert_eq!(cases.len(), 5);
    let before = wait::unix_seconds() / WINDOW_S;
    let (mut calls, mut differences) = (0, Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let wire = case["wire"].as_object().expect("resources").values();
        let resources = wire.map(|hex| from_hex(TYPE_URL, hex.as_str().expect("bytes"))).collect();
        let version = (number + 1).to_string();
        server.set(&version, resources);
        server.expect_ack(&version).await;
        calls += play(connect().await, case, &mut differences).await;
    }
    if wait::unix_seconds() / WINDOW_S != before {
        return false;
    }
    assert_eq!(differences, [""; 0]);
    assert_eq!(calls, 99);
    true
}

/// Sends the calls of a case. Returns their number, and adds the answers that differ.
async fn play(mut rls: Rls, case: &Value, differences: &mut Vec<String>) -> usize {
    let mut sent = 0;
    for call in case["calls"].as_array().expect("a list") {
        let times = call["times"].as_u64().unwrap_or(1).try_into().expect("a small number");
        let recorded: Vec<&str> =
            call["answers"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        for index in 0..times {
            let answer = in_words(&rls.send(request_of(call)).await.expect("an answer"));
            if let Some(expected) = expected(&recorded, index, times).filter(|expected| **expected != answer)
            {
                differences.push(format!("{}: {call}: {answer}, not {expected}", case["case"]));
            }
            sent += 1;
        }
    }
    sent
}

/// The recorded answer to the call `index` of `times`; `...` stands for any number of answers.
fn expected<'r>(recorded: &'r [&'r str], index: usize, times: usize) -> Option<&'r &'r str> {
    let gap = recorded.iter().position(|answer| *answer == "...").unwrap_or(recorded.len());
    let after = recorded.len().saturating_sub(gap + 1);
    if index < gap {
        return recorded.get(index);
    }
    let from_end = times - index;
    (from_end <= after).then(|| &recorded[recorded.len() - from_end])
}

fn request_of(call: &Value) -> RateLimitRequest {
    let descriptors = call["descriptors"].as_array().expect("a list").iter().map(descriptor_of).collect();
    request(call["domain"].as_str().expect("a domain"), descriptors)
}

fn descriptor_of(json: &Value) -> RateLimitDescriptor {
    let pairs: Vec<(&str, &str)> = json["entries"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|pair| (pair[0].as_str().expect("a key"), pair[1].as_str().expect("a value")))
        .collect();
    let limit = json.get("limit").map(|limit| RateLimitOverride {
        requests_per_unit: limit[0].as_u64().expect("a number").try_into().expect("32 bits"),
        unit: RateLimitUnit::from_str_name(limit[1].as_str().expect("a name")).expect("a unit").into(),
    });
    let hits_addend = json["hits_addend"].as_u64().map(|value| UInt64Value { value });
    RateLimitDescriptor { limit, hits_addend, ..descriptor(&pairs) }
}

/// As recorded: `OVER_LIMIT [OVER_LIMIT 3 per HOUR, 0 left; OK]`.
fn in_words(response: &RateLimitResponse) -> String {
    let statuses: Vec<String> = response.statuses.iter().map(status_in_words).collect();
    format!("{} [{}]", response.overall_code().as_str_name(), statuses.join("; "))
}

fn status_in_words(status: &DescriptorStatus) -> String {
    let code = Code::try_from(status.code).expect("a code").as_str_name();
    match &status.current_limit {
        None => code.to_owned(),
        Some(limit) => {
            let unit = limit.unit().as_str_name();
            format!("{code} {} per {unit}, {} left", limit.requests_per_unit, status.limit_remaining)
        }
    }
}

/// The table of upgrades in the example for a budget of tokens, for another rule and a limit of 1,000.
fn example_upgrades() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/envoy-gateway/llm-envoy-gateway.yaml");
    let example = std::fs::read_to_string(path).expect("the example");
    let mut quoted = example.split('\'');
    let table = quoted.nth(1).expect("a value in quotes");
    assert!(table.contains("rule-0") && table.contains("reserve: 1500"), "{table}");
    table.replace("rule-0", "rule-4").replace("1500", "300")
}

/// Rule 4 of this configuration has `cost.request.number: 0` and a cost of the response, as Envoy AI Gateway tells its
/// users. The calls are those of its Envoy; the row of the example changes the answers.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_for_tokens_lets_checks_of_envoy_gateway_take_units() {
    let cases: Vec<Value> = serde_json::from_str(RECORDED).expect("JSON");
    let case = cases.iter().find(|case| case["case"] == "everything").expect("the case");
    let costs = |call: &&Value| !call["descriptors"][0]["hits_addend"].is_null();
    let call = case["calls"].as_array().expect("a list").iter().find(costs).expect("a call with a cost");
    let server = AdsServer::start().await;
    let service = plan(&server).env("UPGRADES", &example_upgrades()).wait_for_livez().start();
    let wire = case["wire"].as_object().expect("resources").values();
    server.set("1", wire.map(|hex| from_hex(TYPE_URL, hex.as_str().expect("bytes"))).collect());
    server.expect_ack("1").await;
    let mut rls = Rls::connect(service.grpc_port()).await;
    let table = [
        (0, "OK", 700),
        (0, "OK", 400),
        (120, "OK", 580),
        (0, "OK", 280),
        (0, "OVER_LIMIT", 280),
        (700, "OK", 0),
    ];
    for (hits, code, left) in table {
        let mut call = call.clone();
        call["descriptors"][0]["hits_addend"] = hits.into();
        let answer = in_words(&rls.send(request_of(&call)).await.expect("an answer"));
        assert_eq!(answer, format!("{code} [{code} 1000 per DAY, {left} left]"), "{hits} hits");
    }
}

#[test]
fn the_answers_on_both_sides_of_a_gap_are_found() {
    let recorded = ["a", "...", "y", "z"];
    let found: Vec<_> = (0..6).map(|index| expected(&recorded, index, 6).copied()).collect();
    assert_eq!(found, [Some("a"), None, None, None, Some("y"), Some("z")]);
    let all: Vec<_> = (0..2).map(|index| expected(&["a", "b"], index, 2).copied()).collect();
    assert_eq!(all, [Some("a"), Some("b")]);
}
