//! Command lines as JSON bodies, and answers in words.

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use serde_json::json;

use super::*;

#[derive(Debug, Parser)]
struct Line<T: Args> {
    #[command(flatten)]
    args: T,
}

fn parsed<T: Args>(line: &[&str]) -> Result<T, String> {
    let matches = Line::<T>::command().try_get_matches_from([&["test"], line].concat());
    let parsed = matches.and_then(|matches| Line::<T>::from_arg_matches(&matches));
    parsed.map(|line| line.args).map_err(|error| error.to_string())
}

#[test]
fn the_options_of_a_row_are_its_columns() {
    let row = |line: &[&str]| {
        let line = [&["--domain", "shop", "--reason", "r"], line].concat();
        without_nulls(json!(parsed::<SetArgs>(&line).expect("a command line")))
    };
    let of = |columns: Value| {
        let mut row = json!({"domain": "shop", "key": "tenant", "value": "acme"});
        row.as_object_mut().expect("a row").extend(columns.as_object().expect("columns").clone());
        row
    };
    let cases = [
        (&["tenant=acme", "--block", "--until", "2h"][..], of(json!({"block": true, "until": "2h"}))),
        (&["tenant=acme", "--exempt", "--permanent"], of(json!({"exempt": true}))),
        (&["tenant=acme", "--for", "1m", "--tier", "pro"], of(json!({"tier": "pro", "until": "1m"}))),
        (
            &["--limit", "0", "--multiplier", "1.5", "--shadow-mode", "false", "tenant=acme"],
            of(json!({"limit": 0, "multiplier": "1.5", "shadow_mode": false})),
        ),
        (
            &[
                "tenant=acme",
                "--add",
                "5000",
                "--path",
                "a.*",
                "--limit-name",
                "monthly",
                "--if-version",
                "0",
            ],
            of(json!({"add": 5000, "path": "a.*", "limit_name": "monthly", "if_version": "0"})),
        ),
        (&["tenant=acme", "--from", "2026-12-01T00:00:00Z"], of(json!({"from": "2026-12-01T00:00:00Z"}))),
    ];
    for (line, expected) in cases {
        assert_eq!(row(line), expected, "{line:?}");
    }
    let row = row(&[r"a=b=c\,d"]);
    assert_eq!((&row["key"], &row["value"]), (&json!("a"), &json!("b=c,d")));
}

#[test]
fn a_malformed_line_says_what_to_write() {
    let cases = [
        (&["--domain", "shop", "tenant=acme"][..], "--reason"),
        (&["--reason", "r", "tenant=acme"], "--domain"),
        (&["--domain", "shop", "--reason", "r", "tenant"], "write tenant=VALUE"),
        (&["--domain", "shop", "--reason", "r", "a=1,b=2"], "2 entries: an exception is for one, key=value"),
        (&["--domain", "d", "--reason", "r", "a=1", "--until", "2h", "--permanent"], "cannot be used with"),
        (&["--domain", "d", "--reason", "r", "a=1", "--shadow-mode", "yes"], "invalid value 'yes'"),
    ];
    for (line, told) in cases {
        let error = parsed::<SetArgs>(line).expect_err("malformed");
        assert!(error.contains(told), "{line:?}: {error}");
    }
    for line in [
        &["--reason", "r"][..],
        &["--all", "--domain", "d", "--reason", "r"],
        &["--all", "id", "--reason", "r"],
    ] {
        parsed::<RemoveArgs>(line).expect_err("names no rows, or both all and some");
    }
}

#[test]
fn a_row_needs_an_end_unless_it_is_permanent_or_a_grant() {
    // Nothing listens there: a line that is complete fails with the connection.
    let refused = |line: &[&str]| {
        let line = [&["--domain", "shop", "--reason", "r", "--admin", "127.0.0.1:1", "a=1"], line].concat();
        let error = parsed::<SetArgs>(&line).expect("a command line").set().expect_err("nothing listens");
        (error.exit_code(), error.to_string())
    };
    for line in [&["--block"][..], &["--multiplier", "2"]] {
        assert_eq!(refused(line), (1, "say how long: --until 2h, or --permanent".to_owned()));
    }
    for line in [&["--block", "--until", "2h"][..], &["--block", "--permanent"], &["--add", "5"]] {
        let (code, error) = refused(line);
        assert!(code == 2 && error.starts_with("cannot connect to 127.0.0.1:1"), "{error}");
    }
}

