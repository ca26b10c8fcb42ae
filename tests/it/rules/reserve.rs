//! `reserve`: the known answers of checks and charges, on any store that can be told the time; what rule files may say,
//! and what `explain` and `/rlconfig` show.

use ::simulate::replay::{MemoryReplay, ReplayStore};
use engine::{Applied, Decision, RetryAfter};
use rules::{describe, rlconfig};

use super::decisions::{T0, descriptor, hits};
use super::soft_limits::decide;
use super::{load_text, request, rules};

const RULES: &str = "
domain: d
descriptors:
  - { key: fixed, rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: fixed_window, reserve: 500 } }
  - { key: gcra, rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: gcra, reserve: 500 } }
  - { key: small, rate_limit: { unit: hour, requests_per_unit: 10, algorithm: sliding_log, reserve: 3 } }
  - { key: other, rate_limit: { unit: hour, requests_per_unit: 100, algorithm: fixed_window } }
";

const SECOND_US: u64 = 1_000_000;

/// Seconds with the fewest decimals.
fn seconds(us: u64) -> String {
    let decimals = format!("{:06}", us % SECOND_US);
    match decimals.trim_end_matches('0') {
        "" => (us / SECOND_US).to_string(),
        decimals => format!("{}.{decimals}", us / SECOND_US),
    }
}

/// `code remaining/reset_after`, and the wait of a denial.
fn cell(decision: &Decision) -> String {
    let status = decision.statuses().next().expect("a status");
    let Applied::Limited(result) = status.applied else { panic!("{status:?}") };
    assert_eq!(decision.overall, status.code, "the only descriptor decides");
    let report = &result.outcome.report;
    let wait = match report.retry_after {
        RetryAfter::Now => String::new(),
        RetryAfter::In(us) => format!(" r{}", seconds(us)),
        RetryAfter::Never => " never".to_owned(),
    };
    format!("{} {}/{}{wait}", status.code.into_str(), report.remaining, seconds(report.reset_after_us))
}

/// The table of `reserve: 500`, 1,000 per 60 s. A row: the second, the hits, the cells of both algorithms.
pub fn checks_and_charges_have_the_known_answers(store: &mut impl ReplayStore) {
    let rules = rules(RULES);
    let table = [
        (0, 0, "OK 500/60", "OK 500/30"),
        (1, 0, "OK 0/59", "OK 16/59"),
        (2, 0, "OVER_LIMIT 0/58 r58", "OVER_LIMIT 33/58 r28"),
        (5, 120, "OK 380/55", "OK 463/32.2"),
        (6, 0, "OVER_LIMIT 380/54 r54", "OVER_LIMIT 480/31.2 r1.2"),
        (7, 700, "OK 180/53", "OK 296/42.2"),
        (8, 0, "OVER_LIMIT 180/52 r52", "OVER_LIMIT 313/41.2 r11.2"),
        (59, 500, "OK 180/1", "OK 1000/0"),
        (61, 0, "OK 500/59", "OK 500/30"),
        (62, 80, "OK 920/58", "OK 936/3.8"),
    ];
    for (second, units, fixed, gcra) in table {
        for (key, expected) in [("fixed", fixed), ("gcra", gcra)] {
            let descriptors = [hits(&[(key, "a")], units)];
            let decision = decide(&rules, store, T0 + second * SECOND_US, &descriptors);
            assert_eq!(cell(&decision), expected, "{key}: {units} hits at {second} s");
        }
    }
    charges_deny_nothing_and_are_recorded(store);
}

