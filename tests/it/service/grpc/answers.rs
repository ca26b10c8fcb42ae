//! The contents of answers: statuses, rounding, headers, metadata.

use std::collections::HashMap;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};

use super::{decide_one, plan, request_for, service, with_hits};
use crate::support::grpc::{Code, DescriptorStatus, RateLimitResponse, Rls, descriptor, request};
use crate::support::process::Plan;
use crate::support::wait::unix_seconds;

const DAY: u64 = 86_400;

fn reset(status: &DescriptorStatus) -> (i64, i32) {
    let wait = status.duration_until_reset.as_ref().expect("a limit that counted has a reset");
    (wait.seconds, wait.nanos)
}

#[tokio::test]
async fn statuses_are_in_the_order_of_descriptors() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let request = ["wide", "nothing", "free", "user", "week"].map(|key| descriptor(&[(key, "v")]));
    let answer = rls.send(request_for(request.to_vec())).await.expect("an answer");
    assert_eq!(answer.overall_code(), Code::Ok);
    let [wide, nothing, free, user, week] = &answer.statuses[..] else { panic!("not five: {answer:?}") };

    let bare = |remaining| DescriptorStatus {
        code: Code::Ok.into(),
        limit_remaining: remaining,
        ..DescriptorStatus::default()
    };
    assert_eq!(*nothing, bare(0), "no rule: only a code");
    assert_eq!(*free, bare(u32::MAX), "unlimited: no limit, and the largest number remains");

    let limit = |status: &DescriptorStatus| {
        let limit = status.current_limit.clone().expect("a limit");
        (limit.requests_per_unit, limit.unit(), limit.name)
    };
    assert_eq!(limit(wide), (5, Unit::Day, String::new()));
    assert_eq!(limit(user), (3, Unit::Year, "per user".to_owned()));
    assert_eq!(limit(week), (5, Unit::Week, String::new()));
    assert_eq!([wide, user, week].map(|status| status.limit_remaining), [4, 2, 4]);

    // The reset is the end of the fixed window in whole seconds, rounded up. Up to 3 s may have passed since the
    // answer.
    let left = i64::try_from(10 * DAY - unix_seconds() % (10 * DAY)).expect("ten days");
    let (seconds, nanos) = reset(wide);
    assert!((left..=left + 3).contains(&seconds) && nanos == 0, "{seconds} s, {left} s left");
}

#[tokio::test]
async fn a_limit_counts_down_and_then_denies() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(decide_one(&mut rls, descriptor(&[("user", "ann")])).await);
    }
    assert_eq!(seen, [(Code::Ok, 2), (Code::Ok, 1), (Code::Ok, 0), (Code::OverLimit, 0)]);
    assert_eq!(
        decide_one(&mut rls, descriptor(&[("user", "bob")])).await,
        (Code::Ok, 2),
        "each value has its own counter"
    );
    let (code, status) = rls.send_one("unknown", &[("user", "ann")]).await;
    assert_eq!((code, status.current_limit), (Code::Ok, None), "an unknown domain limits nothing");
}

#[tokio::test]
async fn a_denied_request_charges_no_other_prepaid_limit() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(decide_one(&mut rls, descriptor(&[("slow", "a")])).await, (Code::Ok, 0));
    let both = || request_for(vec![descriptor(&[("slow", "b")]), descriptor(&[("slow", "a")])]);
    let answer = rls.send(both()).await.expect("an answer");
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let codes: Vec<_> = answer.statuses.iter().map(DescriptorStatus::code).collect();
    assert_eq!(codes, [Code::Ok, Code::OverLimit]);
    // One unit per hour: over the limit the reset is the exact wait, rounded up.
    let (seconds, nanos) = reset(&answer.statuses[1]);
    assert!((3_590..=3_600).contains(&seconds) && nanos == 0, "{seconds} s");
    assert_eq!(decide_one(&mut rls, descriptor(&[("slow", "b")])).await, (Code::Ok, 0), "b was not charged");
}

#[tokio::test]
async fn shadow_rules_never_deny_and_quota_rules_deny_together() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut all = async |keys: &[&str]| {
        let request = keys.iter().map(|key| descriptor(&[(key, "v")])).collect();
        let answer = rls.send(request_for(request)).await.expect("an answer");
        let codes: Vec<_> = answer.statuses.iter().map(DescriptorStatus::code).collect();
        (answer.overall_code(), codes)
    };
    use Code::{Ok, OverLimit};
    assert_eq!(all(&["shadow"]).await, (Ok, vec![Ok]));
    assert_eq!(all(&["shadow"]).await, (Ok, vec![Ok]), "a shadow rule never denies");
    assert_eq!(all(&["quota_a"]).await, (Ok, vec![Ok]));
    assert_eq!(
        all(&["quota_a", "quota_b"]).await,
        (Ok, vec![OverLimit, Ok]),
        "one of two quotas is not used up"
    );
    assert_eq!(all(&["quota_a", "quota_b"]).await, (OverLimit, vec![OverLimit, OverLimit]));
}