fn here(zone: Option<&str>) -> Here {
    // 2026-11-26T14:00:00Z.
    Here { now_us: 1_795_701_600_000_000, zone: zone.map(str::to_owned) }
}

fn block() -> Value {
    json!({"domain": "shop", "key": "remote_address", "value": "10…#3f9a", "block": true,
           "until": "2026-11-26T16:00:00Z", "reason": "abuse", "by": "ann"})
}

#[test]
fn a_set_row_says_until_when_what_it_replaces_and_what_stands_in_its_way() {
    let before = json!({"domain": "shop", "key": "remote_address", "value": "10…#3f9a", "multiplier": "2"});
    let answer = json!({"rows": [{"id": "b5kq0w2m9x7c", "version": "17", "in_force": true, "row": block(),
        "before": before, "warnings": ["a row of blocks.yaml:7 blocks this value"]}]});
    let text = set_text(&answer, &here(Some("Europe/Berlin")));
    let expected = "\
in effect: shop remote_address=10…#3f9a: block until 2026-11-26 17:00:00 +01:00 (2026-11-26T16:00:00Z, in 2h): abuse, by ann
  replaces: multiplier 2, without an end
  warning: a row of blocks.yaml:7 blocks this value
  id b5kq0w2m9x7c, version 17
";
    assert_eq!(text, expected);

    let mut later = block();
    later["from"] = json!("2026-11-26T15:00:00.5Z");
    let answer =
        json!({"rows": [{"id": "b", "version": "18", "in_force": false, "row": later, "before": null}]});
    let text = set_text(&answer, &here(None));
    let expected = "\
set, not in effect yet: shop remote_address=10…#3f9a: block from 2026-11-26T15:00:00Z (in 1h 1s) until \
        2026-11-26T16:00:00Z (in 2h): abuse, by ann
  id b, version 18
";
    assert_eq!(text, expected);
}

#[test]
fn rows_are_listed_with_state_origin_and_id_in_a_line_each() {
    let grant = json!({"domain": "shop", "key": "customer_id", "value": "acme", "add": 5000, "limit_name": "monthly",
        "from": "2026-11-26T13:00:00Z", "until": "2026-12-01T00:00:00Z", "reason": "a\nremoved: all", "path": "x.*"});
    let ended = json!({"domain": "*", "key": "a", "value": "b", "tier": "pro", "shadow_mode": true,
        "until": "2026-11-26T13:59:00Z"});
    let mut answer = json!({"source": "redis", "age_s": 0.4, "version": "19", "rows": [
        {"id": "g", "origin": "grant", "version": "19", "state": "in_force", "row": grant},
        {"id": "e", "origin": "operator", "version": "18", "state": "ended", "row": ended}]});
    let expected = "\
2 rows in Redis, read 400ms ago; version 19
shop customer_id=acme, only path x.*, only limit monthly: add 5,000 until 2026-12-01T00:00:00Z (in 4d 10h): \
        a\\nremoved: all [grant, g]
ended: * a=b: tier pro, shadow mode on until 2026-11-26T13:59:00Z (1m ago) [operator, e]
";
    assert_eq!(listed_text(&answer, &here(None)), expected);
    answer["source"] = json!("process");
    answer["rows"] = json!([]);
    assert_eq!(listed_text(&answer, &here(None)), "0 rows of this process only; version 19\n");
}

#[test]
fn removed_rows_are_named() {
    let answer = json!({"removed": [{"id": "b", "version": "20", "before": block()}]});
    let text = removed_text(&answer, &here(None));
    assert_eq!(
        text,
        "removed: shop remote_address=10…#3f9a: block until 2026-11-26T16:00:00Z (in 2h): abuse, by ann [b]\n"
    );
}
