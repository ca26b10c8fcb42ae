//! Requests in which several descriptors are charged to one counter, and the options for all limits: quota mode and the
//! answer to a check of a limit that is used up.

use engine::{Code, Defaults, RetryAfter, Verdict};

use super::decisions::{Fixture, T0, descriptor, expect, hits};

#[tokio::test]
async fn a_postpaid_limit_met_several_times_answers_each_descriptor_in_turn() {
    let fixture =
        Fixture::new("domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 4}}]");
    let k = descriptor(&[("k", "a")]);
    let refund = engine::Descriptor { is_refund: true, ..hits(&[("k", "a")], 3) };
    expect(
        &fixture,
        &[
            (&[k.clone(), hits(&[("k", "a")], 0), k.clone()], "O O3 O3 O2"),
            (&[k.clone(), k.clone(), k.clone()], "X O1 O0 X0"),
            (&[refund, k.clone(), k.clone(), k.clone()], "X O2 O1 O0 X0"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_counter_that_a_refund_empties_counts_the_next_hit_of_the_request() {
    let fixture =
        Fixture::new("domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 4}}]");
    let k = descriptor(&[("k", "a")]);
    let refund = engine::Descriptor { is_refund: true, ..k.clone() };
    let all = [refund.clone(), k.clone(), refund.clone(), k.clone()];
    expect(&fixture, &[(std::slice::from_ref(&k), "O O3"), (&all, "O O4 O3 O4 O3")]).await;
    expect(&fixture, &[(&[k], "O O2")]).await;
    assert_eq!(fixture.limiter.store.stats().keys, 1);
    expect(&fixture, &[(&[refund.clone(), refund], "O O3 O4")]).await;
    assert_eq!(fixture.limiter.store.stats().keys, 0, "an unused counter is removed once");
}

#[tokio::test]
async fn a_prepaid_limit_met_several_times_answers_all_descriptors_with_the_verdict_on_the_whole() {
    let fixture = Fixture::new(
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: gcra}}]",
    );
    let k = descriptor(&[("k", "a")]);
    let two = [k.clone(), k.clone()];
    expect(&fixture, &[(&two, "O O1 O1"), (&two, "X X1 X1"), (&[k], "O O0")]).await;
}

#[tokio::test]
async fn a_quota_rule_met_twice_denies_only_if_both_descriptors_are_over() {
    let fixture = Fixture::new(
        "domain: d
descriptors:
  - { key: q, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: p, rate_limit: { unit: hour, requests_per_unit: 3, algorithm: gcra } }",
    );
    let (q, p) = (descriptor(&[("q", "a")]), descriptor(&[("p", "a")]));
    let all = [q.clone(), p, q];
    expect(&fixture, &[(&all, "O O0 O2 X0"), (&all, "X X0 O2 X0")]).await;
}

#[tokio::test]
async fn the_retry_time_is_that_of_all_descriptors_together() {
    let limit = |algorithm| {
        format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: hour, requests_per_unit: 4, charging: postpaid, \
             algorithm: {algorithm}}}}}]"
        )
    };
    let three = vec![descriptor(&[("k", "a")]); 3];
    let fixture = Fixture::new(&limit("gcra"));
    expect(&fixture, &[(&three, "O O3 O2 O1")]).await;
    let denied = fixture.decide(&three).await;
    // Six of eight quarters of an hour are taken, and three more must fit into four.
    assert_eq!(denied.retry_after(), RetryAfter::In(5 * 900_000_000));
    let five = vec![descriptor(&[("k", "b")]); 5];
    let never = Fixture::new(&limit("fixed_window"));
    assert_eq!(never.decide(&five).await.retry_after(), RetryAfter::Never);
}

#[tokio::test]
async fn in_quota_mode_every_descriptor_is_a_quota_one_except_unlimited_ones() {
    let rules = "domain: d
descriptors:
  - { key: a, rate_limit: { unit: hour, requests_per_unit: 1, name: small } }
  - { key: b, rate_limit: { unit: hour, requests_per_unit: 3 } }
  - { key: c, rate_limit: { unit: hour, requests_per_unit: 9, replaces: [{ name: small }] } }
  - { key: s, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true } }";
    let fixture = Fixture::by_default(rules, Defaults { quota_mode: true, ..Defaults::ENVOY_RATELIMIT });
    let with = |keys: &[&str]| keys.iter().map(|key| descriptor(&[(key, "")])).collect::<Vec<_>>();
    expect(
        &fixture,
        &[
            (&with(&["a"]), "O O0"),
            (&with(&["a", "b"]), "O X0 O2"),
            (&with(&["a", "other"]), "O X0 -"),
            (&with(&["a", "free"]), "X X0 *"),
            (&with(&["a", "s"]), "O X0 O0"),
            (&with(&["a", "c"]), "O - O8"),
            (&[hits(&[("a", "")], 1), hits(&[("b", "")], 9)], "X X0 X0"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_check_of_a_used_up_limit_is_ok_if_the_defaults_say_so() {
    let rules = "domain: d
descriptors:
  - { key: post, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: pre, rate_limit: { unit: hour, requests_per_unit: 2, algorithm: fixed_window } }
  - { key: zero, rate_limit: { unit: hour, requests_per_unit: 0 } }";
    let fixture =
        Fixture::by_default(rules, Defaults { used_up_check: Verdict::Fits, ..Defaults::ENVOY_RATELIMIT });
    let (check, hit) = (hits(&[("post", "")], 0), descriptor(&[("post", "")]));
    expect(
        &fixture,
        &[
            (&[hits(&[("post", "")], 2)], "O O0"),
            (std::slice::from_ref(&check), "O O0"),
            (&[check.clone(), hit], "X O0 X0"),
            (std::slice::from_ref(&check), "X X0"), // more was recorded than the limit admits
            (&[hits(&[("pre", "")], 2)], "O O0"),
            (&[hits(&[("pre", "")], 0)], "X X0"), // a prepaid limit never has debt
            (&[hits(&[("zero", "")], 0)], "O O0"), // a limit of 0 is used up from the start
            (&[hits(&[("zero", "")], 1)], "X X0"),
            (&[hits(&[("zero", "")], 0)], "O O0"), // it does not count
        ],
    )
    .await;
    let denied = fixture.decide(&[check]).await;
    assert_eq!(denied.overall, Code::OverLimit);
    assert_eq!(denied.retry_after(), RetryAfter::In(3_600_000_000 - T0 % 3_600_000_000));
}
