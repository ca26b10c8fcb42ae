//! Soft limits: the known answers of `on_over: announce` and `near`, on any store that can be told the time; what rule
//! files may say of them, and what `explain` and `/rlconfig` show.

use ::simulate::replay::{MemoryReplay, ReplayStore, replay};
use engine::{
    Applied, Charging, Code, Decision, Defaults, Descriptor, Enforcement, Plan, Request, RuleSet, Verdict,
};
use rules::{LoadedRules, describe, rlconfig};

use super::decisions::{T0, descriptor, hits};
use super::{load_text, request, rules};

const RULES: &str = "
domain: d
descriptors:
  - key: soft
    rate_limit: { name: soft, unit: minute, requests_per_unit: 10, on_over: announce, near: 0.8 }
  - key: hard
    rate_limit: { name: hard, unit: minute, requests_per_unit: 1, algorithm: fixed_window }
  - key: prepaid
    rate_limit: { name: prepaid, unit: minute, requests_per_unit: 10, algorithm: fixed_window, near: 0.8 }
  - key: shadow
    shadow_mode: true
    rate_limit: { name: shadow, unit: minute, requests_per_unit: 10, on_over: announce, near: 0.8 }
  - key: both
    rate_limits:
      - { name: first, unit: minute, requests_per_unit: 2, on_over: announce }
      - { name: second, unit: hour, requests_per_unit: 4, algorithm: gcra, near: 0.5 }
  - key: bucket
    rate_limit: { name: bucket, unit: minute, requests_per_unit: 2, algorithm: gcra, on_over: announce }
  - key: quota
    quota_mode: true
    rate_limit: { name: quota, unit: minute, requests_per_unit: 1, on_over: announce }
  - key: quota_hard
    quota_mode: true
    rate_limit: { name: quota_hard, unit: minute, requests_per_unit: 1 }
  - key: none
    rate_limit: { name: none, unit: minute, requests_per_unit: 0, burst: 5, algorithm: gcra, near: 0.5 }
";

const MINUTE_US: u64 = 60_000_000;

/// Decides a request at a time.
pub fn decide(
    rules: &RuleSet,
    store: &mut impl ReplayStore,
    now_us: u64,
    descriptors: &[Descriptor],
) -> Decision {
    let request = Request { descriptors: descriptors.to_vec(), ..request("d", &[]) };
    let plan = Plan::new(rules, &request, now_us).expect("a plan");
    let mut outcomes = store.decide(&[(now_us, &plan.charges)]).expect("the store answers");
    Decision::merge(plan, outcomes.remove(0), Enforcement::Enforce)
}

/// The code of the request, then the code and the remaining units of each descriptor.
fn answer(decision: &Decision) -> String {
    let status = |status: engine::Status<'_>| match status.applied {
        Applied::Limited(result) => {
            format!(", {} {}", status.code.into_str(), result.outcome.report.remaining)
        }
        other => panic!("{other:?}"),
    };
    let statuses: String = decision.statuses().map(status).collect();
    format!("{}{statuses}", decision.overall.into_str())
}