#[tokio::test]
async fn global_shadow_mode_reports_denials_and_admits() {
    let service = plan().set("shadow_mode", true).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let request = || request_for(vec![with_hits("user", "ann", 4)]);
    let answer = rls.send(request()).await.expect("an answer");
    assert_eq!(answer.overall_code(), Code::Ok);
    assert_eq!(answer.statuses[0].code(), Code::OverLimit);
}

fn headers(answer: &RateLimitResponse) -> Vec<(&str, &str)> {
    answer.response_headers_to_add.iter().map(|header| (header.key.as_str(), header.value.as_str())).collect()
}

#[tokio::test]
async fn headers_are_off_by_default() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let answer = rls.send(request_for(vec![with_hits("user", "ann", 4)])).await.expect("an answer");
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert!(headers(&answer).is_empty() && answer.dynamic_metadata.is_none());
}

#[tokio::test]
async fn headers_of_the_reference_describe_one_limit() {
    let service = plan().set("response.headers", "envoy_ratelimit").set("response.retry_after", true).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut headers_of_both = async |user_hits| {
        let request = request_for(vec![with_hits("team", "t", 8), with_hits("user", "u", user_hits)]);
        let answer = rls.send(request).await.expect("an answer");
        headers(&answer)
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect::<HashMap<_, _>>()
    };
    // 2 of 10 and 2 of 3 remain: the first limit, as both are equal.
    let first = headers_of_both(1).await;
    assert_eq!((first["RateLimit-Limit"].as_str(), first["RateLimit-Remaining"].as_str()), ("10", "2"));
    assert!(first["RateLimit-Reset"].parse::<u64>().is_ok_and(|reset| reset > 1));
    assert!(!first.contains_key("Retry-After"));
    // Both are over the limit: the last of them.
    let second = headers_of_both(9).await;
    assert_eq!((second["RateLimit-Limit"].as_str(), second["RateLimit-Remaining"].as_str()), ("3", "0"));

    // A cost above the limit never fits, so there is no Retry-After. Descriptors without a limit have no headers.
    let never = rls.send(request_for(vec![with_hits("slow", "x", 2)])).await.expect("an answer");
    assert_eq!(never.overall_code(), Code::OverLimit);
    assert!(headers(&never).iter().all(|(key, _)| *key != "Retry-After"), "{never:?}");
    let (seconds, _) = reset(&never.statuses[0]);
    assert!(seconds >= 1, "over the limit a reset is never 0");
    let nothing = rls.send(request_for(vec![descriptor(&[("nothing", "x")])])).await.expect("an answer");
    assert!(headers(&nothing).is_empty());
}

