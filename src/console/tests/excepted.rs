//! An exception for a denied key shows immediately, and the key stays one row.

use engine::{Effect, ExceptionRow, Exceptions, ExceptionsBuilder, LiveRows, RowSource, RowTerms, RowValue};

use super::super::excepted::{KeyException, RowCounts, RowsInForce};
use super::*;

/// End of the exceptions, in the year 2096.
const UNTIL: u64 = 4_000_000_000;

fn rows(value: &str, effect: Effect) -> Arc<Exceptions> {
    let mut builder = ExceptionsBuilder::new(&Exceptions::default());
    builder.add_row(row(value, effect));
    Arc::new(builder.build(&Exceptions::default(), |_| {}))
}

fn row(value: &str, effect: Effect) -> ExceptionRow {
    ExceptionRow {
        source: RowSource::File { file: "/etc/exceptions/blocks.yaml".into(), line: 7 },
        value: RowValue::Exact(value.into()),
        from_us: None,
        until_us: Some(UNTIL * 1_000_000),
        terms: RowTerms { key: "user".into(), effect, ..RowTerms::default() }.into(),
    }
}

impl Observed {
    fn set_rows(&self, value: &str, effect: Effect) {
        drop(self.limiters[0].rulebook.replace_exceptions(rows(value, effect)));
    }
}

fn block() -> Effect {
    Effect { block: true, ..Effect::default() }
}

#[tokio::test]
async fn a_blocked_key_stays_one_row_and_says_which_row_blocks_it() {
    let mut process = Observed::start(1);
    for _ in 0..3 {
        process.ask(0, "d", &[("user", "ann@example.org")]).await;
    }
    let before = process.second();
    assert_eq!(
        (&before["keys"][0]["exception"], &before["exceptions"]["block"]["rows"]),
        (&Value::Null, &json!(0))
    );
    process.set_rows("ann@example.org", block());
    let exception = |kind: &str| json!({"kind": kind, "row": "blocks.yaml:7", "until": UNTIL});
    assert_eq!(process.second()["keys"][0]["exception"], exception("block"), "before the next denial");
    for _ in 0..4 {
        process.ask(0, "d", &[("user", "ann@example.org")]).await;
    }
    let after = process.second();
    assert_eq!(after["keys"].as_array().map(Vec::len), Some(1), "one key, one limit: {after}");
    let key = &after["keys"][0];
    assert_eq!((&key["id"], &key["denied_15m"]), (&before["keys"][0]["id"], &json!(6)));
    assert_eq!(key["exception"], exception("block"));
    assert_eq!(
        after["exceptions"],
        json!({
            "block": {"rows": 1, "requests_15m": 4}, "exempt": {"rows": 0, "requests_15m": 0}
        })
    );
    process.set_rows("ann@example.org", Effect { exempt: true, ..Effect::default() });
    process.ask(0, "d", &[("user", "ann@example.org")]).await;
    let exempt = process.second();
    assert_eq!(exempt["keys"][0]["exception"], exception("exempt"));
    assert_eq!(exempt["exceptions"]["exempt"], json!({"rows": 1, "requests_15m": 1}));
    process.set_rows("bob@example.org", block());
    assert_eq!(process.second()["keys"][0]["exception"], Value::Null, "the row is removed");
    // Its counter is exhausted, and it is the same row again.
    process.ask(0, "d", &[("user", "ann@example.org")]).await;
    let again = process.second();
    assert_eq!(
        (again["keys"].as_array().map(Vec::len), &again["keys"][0]["denied_15m"]),
        (Some(1), &json!(7))
    );
}

#[tokio::test]
async fn a_key_of_two_limits_has_two_rows_that_say_which() {
    let two = "
domain: d
descriptors:
  - key: user
    rate_limits: [{ unit: day, requests_per_unit: 1 }, { unit: hour, requests_per_unit: 1 }]
";
    let mut process = Observed::start(1);
    process.limiters[0].rulebook.replace(rule_set(two));
    for _ in 0..2 {
        process.ask(0, "d", &[("user", "ann")]).await;
    }
    let limits = |state: &Value| {
        let keys = state["keys"].as_array().expect("a list").iter();
        let mut limits: Vec<_> =
            keys.map(|key| key["limit"].as_str().unwrap_or_default().to_owned()).collect();
        limits.sort_unstable();
        limits
    };
    assert_eq!(limits(&process.second()), ["1 per day", "1 per hour"]);
    process.set_rows("ann", block());
    process.ask(0, "d", &[("user", "ann")]).await;
    assert_eq!(limits(&process.second()), ["1 per day", "1 per hour"]);
}