fn announced(decision: &Decision) -> String {
    let told = decision.limit_results().filter_map(|result| {
        let announced = result.announced()?;
        Some(format!("{};{announced}", result.limit.label))
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Units beyond the limit that a fixed window has recorded.
fn over_by(decision: &Decision, limit: &str) -> u64 {
    let mut results = decision.limit_results().filter(|result| *result.limit.label == *limit);
    results.next().expect("the limit is met").outcome.report.over_by
}

/// The table of soft limits. A row: when, the descriptors with their hits, the answer, what is announced.
pub fn soft_limits_have_the_known_answers(store: &mut impl ReplayStore) {
    let rules = rules(RULES);
    let one = |key: &str, units| vec![hits(&[(key, "a")], units)];
    let table = [
        // 1: below the share.
        (0, one("soft", 7), "OK, OK 3", ""),
        // 2: exactly the share.
        (0, one("soft", 1), "OK, OK 2", ""),
        // 3: above the share, up to the limit.
        (0, one("soft", 1), "OK, OK 1", "soft;near"),
        (0, one("soft", 1), "OK, OK 0", "soft;near"),
        // 4: over.
        (0, one("soft", 1), "OK, OK 0", "soft;over"),
        // 5: a check.
        (0, one("soft", 0), "OK, OK 0", "soft;over"),
        // 6: a hard limit denies the request. Its header is left out, and the hit is recorded all the same.
        (0, one("hard", 1), "OK, OK 0", ""),
        (0, [one("soft", 1), one("hard", 1)].concat(), "OVER_LIMIT, OK 0, OVER_LIMIT 0", "soft;over"),
        // 7: more than the limit at once, in the next minute.
        (MINUTE_US, one("soft", 20), "OK, OK 0", "soft;over"),
        // 8 and 9: a limit that denies.
        (0, one("prepaid", 9), "OK, OK 1", "prepaid;near"),
        (0, one("prepaid", 2), "OVER_LIMIT, OVER_LIMIT 1", ""),
        // 10: a rule in shadow mode announces nothing.
        (0, one("shadow", 11), "OK, OK 0", ""),
        // The limit that can deny decides the status, whichever has less left.
        (0, one("both", 2), "OK, OK 2", ""),
        (0, one("both", 1), "OK, OK 1", "first;over, second;near"),
        (0, one("both", 2), "OVER_LIMIT, OVER_LIMIT 1", "first;over"),
        // A named algorithm does not make an announced limit prepaid.
        (0, one("bucket", 3), "OK, OK 0", "bucket;over"),
        (30_000_000, one("bucket", 1), "OK, OK 0", "bucket;over"),
        // A quota rule that only announces is never over, so that the other quota rules of the request cannot deny.
        (0, one("quota", 2), "OK, OK 0", "quota;over"),
        (0, one("quota_hard", 2), "OVER_LIMIT, OVER_LIMIT 0", ""),
        (0, [one("quota", 1), one("quota_hard", 1)].concat(), "OK, OK 0, OVER_LIMIT 0", "quota;over"),
        // Nothing of a limit of 0 is used, whatever its burst is.
        (0, vec![Descriptor { is_refund: true, ..hits(&[("none", "a")], 1) }], "OK, OK 0", ""),
    ];
    for (row, (after_us, descriptors, expected, told)) in table.iter().enumerate() {
        let decision = decide(&rules, store, T0 + after_us, descriptors);
        assert_eq!(
            (answer(&decision).as_str(), announced(&decision).as_str()),
            (*expected, *told),
            "row {row}"
        );
        match row {
            7 => assert_eq!(over_by(&decision, "soft"), 2, "12 are recorded"),
            8 => assert_eq!(over_by(&decision, "soft"), 10, "20 are recorded"),
            _ => {}
        }
    }
}

#[test]
fn memory_gives_the_known_answers() {
    soft_limits_have_the_known_answers(&mut MemoryReplay::new());
}

#[test]
fn a_replay_writes_what_is_announced() {
    let rules = rules(RULES);
    let line = |key: &str, units: u64| {
        let entries = format!(r#"[{{"key":"{key}","value":"a"}}]"#);
        format!(
            r#"{{"t_us":{T0},"domain":"d","descriptors":[{{"entries":{entries},"hitsAddend":{units}}}]}}"#
        )
    };
    let requests = [line("soft", 9), line("soft", 2), line("hard", 1)].join("\n");
    let mut answers = Vec::new();
    replay(&rules, &mut MemoryReplay::new(), (requests.as_bytes(), &mut answers), |_| {}).expect("requests");
    let answers = String::from_utf8(answers).expect("text");
    let ends = [r#"],"announce":{"soft":"near"}}"#, r#"],"announce":{"soft":"over"}}"#, r#""delay_us":0}]}"#];
    for (answer, end) in answers.lines().zip(ends) {
        assert!(answer.ends_with(end), "{answer}");
    }
}

#[test]
fn an_announced_limit_is_postpaid_unless_it_says_otherwise() {
    let charging = |keys: &str, defaults| {
        let text = format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: day, requests_per_unit: 5, {keys}}}}}]"
        );
        let options = rules::LoadOptions { defaults, ..super::REFERENCE };
        let loaded =
            super::load_bytes(text.as_bytes(), options).unwrap_or_else(|problems| panic!("{problems}"));
        loaded.rules.limits()[0].spec.charging
    };
    let prepaid = Defaults { charging: Some(Charging::Prepaid), ..Defaults::ENVOY_RATELIMIT };
    let table = [
        ("on_over: announce", Charging::Postpaid),
        ("on_over: announce, algorithm: gcra", Charging::Postpaid),
        ("on_over: announce, charging: prepaid", Charging::Prepaid),
        ("on_over: deny, algorithm: gcra", Charging::Prepaid),
    ];
    for (keys, expected) in table {
        assert_eq!(charging(keys, Defaults::ENVOY_RATELIMIT), expected, "{keys}");
        assert_eq!(charging(keys, prepaid), expected, "{keys}, and defaults.charging is prepaid");
    }
}

