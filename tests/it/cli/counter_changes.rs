//! `ratelimitctl counters set`, `add`, `import` and `reset --limit-name`, in memory and in Redis.

use std::io::Write as _;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::counters::counters_of;
use crate::support::grpc::{Code, Rls};
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};

pub(crate) const RULES: &str = "
domain: shop
descriptors:
  - key: customer
    rate_limits:
      - { name: monthly, unit: year, requests_per_unit: 1000, algorithm: fixed_window }
      - { name: burst, unit: year, requests_per_unit: 100, algorithm: gcra }
      - { name: zoned, unit: year, requests_per_unit: 50, algorithm: fixed_window, calendar: Europe/Berlin }
      - { name: sliding, unit: year, requests_per_unit: 200, algorithm: sliding_window }
      - { name: log, unit: year, requests_per_unit: 30, algorithm: sliding_log }
      - { name: bucket, unit: year, requests_per_unit: 40, algorithm: token_bucket }
  - { key: plain, rate_limit: { unit: year, requests_per_unit: 5 } }
  - { key: off, rate_limit: { name: off, unit: year, requests_per_unit: 0 } }
";

fn shop(service: &Ratelimitd, arguments: &[&str]) -> (Option<i32>, String, String) {
    counters_of(service, "shop", arguments)
}

/// The units left of each limit.
fn left(service: &Ratelimitd, descriptor: &str) -> Vec<(String, u64)> {
    let (_, answer, error) = shop(service, &["show", "--json", descriptor]);
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{error}"));
    let counters = answer["counters"].as_array().expect("a list").iter();
    let numbers = counters.map(|counter| (counter["name"].clone(), counter["remaining"].as_u64()));
    numbers.map(|(name, left)| (name.as_str().expect("a name").to_owned(), left.expect("units"))).collect()
}

fn with(left: &[(String, u64)], name: &str, units: u64) -> Vec<(String, u64)> {
    let changed = |(limit, left): &(String, u64)| (limit.clone(), if limit == name { units } else { *left });
    left.iter().map(changed).collect()
}

/// `prefix` is that of the keys.
pub(crate) async fn check_changes(service: &Ratelimitd, prefix: &str) {
    let unused = left(service, "customer=acme");
    assert_eq!(unused.len(), 6);
    for (name, limit) in &unused {
        let (name, all, used) = (name.as_str(), *limit, limit - 3);
        let set = |used: u64| {
            let used = used.to_string();
            shop(
                service,
                &["set", "--limit-name", name, "--used", &used, "--reason", "go-live", "customer=acme"],
            )
        };
        let (code, text, error) = set(used);
        assert_eq!((code, error.as_str()), (Some(0), ""));
        assert!(text.starts_with(prefix), "{text}");
        assert!(text.ends_with(&format!(": {used} used, 3 left ({name})\n")), "{text}");
        // Only this limit.
        assert_eq!(left(service, "customer=acme"), with(&unused, name, 3));
        let add = |units: &str| {
            shop(service, &["add", "--limit-name", name, "--units", units, "--reason", "t", "customer=acme"])
        };
        for (units, expected) in [("2", 1), ("-4", 5), ("-100000", all), ("3", all - 3)] {
            let (code, text, error) = add(units);
            assert_eq!(code, Some(0), "{error}");
            assert!(text.contains(&format!("{} used, {expected} left", all - expected)), "{units}: {text}");
            assert_eq!(left(service, "customer=acme"), with(&unused, name, expected));
        }
        set(0);
        assert_eq!(left(service, "customer=acme"), unused, "{name}");
    }
    check_denied_key(service).await;
    for message in ["changing a counter through the admin port", "counter changed through the admin port"] {
        let log = service.log_with(message);
        let is_masked = |line: &str| line.contains("shop customer=") && !line.contains("customer=acme");
        let is_whole = |line: &str| line.contains("go-live") && line.contains("peer=") && is_masked(line);
        assert!(log.lines().any(|line| line.contains(message) && is_whole(line)), "{log}");
    }
}

