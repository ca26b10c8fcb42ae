//! Labels from the settings and from requests.

use engine::HashKey;

use super::*;

#[tokio::test]
async fn every_series_has_the_extra_tags() {
    let extra_tags = ExtraTags::parse("env:prod").expect("a tag");
    let options = MetricsOptions { extra_tags, ..MetricsOptions::default() };
    let metrics = Metrics::with_options(options).expect("names are unique");
    let limiter = limiter(&metrics, rules(&[("tenant", limit(2, None), false)]), memory());
    limiter.decide(&request("tenant", 1), |_| ()).await.expect("memory answers");
    drop(metrics.requests(Transport::Grpc).start());
    let text = metrics.render().expect("metrics can be encoded");
    let without: Vec<_> =
        text.lines().filter(|line| !line.starts_with('#') && !line.contains(r#"env="prod""#)).collect();
    assert!(without.is_empty(), "{without:?}");
}

/// A limit per user, counted under the users' names.
fn detailed_rules(hashing: ValueHashing) -> RuleSet {
    let rule = RuleSpec {
        limits: vec![Limit::new(limit(9, None)).expect("a valid limit")],
        detailed_metric: true,
        ..RuleSpec::default()
    };
    let node = NodeSpec { key: "user".to_owned(), rule: Some(rule), ..NodeSpec::default() };
    let spec = DomainSpec { domain: "edge".to_owned(), descriptors: vec![node], ..DomainSpec::default() };
    RuleSet::compile(&[spec], Defaults::ENVOY_RATELIMIT, hashing).expect("the rules are valid")
}

#[tokio::test]
async fn a_secret_value_is_hashed_in_the_path_of_its_series() {
    let metrics = metrics();
    let hashing = ValueHashing { key: Some(HashKey::new(b"a key")), all_values: true };
    let limiter = limiter(&metrics, detailed_rules(hashing), memory());
    limiter.decide(&request("user", 1), |_| ()).await.expect("memory answers");
    assert_eq!(hits(&metrics, "user_v")[0], 0);
    let text = metrics.render().expect("metrics can be encoded");
    assert!(text.contains(r#"ratelimit_service_rate_limit_total_hits{domain="edge",key1="user_"#), "{text}");
}

#[tokio::test]
async fn values_of_requests_have_series_up_to_a_number() {
    let options = MetricsOptions { values_per_rule: 2, ..MetricsOptions::default() };
    let metrics = Metrics::with_options(options).expect("names are unique");
    let set = detailed_rules(ValueHashing::NONE);
    let limiter = limiter(&metrics, set.clone(), memory());
    let send = async |value: &str| {
        let mut request = request("user", 1);
        value.clone_into(&mut request.descriptors[0].entries[0].value);
        limiter.decide(&request, |_| ()).await.expect("memory answers");
    };
    for value in ["a", "b", "c", "d", "a"] {
        send(value).await;
    }
    let total = |key1: &str| hits(&metrics, key1)[0];
    assert_eq!(["user_a", "user_b", "user_c", "user"].map(total), [2, 1, 0, 2]);
    // A reload keeps them until the rule is gone.
    drop(limiter.rulebook.replace(set));
    send("b").await;
    assert_eq!(["user_a", "user_b"].map(total), [2, 2]);
    drop(limiter.rulebook.replace(rules(&[])));
    assert_eq!(["user_a", "user_b"].map(total), [0, 0]);
}

#[tokio::test]
async fn a_name_is_escaped_in_its_label() {
    let metrics = metrics();
    let set = rules(&[("tenant", limit(5, Some("a \"b\"\\c")), false)]);
    let limiter = limiter(&metrics, set, memory());
    limiter.decide(&request("tenant", 1), |_| ()).await.expect("memory answers");
    assert_eq!(outcome(&metrics, r#"a \"b\"\\c"#, "ok"), Some(1));
}

#[test]
fn a_family_has_its_name_before_it_counts() {
    let text = metrics().render().expect("metrics can be encoded");
    for name in ["ratelimitd_decisions_total", "ratelimit_service_response_time_seconds"] {
        assert!(text.contains(&format!("# TYPE {name} ")), "{text}");
        assert!(!text.contains(&format!("\n{name}")), "{text}");
    }
}