fn messages(result: Result<LoadedRules, rules::Problems>) -> Vec<String> {
    let problems = match result {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    };
    let short =
        |text: String| text.rsplit_once("rules.yaml").map_or(text.clone(), |(_, after)| after.to_owned());
    problems.all().iter().map(|problem| short(problem.to_string())).collect()
}

#[test]
fn what_is_no_share_is_refused_and_a_whole_share_is_warned_of() {
    let with = |key: &str| {
        let keys = format!("unit: day, requests_per_unit: 5, algorithm: gcra, {key}");
        messages(load_text(&format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{keys}}}}}]")))
    };
    for valid in
        ["near: 0", "near: 0.8", "near: 0.999999", "near: '0.5'", "on_over: deny", "on_over: announce"]
    {
        assert_eq!(with(valid), [""; 0], "{valid}");
    }
    let expected = "a number from 0 to 1 with at most six decimals";
    for (key, found) in [
        ("near: 80", "a number '80'"),
        ("near: 80%", "text '80%'"),
        ("near: -0.5", "a number '-0.5'"),
        ("near: 0.0000001", "a number '0.0000001'"),
        ("near: [1]", "a list"),
    ] {
        let [message] = &with(key)[..] else { panic!("{key}: {:?}", with(key)) };
        let wanted = format!("'near' must be {expected}");
        assert!(message.contains(&wanted), "{message}");
        assert!(message.contains(found.rsplit(' ').next().unwrap_or_default()), "{message}");
    }
    let [message] = &with("on_over: warn")[..] else { panic!("one message") };
    assert!(message.contains("unknown on_over 'warn'; expected one of deny, announce"), "{message}");
    let [message] = &with("near: 1")[..] else { panic!("one message") };
    assert!(message.contains("near: 1 never announces"), "{message}");
}

#[test]
fn explain_and_rlconfig_show_the_keys() {
    let loaded = load_text(RULES).unwrap_or_else(|problems| panic!("{problems}"));
    let explained = |key: &str| {
        let request = request("d", &[&format!("{key}=a")]);
        describe(&loaded.rules, &loaded.upgrades, &request, T0).expect("a plan").text
    };
    let lines = [
        "    on over           announce: the hit goes ahead, and the answer says that the limit is over",
        "    near              0.8: answers announce the limit while more than 8 units are used",
        "    charging          postpaid: every hit is counted, denied or not",
    ];
    let text = explained("soft");
    assert!(lines.iter().all(|line| text.lines().any(|found| found == *line)), "{text}");
    assert!(!explained("hard").contains("on over"), "a limit without the keys is explained as before");
    let shadow = "    on over           announce: no effect, because the rule is in shadow mode";
    assert!(explained("shadow").lines().any(|line| line == shadow), "{}", explained("shadow"));
    let shown = rlconfig(&loaded.rules);
    let line = "d.soft: unit=MINUTE requests_per_unit=10, shadow_mode: false, quota_mode: false, on_over: announce, near: 0.8";
    assert!(shown.lines().any(|found| found == line), "{shown}");
}

#[test]
fn a_request_that_meets_a_soft_limit_only_is_not_told_to_wait() {
    let rules = rules(RULES);
    let decision = decide(
        &rules,
        &mut MemoryReplay::new(),
        T0,
        &[hits(&[("soft", "a")], 11), descriptor(&[("hard", "b")])],
    );
    assert_eq!(decision.overall, Code::Ok);
    let over = decision.limit_results().filter(|result| result.outcome.verdict == Verdict::Over);
    assert!(over.count() == 1 && decision.has_announced_limits());
    let decision = decide(&rules, &mut MemoryReplay::new(), T0, &[descriptor(&[("hard", "b")])]);
    assert!(!decision.has_announced_limits());
}
