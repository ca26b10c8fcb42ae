//! Grants: units on top of a limit in one window.

use super::*;
use crate::Calendar;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
/// Starts of October to January in Berlin: UTC+2 until the end of October, then UTC+1.
const MONTHS: [u64; 4] =
    [1_790_805_600 * SECOND, 1_793_487_600 * SECOND, 1_796_079_600 * SECOND, 1_798_758_000 * SECOND];

fn add(units: u64) -> Effect {
    Effect { add: Some(units), ..Effect::default() }
}

fn granted(units: u64, from_us: u64) -> ExceptionRow {
    ExceptionRow { from_us: Some(from_us), ..row("tenant", "acme", add(units)) }
}

/// A rule for `tenant` with this limit.
fn rule(spec: LimitSpec) -> RuleSet {
    let descriptors = vec![node("tenant", vec![spec], vec![])];
    let domain = DomainSpec { domain: "d".to_owned(), descriptors, ..DomainSpec::default() };
    RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules")
}

fn at(rules: &RuleSet, now_us: u64) -> String {
    limits_of(rules, descriptor(&[("tenant", "acme")]), now_us).join(", ")
}

/// What the last step of the only derivation says.
fn last_change(rules: &RuleSet, now_us: u64) -> Option<Change> {
    let plan = Plan::new(rules, &request(vec![descriptor(&[("tenant", "acme")])]), now_us).expect("a plan");
    plan.derivations().first()?.steps.last().map(|step| step.change.clone())
}

#[test]
fn a_grant_counts_in_the_window_of_its_start() {
    // 13 s into a minute.
    let from = 100 * MINUTE + 13 * SECOND;
    let files = with(&rules(), [granted(40, from)]);
    for rules in [&files, &with_live(&rules(), [granted(40, from)])] {
        let table = [
            (100 * MINUTE, "60"), // the row has not started
            (from - 1, "60"),
            (from, "100"),
            (101 * MINUTE - 1, "100"),
            (101 * MINUTE, "60"),
            (102 * MINUTE, "60"),
        ];
        for (now_us, limit) in table {
            assert_eq!(at(rules, now_us), limit, "at {now_us}");
        }
        let added = Change::Added { units: 40, number: 100, until_us: 101 * MINUTE };
        assert_eq!(last_change(rules, from), Some(added));
        assert_eq!(last_change(rules, 101 * MINUTE), None);
    }
}

#[test]
fn the_end_of_the_row_ends_a_grant_and_a_start_at_a_boundary_is_in_the_later_window() {
    let ends = ExceptionRow { until_us: Some(MINUTE + 20 * SECOND), ..granted(40, MINUTE) };
    let rules = with(&rules(), [ends]);
    let table = [
        (MINUTE - 1, "60"),
        (MINUTE, "100"),
        (MINUTE + 20 * SECOND - 1, "100"),
        (MINUTE + 20 * SECOND, "60"),
        (2 * MINUTE, "60"),
    ];
    for (now_us, limit) in table {
        assert_eq!(at(&rules, now_us), limit, "at {now_us}");
    }
    let until = |until_us| Some(Change::Added { units: 40, number: 100, until_us });
    assert_eq!(last_change(&rules, MINUTE), until(MINUTE + 20 * SECOND));
    // An end in a later window does not carry the grant over.
    let rules = with(&self::rules(), [ExceptionRow { until_us: Some(9 * MINUTE), ..granted(40, MINUTE) }]);
    assert_eq!(last_change(&rules, MINUTE), until(2 * MINUTE));
    assert_eq!(at(&rules, 2 * MINUTE), "60");
}

