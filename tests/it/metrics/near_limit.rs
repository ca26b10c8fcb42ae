//! Sequences of hits on one limit, and the counters that they lead to.

use envoy_types::pb::google::protobuf::UInt64Value;
use serde_json::{Map, Value};

use super::behaviour::Values;
use super::exposition::Exposition;
use crate::support::grpc::{Rls, descriptor, request};
use crate::support::process::Plan;

const RECORDED: &str = include_str!("../../data/metrics/near_limit.json");

/// Sequences whose counters differ: their number, the counter, what it is here. There, the threshold is computed in
/// single precision; a ratio above 1, which is 1 here, makes a counter negative; and only Redis has a cache.
const DIFFERENT: [(usize, &str, u64); 6] = [
    (27, "near_limit", 858_993_459),
    (28, "near_limit", 1),
    (88, "near_limit", 0),
    (90, "over_limit_with_local_cache", 0),
    (91, "over_limit_with_local_cache", 0),
    (92, "over_limit_with_local_cache", 0),
];

const COUNTERS: [&str; 6] =
    ["total_hits", "within_limit", "near_limit", "over_limit", "shadow_mode", "over_limit_with_local_cache"];

fn sequences() -> Vec<Map<String, Value>> {
    serde_json::from_str(RECORDED).expect("recorded sequences")
}

fn rules(sequences: &[(usize, &Map<String, Value>)]) -> String {
    let rules = sequences.iter().map(|(number, sequence)| {
        let rule = sequence.get("rule").and_then(Value::as_str).unwrap_or("shadow_mode: false");
        let limit = &sequence["limit"];
        format!(
            "  - {{ key: s{number}, {rule}, rate_limit: {{ unit: year, requests_per_unit: {limit} }} }}\n"
        )
    });
    format!("domain: near\ndescriptors:\n{}", rules.collect::<String>())
}

#[tokio::test]
async fn hits_are_counted_as_recorded() {
    let all = sequences();
    assert_eq!(all.len(), 97);
    let mut ratios: Vec<&Value> = all.iter().map(|sequence| &sequence["ratio"]).collect();
    ratios.dedup();
    ratios.sort_by_key(ToString::to_string);
    ratios.dedup();
    let mut problems = Vec::new();
    for ratio in ratios {
        let of_ratio: Vec<_> =
            all.iter().enumerate().filter(|(_, sequence)| sequence["ratio"] == *ratio).collect();
        let counted = count(&of_ratio, if *ratio == 2 { "1".to_owned() } else { ratio.to_string() }).await;
        for (number, sequence) in of_ratio {
            problems.extend(differences(number, sequence, &counted));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

async fn count(sequences: &[(usize, &Map<String, Value>)], ratio: String) -> Values {
    let service =
        Plan::new(&rules(sequences)).set("near_limit_ratio", ratio).set("server.drain", "0s").start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    for (number, sequence) in sequences {
        for hits in sequence["hits"].as_array().expect("a list") {
            let mut descriptor = descriptor(&[(&format!("s{number}"), "v")]);
            descriptor.hits_addend = Some(UInt64Value { value: hits.as_u64().expect("a number") });
            rls.send(request("near", vec![descriptor])).await.expect("an answer");
        }
    }
    Exposition::of(service.http_port()).values
}

fn differences(number: usize, sequence: &Map<String, Value>, counted: &Values) -> Vec<String> {
    let problem = |counter: &str| {
        let listed = DIFFERENT.iter().find(|&&(which, name, _)| (which, name) == (number, counter));
        let recorded = sequence.get(counter).map_or(0, |value| value.as_u64().unwrap_or(u64::MAX));
        let expected = listed.map_or(recorded, |&(_, _, here)| here);
        let name = format!("ratelimit_service_rate_limit_{counter}{{domain=\"near\",key1=\"s{number}\"}}");
        let here = counted.get(&name).copied().unwrap_or(0);
        (here != expected).then(|| {
            let sequence = Value::Object(sequence.clone());
            format!("{number}: {counter} is {here}, not {expected}: {sequence}")
        })
    };
    COUNTERS.iter().filter_map(|counter| problem(counter)).collect()
}