#[test]
fn a_row_is_that_of_its_time_and_its_limit() {
    let rules = rule_set(RULES).with_exceptions(rows("ann", block()), &LiveRows::default());
    let found = |key: &str, label: &str, end: u64| KeyException::find(&rules, key, label, end);
    let key = "{d|user=ann}#fw:86400000000";
    assert!(
        found(key, "per-user", UNTIL - 1).is_some_and(|row| !row.is_over(UNTIL - 1) && row.is_over(UNTIL))
    );
    assert_eq!(found(key, "per-user", UNTIL), None);
    assert_eq!(found(key, "another", 0), None);
    assert_eq!(found("{d|user=bob}#fw:86400000000", "per-user", 0), None);
    assert!(found("{d|user=ann}#o:fw:1000000", "override", 0).is_some(), "a limit of the request");
}

/// The state reads a count. Exceptions are counted only when rules or exceptions change.
#[tokio::test]
async fn rows_are_counted_until_their_end() {
    let mut process = Observed::start(1);
    process.set_rows("ann", block());
    let counts = |state: &Value| {
        let of_kind = |kind: &str| state["exceptions"][kind]["rows"].clone();
        (of_kind("block"), of_kind("exempt"))
    };
    process.end = UNTIL - 2;
    assert_eq!(counts(&process.second()), (json!(1), json!(0)), "a second before the end");
    assert_eq!(counts(&process.second()), (json!(0), json!(0)));

    let rules = rule_set(RULES)
        .with_exceptions(rows("ann", Effect { exempt: true, ..block() }), &LiveRows::default());
    let mut rows = RowsInForce::count(&rules, UNTIL - 2);
    drop(rules);
    let both = RowCounts { block: 1, exempt: 1 };
    for (end, expected) in [(UNTIL - 1, both), (UNTIL, RowCounts::default()), (UNTIL, RowCounts::default())] {
        rows.advance(end);
        assert_eq!(rows.now(), expected, "{end}");
    }
    // A live row counts from its start.
    let mut live = LiveRows::default();
    live.insert(Arc::new(ExceptionRow {
        source: RowSource::Live { id: "b5kq0w2m9x7c".into(), version: 1 },
        from_us: Some((UNTIL - 3) * 1_000_000),
        ..row("ann", block())
    }));
    let rules = rule_set(RULES).with_exceptions(Arc::default(), &live);
    let mut rows = RowsInForce::count(&rules, UNTIL - 4);
    let started = RowCounts { block: 1, exempt: 0 };
    let none = RowCounts::default();
    for (end, expected) in [(UNTIL - 4, none), (UNTIL - 3, started), (UNTIL - 1, started), (UNTIL, none)] {
        rows.advance(end);
        assert_eq!(rows.now(), expected, "{end}");
    }
    let found = |end| KeyException::find(&rules, "{d|user=ann}#fw:86400000000", "per-user", end);
    assert_eq!(found(UNTIL - 4), None);
    assert_eq!(found(UNTIL - 3).and_then(|row| row.row).as_deref(), Some("live row b5kq0w2m9x7c"));
}

#[test]
fn requests_without_a_decision_are_told_with_the_cause() {
    use crate::telemetry::metrics::{RequestFailure, Transport};
    let mut process = Observed::start(1);
    process.second();
    let meter = process.metrics.requests(Transport::Grpc);
    (0..109).for_each(|_| meter.failed(RequestFailure::Store));
    let notices = process.second()["notices"].clone();
    assert_eq!((&notices[0]["level"], &notices[1]), (&json!("bad"), &Value::Null));
    let said =
        |notices: &Value, part: &str| assert!(notices[0].to_string().contains(part), "{part}: {notices}");
    said(&notices, "109 requests got no decision");
    said(&notices, "Redis did not answer.");
    meter.failed(RequestFailure::Invalid);
    let notices = process.second()["notices"].clone();
    said(&notices, "Invalid requests (1). Redis did not answer (109).");
}