/// A key that is denied, also by the deny cache, passes after the change.
async fn check_denied_key(service: &Ratelimitd) {
    let mut rls = Rls::connect(service.grpc_port()).await;
    for lift in
        [&["set", "--used", "3"][..], &["add", "--units", "-2"], &["reset", "--limit-name", "shop.plain"]]
    {
        let (code, _, error) = shop(service, &["set", "--used", "5", "plain=x"]);
        assert_eq!(code, Some(0), "{error}");
        for _ in 0..3 {
            assert_eq!(rls.send_one("shop", &[("plain", "x")]).await.0, Code::OverLimit);
        }
        // It has counted what it denied.
        shop(service, &["set", "--used", "5", "plain=x"]);
        assert_eq!(rls.send_one("shop", &[("plain", "x")]).await.0, Code::OverLimit);
        shop(service, &["set", "--used", "5", "plain=x"]);
        let (code, _, error) = shop(service, &[lift, &["plain=x"]].concat());
        assert_eq!(code, Some(0), "{error}");
        for _ in 0..2 {
            assert_eq!(rls.send_one("shop", &[("plain", "x")]).await.0, Code::Ok, "{lift:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_in_memory_are_set_and_added_to() {
    check_changes(&Ratelimitd::start(RULES), "{shop|customer=acme}").await;
}

#[test]
fn only_the_named_limit_is_reset() {
    let service = Ratelimitd::start(RULES);
    let unused = left(&service, "customer=acme");
    for name in ["monthly", "burst"] {
        shop(&service, &["set", "--limit-name", name, "--used", "7", "customer=acme"]);
    }
    let (code, text, error) = shop(&service, &["reset", "--limit-name", "monthly", "customer=acme"]);
    assert_eq!((code, text.lines().count(), error.as_str()), (Some(0), 1, ""));
    assert_eq!(left(&service, "customer=acme"), with(&unused, "burst", 93));
}

#[test]
fn what_cannot_be_changed_is_refused_with_the_reason() {
    let service = Ratelimitd::start(RULES);
    let before = left(&service, "customer=acme");
    let names = r#""monthly", "burst", "zoned", "sliding", "log", "bucket""#;
    let table = [
        (
            &["set", "--limit-name", "montly", "--used", "7", "customer=acme"][..],
            format!("choose a limit by its name, one of: {names}"),
        ),
        (&["add", "--units", "7", "customer=acme"], format!("choose a limit by its name, one of: {names}")),
        (
            &["reset", "--limit-name", "montly", "customer=acme"],
            format!("choose a limit by its name, one of: {names}"),
        ),
        (
            &["set", "--used", "7", "user=ann"],
            "no counted limit in domain \"shop\" matches this request".to_owned(),
        ),
        (
            &["set", "--used", "7", "off=x"],
            "a limit of 0 or an exception blocks the descriptor, so it has no counter to change".to_owned(),
        ),
        (
            &["set", "--limit-name", "monthly", "--used", "4503599627370497", "customer=acme"],
            "used must be a whole number of at most 2^52".to_owned(),
        ),
        (
            &["add", "--limit-name", "monthly", "--units", "-4503599627370497", "customer=acme"],
            "units must be a whole number of at most 2^52".to_owned(),
        ),
        (
            &["set", "--limit-name", "burst", "--used", "201", "customer=acme"],
            "used may be at most 200 for the limit burst, whose algorithm keeps no more".to_owned(),
        ),
    ];
    for (arguments, reason) in table {
        let (code, text, error) = shop(&service, arguments);
        let expected = format!("ratelimitctl counters: {reason}\n");
        assert_eq!((code, text.as_str(), error), (Some(2), "", expected), "{arguments:?}");
    }
    let (code, _, error) = counters_of(&service, "shp", &["set", "--used", "1", "plain=x"]);
    let expected = "ratelimitctl counters: no rules for domain \"shp\"; did you mean \"shop\"?\n";
    assert_eq!((code, error.as_str()), (Some(2), expected));
    assert_eq!(left(&service, "customer=acme"), before, "nothing has changed");

    // As for a reset, the reason may be missing.
    let (code, _, error) =
        shop(&service, &["set", "--limit-name", "monthly", "--used", "4503599627370496", "customer=acme"]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(left(&service, "customer=acme"), with(&before, "monthly", 0));
    let log = service.log_with("counter changed through the admin port");
    assert!(!log.lines().any(|line| line.contains("counter changed") && line.contains("reason=")), "{log}");
}

#[test]
fn no_command_changes_the_counter_of_a_blocked_value() {
    let service = Ratelimitd::start(RULES);
    shop(&service, &["set", "--limit-name", "monthly", "--used", "900", "customer=acme"]);
    let row = |row: Value| json!({"reason": "INC-42", "rows": [row]});
    let key = json!({"domain": "shop", "key": "customer", "value": "acme"});
    let block = |more: Value| {
        let mut columns = key.clone();
        columns.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let answer = post(&service, "/exceptions/set", &row(columns), "");
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    block(json!({"block": true}));
    let reason = "a limit of 0 or an exception blocks the descriptor, so it has no counter to change";
    for change in [&["set", "--used", "7"][..], &["add", "--units", "-7"], &["reset"]] {
        let (code, text, error) = shop(&service, &[change, &["customer=acme"]].concat());
        let expected = format!("ratelimitctl counters: {reason}\n");
        assert_eq!((code, text.as_str(), error), (Some(2), "", expected), "{change:?}");
    }
    block(json!({"block": true, "limit_name": "burst"}));
    let removed = post(&service, "/exceptions/remove", &json!({"reason": "INC-42", "rows": [key]}), "");
    assert_eq!(removed.status, 200, "{removed:?}");
    let (code, text, error) =
        shop(&service, &["add", "--limit-name", "monthly", "--units", "50", "customer=acme"]);
    assert_eq!(code, Some(0), "one blocked limit does not protect the others: {error}");
    assert!(text.contains("950 used"), "{text}");
}

fn post(service: &Ratelimitd, path: &str, body: &Value, token: &str) -> http::Response {
    let (line, length) = (format!("POST {path} HTTP/1.1"), body.to_string());
    let authorization = format!("authorization: Bearer {token}");
    let lines = [line.as_str(), "host: localhost", "content-type: application/json", &authorization];
    let stream = http::connect(service.admin_port()).expect("a connection");
    http::exchange(stream, &lines, &length).expect("an answer")
}

#[test]
fn a_change_needs_the_token_of_an_operator() {
    let token = |text: &str| {
        let mut file = NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        file
    };
    let (viewer, operator) = (token("viewer"), token("operator"));
    let path = |file: &NamedTempFile| file.path().display().to_string();
    let plan = Plan::new(RULES).set("server.admin.token_file", path(&viewer));
    let service = plan.set("server.admin.operator_token_file", path(&operator)).start();
    let descriptor = json!({"entries": [{"key": "plain", "value": "x"}]});
    for (url, field) in [("/counters/set", "used"), ("/counters/add", "units")] {
        let body = json!({"domain": "shop", "descriptors": [descriptor], field: 2});
        for (token, status) in [("viewer", 403), ("guess", 401), ("operator", 200)] {
            let answer = post(&service, url, &body, token);
            assert_eq!(answer.status, status, "{url} {token}: {}", answer.body);
        }
        let other = if field == "used" { "units" } else { "used" };
        let body = json!({"domain": "shop", "descriptors": [descriptor], other: 2});
        let answer = post(&service, url, &body, "operator");
        let expected = format!("{field} must be a whole number of at most 2^52\n");
        assert_eq!((answer.status, answer.body), (400, expected), "{url}");
    }
    for (body, reason) in [
        (
            json!({"domain": "shop", "descriptors": [], "used": 1}),
            "rate limit descriptor list must not be empty",
        ),
        (
            json!({"domain": "shop", "descriptors": [descriptor, {"entries": [{"key": "plain", "value": "y"}]}], "used": 1}),
            "choose a limit by its name, one of: \"shop.plain\", \"shop.plain\"",
        ),
        (
            json!({"domain": "shop", "descriptors": [descriptor], "limit_name": 3, "used": 1}),
            "invalid type: integer `3`, expected a string",
        ),
        (
            json!({"domain": "shop", "descriptors": [descriptor], "used": 1, "reason": "x".repeat(201)}),
            "the reason must be a text of at most 200 characters",
        ),
        (json!([]), "invalid type: sequence, expected an object at line 1 column 0"),
    ] {
        let answer = post(&service, "/counters/set", &body, "operator");
        assert_eq!((answer.status, answer.body), (400, format!("{reason}\n")));
    }
}

/// 100 good rows, and rows that fail among them.
#[test]
fn counters_are_imported_from_csv_and_again() {
    let service = Ratelimitd::start(RULES);
    let mut file = NamedTempFile::new().expect("a file");
    let mut text = "customer;used\r\n".to_owned();
    for index in 0..100 {
        text.push_str(&format!("c{index};{index}\r\n"));
    }
    text.push_str("acme;many\nacme\n\"quo;ted\";5\nacme;4503599627370497\n");
    file.write_all(text.as_bytes()).expect("written");
    let path = file.path().display().to_string();
    for _ in 0..2 {
        let (code, output, error) =
            shop(&service, &["import", "--limit-name", "monthly", "--reason", "go-live", &path]);
        assert_eq!((code, output.as_str()), (Some(1), "101 counters set, 3 not\n"), "{error}");
        let expected = [
            format!("{path}:102: used must be a whole number"),
            format!("{path}:103: expected 2 columns, found 1"),
            format!("{path}:105: used must be a whole number of at most 2^52"),
        ];
        assert_eq!(error.lines().collect::<Vec<_>>(), expected);
        for (descriptor, used) in
            [("customer=c0", 0), ("customer=c41", 41), ("customer=c99", 99), ("customer=quo;ted", 5)]
        {
            assert_eq!(left(&service, descriptor)[0], ("monthly".to_owned(), 1000 - used), "{descriptor}");
        }
    }
    assert_eq!(left(&service, "customer=acme")[0].1, 1000);
}

#[test]
fn an_import_that_sets_nothing_stops() {
    let service = Ratelimitd::start(RULES);
    let import = |text: &str, name: &str| {
        let mut file = NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        shop(&service, &["import", "--limit-name", name, &file.path().display().to_string()])
    };
    let rows: String = (0..500).map(|index| format!("c{index},1\n")).collect();
    let (code, output, error) = import(&format!("customer,used\n{rows}"), "montly");
    assert_eq!((code, output.as_str()), (Some(2), "0 counters set, 100 not\n"));
    assert_eq!(error.lines().count(), 101, "{error}");
    assert!(error.ends_with("stopped, because the service refused 100 counters in a row\n"), "{error}");
    for text in ["", "customer\nacme\n", "customer,units\nacme,3\n"] {
        let (code, output, error) = import(text, "monthly");
        assert_eq!((code, output.as_str()), (Some(2), "0 counters set, 0 not\n"), "{error}");
        assert!(error.contains("the file is empty") || error.contains("must name the columns"), "{error}");
    }
}