#[tokio::test]
async fn headers_of_the_draft_list_every_limit() {
    let service = plan().set("response.headers", "ietf").set("response.retry_after", true).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let request = || request_for(vec![descriptor(&[("both", "v")]), descriptor(&[("shadow", "v")])]);
    let answer = rls.send(request()).await.expect("an answer");
    let policy = r#""test.both.1year";q=2;w=15768000, "test.both.1month";q=9;w=2592000"#;
    let [(first, policies), (second, standings)] = headers(&answer)[..] else {
        panic!("not two: {answer:?}")
    };
    assert_eq!((first, second, policies), ("RateLimit-Policy", "RateLimit", policy));
    // The next unit of the first limit comes in a quarter of a year, that of the second within a month.
    assert!(
        standings.starts_with(r#""test.both.1year";r=1;t=7884000, "test.both.1month";r=8;t="#),
        "{standings}"
    );

    rls.send(request()).await.expect("an answer");
    let denied = rls.send(request()).await.expect("an answer");
    assert_eq!(denied.overall_code(), Code::OverLimit);
    let wait: HashMap<_, _> = headers(&denied).into_iter().collect();
    let wait: u64 = wait["Retry-After"].parse().expect("whole seconds");
    assert!((7_883_900..=7_884_000).contains(&wait), "{wait} s");
}

#[tokio::test]
async fn headers_of_the_draft_name_units_other_than_requests() {
    let rule = |key: &str, limit: &str| {
        format!(
            "  - {{ key: {key}, rate_limit: {{ name: {key}, algorithm: gcra, unit: minute, {limit} }} }}\n"
        )
    };
    let rules = ["traffic", "calls", "tokens", "plain", "named"].map(|key| match key {
        "traffic" => rule(key, "requests_per_unit: 300000000, unit_name: content-bytes"),
        "calls" => rule(key, "requests_per_unit: 60, unit_name: concurrent-requests"),
        "tokens" => rule(key, "requests_per_unit: 60, unit_name: tokens"),
        "named" => rule(key, "requests_per_unit: 60, unit_name: requests"),
        key => rule(key, "requests_per_unit: 60"),
    });
    let rules = format!("domain: test\ndescriptors:\n{}", rules.concat());
    let service = Plan::new(&rules).set("response.headers", "ietf").server_of(module_path!()).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let hits = [("traffic", 65_535), ("calls", 1), ("tokens", 1), ("plain", 1), ("named", 1)];
    let descriptors = hits.map(|(key, hits)| with_hits(key, "v", hits)).to_vec();
    let answer = rls.send(request_for(descriptors)).await.expect("an answer");
    let [(_, policies), (_, standings)] = headers(&answer)[..] else { panic!("not two: {answer:?}") };
    let expected = r#""traffic";q=300000000;qu="content-bytes";w=60, "calls";q=60;qu="concurrent-requests";w=60, "tokens";q=60;ratelimitd-unit="tokens";w=60, "plain";q=60;w=60, "named";q=60;w=60"#;
    assert_eq!(policies, expected);
    let expected = r#""traffic";r=299934465;t=1, "calls";r=59;t=1, "tokens";r=59;t=1, "plain";r=59;t=1, "named";r=59;t=1"#;
    assert_eq!(standings, expected);
}

/// The body of a denial, as JSON; `None` without one.
fn problem(answer: &RateLimitResponse) -> Option<serde_json::Value> {
    let content_type = headers(answer).into_iter().find(|(name, _)| *name == "content-type");
    assert_eq!(content_type.is_some(), !answer.raw_body.is_empty(), "{answer:?}");
    assert!(content_type.is_none_or(|(_, value)| value == "application/problem+json"), "{answer:?}");
    (!answer.raw_body.is_empty()).then(|| serde_json::from_slice(&answer.raw_body).expect("JSON"))
}

#[tokio::test]
async fn a_denial_has_a_body_if_the_settings_say_so() {
    let service = plan().set("response.problem", true).set("response.retry_after", true).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut of = async |descriptors| {
        let answer = rls.send(request_for(descriptors)).await.expect("an answer");
        let wait = headers(&answer).into_iter().find(|(name, _)| *name == "Retry-After");
        (problem(&answer), wait.map(|(_, seconds)| seconds.to_owned()))
    };
    let both = || vec![descriptor(&[("both", "p")])];
    assert_eq!(of(both()).await.0, None, "admitted");
    of(both()).await;
    let (denied, wait) = of(both()).await;
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "detail": format!("over 1 per year; more is available in {} s", wait.expect("a wait")),
        "violated-policies": ["test.both.1year"],
    });
    let denied = denied.expect("a body");
    assert_eq!(denied["violated-policies"], expected["violated-policies"], "{denied}");
    assert_eq!((&denied["type"], &denied["title"]), (&expected["type"], &expected["title"]));
    assert!(denied.get("status").is_none(), "Envoy chooses it");
    assert!(
        denied["detail"].as_str().is_some_and(|text| text.contains(" per year; more is available in ")),
        "{denied}"
    );
    // Two limits deny: each once, though the second has two descriptors.
    let two = vec![with_hits("team", "p", 11), with_hits("user", "p", 4), with_hits("user", "p", 4)];
    let (denied, _) = of(two).await;
    let denied = denied.expect("a body");
    assert_eq!(denied["violated-policies"].as_array().map(Vec::len), Some(2), "{denied}");
    // No wait helps.
    let (denied, wait) = of(vec![with_hits("slow", "p", 2)]).await;
    assert_eq!(wait, None);
    assert!(denied.is_some_and(|denied| denied["detail"].as_str().is_some_and(|text| !text.contains(';'))));
    assert_eq!(of(vec![with_hits("shadow", "p", 9)]).await.0, None, "a shadow rule denies nothing");
}

#[tokio::test]
async fn names_from_rule_files_cannot_add_headers() {
    let service = plan().set("response.headers", "ietf").start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let answer = rls.send(request_for(vec![descriptor(&[("escaped", "v")])])).await.expect("an answer");
    // Envoy copies the name of the limit and the headers without escapes.
    let limit = answer.statuses[0].current_limit.clone().expect("a limit");
    assert_eq!(limit.name, "a__Set-Cookie: _x_");
    let [(_, policies), (_, standings)] = headers(&answer)[..] else { panic!("not two: {answer:?}") };
    for value in [policies, standings] {
        assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{value:?}");
        assert_eq!(value.matches('"').count(), 2, "{value:?}");
    }
}

