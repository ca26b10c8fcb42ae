//! The recorded behaviours, compared with what Prometheus had there.

use std::collections::BTreeMap;

use super::behaviour::Behaviour;
use super::differences::expected_here;
use super::exposition::Exposition;
use crate::support::http;
use crate::support::redis::Redis;

/// Plays a behaviour and compares series, values and types. Returns what is different.
pub async fn compare(behaviour: &Behaviour, mut redis: Option<Redis>) -> Vec<String> {
    let service = behaviour.plan(redis.as_ref()).set("server.drain", "0s").start();
    behaviour.play(&service, &mut redis).await;
    let found = Exposition::of(service.http_port());
    let expected = expected_here(&behaviour.name, &behaviour.prometheus);
    let mut problems = Vec::new();
    for series in expected.keys().chain(found.values.keys().filter(|series| !expected.contains_key(*series)))
    {
        let (there, here) = (expected.get(series), found.values.get(series));
        if there != here {
            problems.push(format!("{}: {series}: expected {there:?}, found {here:?}", behaviour.name));
        }
    }
    let known_types: BTreeMap<_, _> =
        behaviour.types.iter().filter(|(family, _)| found.types.contains_key(*family)).collect();
    for (family, kind) in known_types {
        if found.types[family] != *kind {
            problems.push(format!("{}: {family} is a {}, not a {kind}", behaviour.name, found.types[family]));
        }
    }
    problems
}

#[tokio::test]
async fn recorded_behaviours_lead_to_the_recorded_series_in_memory() {
    let mut problems = Vec::new();
    for behaviour in Behaviour::all() {
        if !behaviour.needs_redis() && !behaviour.prometheus.is_empty() {
            problems.extend(compare(&behaviour, None).await);
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test]
async fn the_histogram_has_the_buckets_of_envoyproxy_ratelimit() {
    let behaviours = Behaviour::all();
    let behaviour = behaviours.iter().find(|one| one.name == "02-one-level").expect("it is recorded");
    let service = behaviour.plan(None).start();
    behaviour.play(&service, &mut None).await;
    let page = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let bounds: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("ratelimit_service_response_time_seconds_bucket{"))
        .filter_map(|rest| rest.split("le=\"").nth(1)?.split('"').next())
        .collect();
    let expected = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];
    assert_eq!(bounds, expected);
}