#[test]
fn a_grant_follows_the_calendar_of_its_limit() {
    let calendar = Calendar::new("Europe/Berlin", "month", MONTHS.to_vec()).expect("rising boundaries");
    let month = LimitSpec {
        calendar: Some(Arc::new(calendar)),
        ..LimitSpec::new(Algorithm::FixedWindow, 1_000, Period::one(Unit::Month))
    };
    let from = MONTHS[1] + 86_400 * SECOND;
    let rules = with_live(&rule(month), [granted(500, from)]);
    let table = [
        (MONTHS[1], "1000"),
        (from - 1, "1000"),
        (from, "1500"),
        (MONTHS[2] - 1, "1500"),
        (MONTHS[2], "1000"), // midnight of 1 December in Berlin, an hour before that of UTC
        (MONTHS[3], "1000"),
    ];
    for (now_us, limit) in table {
        assert_eq!(at(&rules, now_us), limit, "at {now_us}");
    }
    let added = Change::Added { units: 500, number: 1_500, until_us: MONTHS[2] };
    assert_eq!(last_change(&rules, from), Some(added));
}

#[test]
fn a_grant_comes_last_and_only_the_winning_one_counts() {
    let on = |effect| row("tenant", "acme", effect);
    let table = [
        (vec![on(tier("pro"))], "610"),
        (vec![on(times("2"))], "130"),
        (vec![on(tier("pro")), on(times("0.5"))], "310"),
        (vec![on(limit(5))], "15"),
        (vec![on(limit(0))], "10"),
        (vec![on(limit(1 << 52))], "4503599627370496"),
        (vec![on(shadow(true))], "70 shadow"),
        (vec![on(tier("internal"))], "unlimited"),
        (vec![on(exempt())], "unlimited"),
        (vec![on(block())], "blocked"),
        // Of several grants the winning one counts, not the sum.
        (vec![granted(7, 0)], "67"),
        // One that names limits wins over later ones.
        (vec![on_limits("tenant", "*", granted(8, 0)), granted(7, 0)], "68"),
        // One of another window is as if it were not there, before its start and after its end.
        (vec![granted(7, MINUTE)], "70"),
        (vec![ExceptionRow { until_us: Some(0), ..granted(7, 0) }], "70"),
    ];
    for (rows, expected) in table {
        let all = || [granted(10, 0)].into_iter().chain(rows.clone());
        assert_eq!(at(&with(&rules(), all()), 0), expected, "{rows:?}");
        assert_eq!(at(&with_live(&rules(), all()), 0), expected, "{rows:?}");
    }
    let next = with(&rules(), [granted(7, MINUTE), granted(10, 0)]);
    assert_eq!([at(&next, MINUTE - 1), at(&next, MINUTE)], ["70", "67"].map(str::to_owned));
    let without_start = with(&rules(), [on(add(10))]);
    assert_eq!(at(&without_start, 0), "60");
}

#[test]
fn a_limit_without_windows_takes_no_grant() {
    let windowless = Algorithm::ALL.iter().filter(|algorithm| **algorithm != Algorithm::FixedWindow);
    for algorithm in windowless {
        let spec = LimitSpec::new(*algorithm, 60, Period::one(Unit::Minute));
        let rules = with(&rule(spec), [granted(40, 0)]);
        assert_eq!(at(&rules, 0), "60", "{algorithm:?}");
        assert_eq!(last_change(&rules, 0), Some(Change::Unfit(Unfit::NoWindow)), "{algorithm:?}");
    }
    let unlimited = LimitSpec { unlimited: true, ..plain(60, None) };
    let rules = with(&rule(unlimited), [granted(40, 0)]);
    assert_eq!(last_change(&rules, 0), Some(Change::Unfit(Unfit::Unlimited)));
    let internal = with(&self::rules(), [granted(40, 0), row("tenant", "acme", tier("internal"))]);
    assert_eq!(last_change(&internal, 0), Some(Change::Unfit(Unfit::Unlimited)));
}

#[test]
fn a_grant_keeps_the_counter() {
    let key = |rules: &RuleSet, now_us| {
        let plan = Plan::new(rules, &request(vec![descriptor(&[("tenant", "acme")])]), now_us);
        plan.expect("a plan").charges.keys().map(str::to_owned).collect::<Vec<_>>()
    };
    let rules = with(&self::rules(), [granted(40, 0)]);
    assert_eq!(key(&rules, 0), key(&rules, MINUTE));
    assert_eq!(key(&rules, 0), key(&self::rules(), 0));
}