fn field<'s>(parent: &'s Struct, name: &str) -> Option<&'s Kind> {
    parent.fields.get(name).and_then(|value| value.kind.as_ref())
}

#[tokio::test]
async fn dynamic_metadata_describes_the_decision() {
    let service = plan().set("response.dynamic_metadata", true).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut request = request_for(vec![
        descriptor(&[("annotated", "v"), ("more", "w")]),
        descriptor(&[("annotated", "v")]),
    ]);
    request.hits_addend = 2;
    let answer = rls.send(request).await.expect("an answer");
    let metadata = answer.dynamic_metadata.expect("metadata");
    assert_eq!(field(&metadata, "domain"), Some(&Kind::StringValue("test".to_owned())));
    assert_eq!(field(&metadata, "hitsAddend"), Some(&Kind::NumberValue(2.0)));
    assert_eq!(field(&metadata, "rule"), Some(&Kind::StringValue("test.annotated".to_owned())));
    assert_eq!(field(&metadata, "retry_after_ms"), None);
    let Some(Kind::StringValue(decided_at)) = field(&metadata, "decided_at_us") else {
        panic!("no time: {metadata:?}")
    };
    let decided_at: u64 = decided_at.parse().expect("microseconds");
    assert!(decided_at > 1_700_000_000_000_000, "{decided_at} is not a time of today");
    let Some(Kind::ListValue(descriptors)) = field(&metadata, "descriptors") else {
        panic!("no list: {metadata:?}")
    };
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let Some(Kind::StructValue(first)) = &descriptors.values[0].kind else { panic!("{metadata:?}") };
    let Some(Kind::ListValue(entries)) = field(first, "entries") else { panic!("{metadata:?}") };
    assert_eq!(entries.values, [text("annotated=v"), text("more=w")]);
    let Some(Kind::StructValue(rule_metadata)) = field(&metadata, "metadata") else { panic!("{metadata:?}") };
    assert_eq!(field(rule_metadata, "tier"), Some(&Kind::StringValue("gold".to_owned())));

    let denied = rls.send(request_for(vec![with_hits("user", "ann", 4)])).await.expect("an answer");
    let metadata = denied.dynamic_metadata.expect("metadata");
    assert_eq!(field(&metadata, "rule"), Some(&Kind::StringValue("per user".to_owned())));
    assert!(matches!(field(&metadata, "retry_after_ms"), None | Some(Kind::NumberValue(_))), "{metadata:?}");

    decide_one(&mut rls, descriptor(&[("queue", "v")])).await;
    let queued = rls.send(request_for(vec![descriptor(&[("queue", "v")])])).await.expect("an answer");
    assert_eq!(queued.overall_code(), Code::Ok);
    let metadata = queued.dynamic_metadata.expect("metadata");
    let Some(Kind::NumberValue(delay)) = field(&metadata, "delay_ms") else {
        panic!("no delay: {metadata:?}")
    };
    // Two per hour: the second waits for half an hour.
    assert!((1_790_000.0..=1_800_000.0).contains(delay), "{delay} ms");
}

#[tokio::test]
async fn the_delay_of_a_queue_is_sent_with_default_settings() {
    let limit = "unit: hour, requests_per_unit: 2, burst: 2, algorithm: leaky_bucket, mode: queue";
    let rules = format!(
        "domain: test\ndescriptors:\n  - {{ key: queue, rate_limit: {{ {limit} }} }}\n  \
         - {{ key: shadow, shadow_mode: true, rate_limit: {{ {limit} }} }}\n"
    );
    let service = Plan::new(&rules).server_of(module_path!()).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut delays = Vec::new();
    for key in ["queue", "queue", "queue", "shadow", "shadow"] {
        let answer = rls.send(request_for(vec![descriptor(&[(key, "v")])])).await.expect("an answer");
        let delay = answer.dynamic_metadata.map(|metadata| {
            assert_eq!(metadata.fields.len(), 1, "{metadata:?}");
            field(&metadata, "delay_ms").cloned()
        });
        delays.push(match delay {
            Some(Some(Kind::NumberValue(delay))) => Some(delay),
            None => None,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(delays[0], Some(0.0));
    assert!(matches!(delays[1], Some(1_790_000.0..=1_800_000.0)), "{delays:?}");
    assert_eq!(delays[2..], [None, None, None], "neither a denied hit nor a shadow rule delays");
}

#[tokio::test]
async fn an_empty_domain_is_an_invalid_argument() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let error = rls.send(request("", vec![descriptor(&[("user", "v")])])).await.expect_err("no domain");
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
    assert_eq!(error.message(), "rate limit domain must not be empty");
}