/// What the table does not show: each row is the units left after a call.
fn charges_deny_nothing_and_are_recorded(store: &mut impl ReplayStore) {
    let rules = rules(RULES);
    let small = |units| hits(&[("small", "a")], units);
    let mut decided = |descriptors: &[engine::Descriptor]| {
        let decision = decide(&rules, store, T0, descriptors);
        let left = decision.statuses().map(|status| match status.applied {
            Applied::Limited(result) => {
                format!(" {} {}", status.code.into_str(), result.outcome.report.remaining)
            }
            other => panic!("{other:?}"),
        });
        format!("{}:{}", decision.overall.into_str(), left.collect::<String>())
    };
    // A descriptor without hits, and a refund, are charged as by any other limit.
    assert_eq!(decided(&[descriptor(&[("small", "a")])]), "OK: OK 9");
    let refund = engine::Descriptor { is_refund: true, ..small(1) };
    assert_eq!(decided(&[refund]), "OK: OK 10");
    assert_eq!(decided(&[small(0)]), "OK: OK 7");
    // A charge that does not fit is recorded and denies nothing, so that the other limits of its request record theirs.
    assert_eq!(decided(&[small(12), hits(&[("other", "a")], 12)]), "OK: OK 0 OK 88");
    assert_eq!(decided(&[small(0)]), "OVER_LIMIT: OVER_LIMIT 0");
    // The debt of two units is there, too: a charge of 1 returns two units of three.
    assert_eq!(decided(&[small(1)]), "OK: OK 0");
    assert_eq!(decided(&[small(1)]), "OK: OK 2");
    // A check and its charge in one request are one charge, which can deny.
    let both = |key: &str, units| [hits(&[(key, "b")], units), hits(&[(key, "b")], 0)];
    assert_eq!(decided(&both("small", 11)), "OVER_LIMIT: OVER_LIMIT 10 OVER_LIMIT 10");
    assert_eq!(decided(&both("small", 4)), "OK: OK 6 OK 6");
}

#[test]
fn memory_gives_the_known_answers() {
    checks_and_charges_have_the_known_answers(&mut MemoryReplay::new());
}

#[test]
fn a_limit_that_cannot_reserve_is_refused() {
    let problem = |keys: &str| {
        let text = format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: day, requests_per_unit: 5, {keys}}}}}]"
        );
        load_text(&text).err().map(|problems| problems.to_string()).unwrap_or_default()
    };
    let table = [
        ("reserve: 5, algorithm: gcra", ""),
        ("reserve: 5, charging: prepaid", ""),
        ("reserve: 9, algorithm: gcra, burst: 9", ""),
        ("reserve: 5", "reserve needs charging: prepaid, but this limit is postpaid"),
        ("reserve: 5, algorithm: gcra, charging: postpaid", "reserve needs charging: prepaid"),
        ("reserve: 5, on_over: announce, algorithm: gcra", "reserve needs charging: prepaid"),
        ("reserve: 0, algorithm: gcra", "reserve must be at least 1"),
        ("reserve: 6, algorithm: gcra", "reserve: expected at most 5"),
        ("reserve: 5, algorithm: leaky_bucket, mode: queue", "reserve does not work with mode: queue"),
        ("reserve: 5, algorithm: gcra, settle: true", "reserve does not work with settle"),
        ("reserve: many, algorithm: gcra", "'reserve' must be a whole number"),
    ];
    for (keys, expected) in table {
        let found = problem(keys);
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{keys}: {found}");
    }
}

#[test]
fn explain_and_rlconfig_show_the_reserve() {
    let loaded = load_text(RULES).unwrap_or_else(|problems| panic!("{problems}"));
    let text =
        describe(&loaded.rules, &loaded.upgrades, &request("d", &["fixed=a"]), T0).expect("a plan").text;
    let line = "    reserve           a check (0 hits) takes 500, and the charge after it books the difference to its own hits";
    assert!(text.lines().any(|found| found == line), "{text}");
    let line = "d.gcra: unit=MINUTE requests_per_unit=1000, shadow_mode: false, quota_mode: false, algorithm: gcra, charging: prepaid, reserve: 500";
    assert!(rlconfig(&loaded.rules).lines().any(|found| found == line), "{}", rlconfig(&loaded.rules));
}
