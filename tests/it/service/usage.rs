//! `/usage`, and lists of counters: their numbers against a model, for every algorithm, on each store.

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::support::http::{self, Response, connect, exchange};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;

/// Windows last a year, so that none ends during a test, but for the month of a calendar.
pub(crate) const RULES: &str = "
domain: shop
descriptors:
  - key: customer
    rate_limits:
      - { name: monthly, unit: month, requests_per_unit: 4503599627370496, algorithm: fixed_window,
          calendar: Europe/Berlin }
      - { name: yearly, unit: year, requests_per_unit: 100000, tiers: { pro: 200000 } }
      - { name: sliding, unit: year, requests_per_unit: 100000, algorithm: sliding_window }
      - { name: log, unit: year, requests_per_unit: 10000, algorithm: sliding_log }
      - { name: gcra, unit: year, requests_per_unit: 100000, algorithm: gcra, burst: 20000 }
      - { name: bucket, unit: year, requests_per_unit: 100000, algorithm: token_bucket, burst: 30000 }
      - { name: interval, unit: year, requests_per_unit: 100000, algorithm: token_bucket, refill: interval,
          burst: 40000 }
      - { name: leaky, unit: year, requests_per_unit: 100000, algorithm: leaky_bucket, burst: 50000 }
      - { name: soft, unit: year, requests_per_unit: 5, on_over: announce }
      - { name: free, unlimited: true }
  - key: tokens
    rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window, reserve: 10 }
  - key: llm
    rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window, settle: true }
  - key: quiet
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 7, algorithm: gcra }
  - key: part
    quota_mode: true
    rate_limit: { unit: year, requests_per_unit: 9, algorithm: gcra }
  - key: seat
    descriptors:
      - key: plan
        tier: true
        rate_limit: { name: seats, unit: year, requests_per_unit: 50, tiers: { pro: 500 } }
";

/// Name, most units, algorithm, mode.
const LIMITS: [(&str, u64, &str, &str); 9] = [
    ("monthly", 4_503_599_627_370_496, "fixed_window", "enforce"),
    ("yearly", 100_000, "fixed_window", "enforce"),
    ("sliding", 100_000, "sliding_window", "enforce"),
    ("log", 10_000, "sliding_log", "enforce"),
    ("gcra", 20_000, "gcra", "enforce"),
    ("bucket", 30_000, "token_bucket", "enforce"),
    ("interval", 40_000, "token_bucket", "enforce"),
    ("leaky", 50_000, "leaky_bucket", "enforce"),
    ("soft", 5, "fixed_window", "soft"),
];

pub(crate) fn plan() -> Plan {
    Plan::new(RULES)
}

pub(crate) fn descriptor(key: &str, value: &str) -> Value {
    json!({"entries": [{"key": key, "value": value}]})
}

pub(crate) fn send(port: u16, path: &str, body: &Value, token: Option<&str>) -> Response {
    let mut lines = vec![
        format!("POST {path} HTTP/1.1"),
        "host: localhost".into(),
        "content-type: application/json".into(),
    ];
    lines.extend(token.map(|token| format!("authorization: Bearer {token}")));
    exchange(connect(port).expect("a connection"), &lines, &body.to_string()).expect("an answer")
}

pub(crate) fn body(descriptors: &[Value]) -> Value {
    json!({"domain": "shop", "descriptors": descriptors})
}

/// The limits of each descriptor.
pub(crate) fn usage(service: &Ratelimitd, descriptors: &[Value]) -> Vec<Value> {
    let answer = send(service.http_port(), "/usage", &body(descriptors), None);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    answer["usage"].as_array().expect("a list").iter().map(|usage| usage["limits"].clone()).collect()
}

pub(crate) fn charge(service: &Ratelimitd, key: &str, value: &str, hits: u64) {
    let mut descriptor = descriptor(key, value);
    descriptor["hitsAddend"] = hits.into();
    let answer = send(service.http_port(), "/json", &body(&[descriptor]), None);
    assert_eq!(answer.status, 200, "{}", answer.body);
}

fn seconds(time: &Value) -> u64 {
    let time = humantime::parse_rfc3339(time.as_str().expect("a time")).expect("as in RFC 3339");
    time.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Compares all limits of a customer with the units that it has used.
fn check_customer(limits: &Value, used: u64) {
    let limits = limits.as_array().expect("a list");
    assert_eq!(limits.len(), LIMITS.len() + 1);
    for (limit, (name, most, algorithm, mode)) in limits.iter().zip(LIMITS) {
        let shown = json!([limit["name"], limit["limit"], limit["used"], limit["remaining"]]);
        assert_eq!(shown, json!([name, most, used, most.saturating_sub(used)]), "{limit}");
        assert_eq!([&limit["algorithm"], &limit["mode"]], [algorithm, mode], "{limit}");
        assert_eq!((&limit["unlimited"], &limit["rule"]), (&json!(false), &json!("shop.customer")));
        assert_eq!((&limit["tier"], &limit["exceptions"]), (&Value::Null, &json!([])));
        assert_eq!(limit["resets_at"].is_null(), used == 0, "{limit}");
        assert_eq!(limit["refills_at"].is_null(), used == 0, "{limit}");
        let now = seconds(&limit["read_at"]);
        if algorithm == "fixed_window" {
            let (start, end) = (seconds(&limit["window_start"]), seconds(&limit["window_end"]));
            assert!(start <= now && now < end, "{limit}");
            if name == "monthly" {
                // Midnight of Berlin, in winter or in summer.
                assert!([22, 23].contains(&(end / 3_600 % 24)) && end.is_multiple_of(3_600), "{limit}");
                assert!((28..=31).contains(&((end - start + 3_600) / 86_400)), "{limit}");
            } else {
                assert_eq!((end - start, start % (365 * 86_400)), (365 * 86_400, 0), "{limit}");
            }
        } else {
            assert_eq!((&limit["window_start"], &limit["window_end"]), (&Value::Null, &Value::Null));
        }
    }
    let free = &limits[LIMITS.len()];
    assert_eq!((&free["name"], &free["unlimited"]), (&json!("free"), &json!(true)));
    for field in ["limit", "used", "remaining", "window_start", "refills_at", "resets_at", "read_at"] {
        assert!(free.get(field).is_some_and(Value::is_null), "{field}: {free}");
    }
}

pub(crate) fn check_numbers(service: &Ratelimitd) {
    let customers = [("acme", 0), ("bolt", 1), ("cyan", 4), ("dune", 3_333), ("even", 9_999)];
    for (customer, hits) in customers {
        if hits > 0 {
            charge(service, "customer", customer, hits);
        }
    }
    let asked: Vec<_> = customers.iter().map(|(customer, _)| descriptor("customer", customer)).collect();
    for _ in 0..3 {
        let limits = usage(service, &asked);
        for (limits, (_, hits)) in limits.iter().zip(customers) {
            check_customer(limits, hits);
        }
    }
    // A hit in the call, or a refund, changes nothing.
    let mut refund = descriptor("customer", "dune");
    (refund["hitsAddend"], refund["isNegativeHits"]) = (100.into(), true.into());
    let mut hits = descriptor("customer", "dune");
    hits["hitsAddend"] = 50_000.into();
    for limits in usage(service, &[refund, hits]) {
        check_customer(&limits, 3_333);
    }
    let others = usage(service, &["tokens", "quiet", "part", "unknown"].map(|key| descriptor(key, "x")));
    let shown = |limits: &Value| json!([limits[0]["used"], limits[0]["remaining"], limits[0]["mode"]]);
    let expected = [json!([0, 1_000, "enforce"]), json!([0, 7, "shadow"]), json!([0, 9, "quota"])];
    assert_eq!(others.iter().take(3).map(shown).collect::<Vec<_>>(), expected);
    assert_eq!(others[3], json!([]));
    let unknown = json!({"domain": "nowhere", "descriptors": [descriptor("a", "b")]});
    let answer = send(service.http_port(), "/usage", &unknown, None);
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"usage":[{"limits":[]}]}"#));
    // A limit of the request.
    let mut own = descriptor("any", "x");
    own["limit"] = json!({"requestsPerUnit": 3, "unit": "YEAR"});
    let own = &usage(service, &[own])[0][0];
    assert_eq!((&own["limit"], &own["rule"], &own["used"]), (&json!(3), &Value::Null, &json!(0)));
}

#[test]
fn the_numbers_are_those_of_a_model_in_memory() {
    check_numbers(&plan().start());
}

fn ctl(service: &Ratelimitd, arguments: &[&str]) -> String {
    let admin = format!("127.0.0.1:{}", service.admin_port());
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(arguments)
        .args(["--admin", &admin, "--timeout", "60s"])
        .output()
        .expect("the binary runs");
    assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("UTF-8")
}

#[test]
fn tiers_and_exceptions_are_shown_with_their_effect() {
    let service = plan().start();
    charge(&service, "customer", "acme", 700);
    let set = ["exceptions", "set", "--domain", "shop", "customer=acme", "--limit-name", "yearly"];
    let more = ["--reason", "x", "--until", "2h"];
    ctl(&service, &[&set[..], &["--multiplier", "1.5", "--tier", "pro"], &more].concat());
    let grant = ["grant", "--domain", "shop", "customer=acme", "--limit-name", "monthly", "--add", "1"];
    ctl(&service, &[&grant[..], &["--reason", "x"]].concat());
    let block = ["block", "--domain", "shop", "customer=gone", "--for", "2h", "--reason", "x"];
    ctl(&service, &block);
    ctl(
        &service,
        &["exceptions", "set", "--domain", "shop", "quiet=a", "--exempt", "--permanent", "--reason", "x"],
    );
    let limits = usage(
        &service,
        &[descriptor("customer", "acme"), descriptor("customer", "gone"), descriptor("quiet", "a")],
    );
    let yearly = &limits[0][1];
    assert_eq!(yearly["tier"], "pro");
    let shown = json!([yearly["limit"], yearly["used"], yearly["remaining"]]);
    assert_eq!(shown, json!([300_000, 700, 299_300]), "{yearly}");
    assert_eq!(yearly["exceptions"][0]["kind"], "multiplier");
    assert_eq!(yearly["exceptions"][0]["value"], 1.5);
    assert_eq!(
        seconds(&yearly["exceptions"][0]["until"]).abs_diff(seconds(&yearly["read_at"]) + 7_200) / 60,
        0
    );
    let granted = &limits[0][0]["exceptions"][0];
    assert_eq!(json!([granted["kind"], granted["value"]]), json!(["add", 1]));
    assert_eq!(granted["until"], limits[0][0]["window_end"]);
    let gone = &limits[1][1];
    assert_eq!(json!([gone["limit"], gone["used"], gone["remaining"]]), json!([0, null, 0]), "{gone}");
    assert_eq!(gone["exceptions"][0]["kind"], "block");
    assert_eq!(gone["exceptions"][0]["until"], gone["refills_at"]);
    assert_eq!(
        (&limits[2][0]["unlimited"], &limits[2][0]["exceptions"][0]["kind"]),
        (&json!(true), &json!("exempt"))
    );
    let text = ctl(&service, &["usage", "now", "--domain", "shop", "customer=acme", "nothing=x"]);
    let line = text.lines().find(|line| line.contains(" yearly")).expect("a line");
    let words: Vec<_> = line.split_whitespace().take(4).collect();
    assert_eq!(words, ["yearly", "700", "299,300", "300,000"], "{text}");
    assert!(text.ends_with("nothing=x\n  no limit applies\n") && text.contains("unlimited"), "{text}");
    let json = ctl(&service, &["usage", "now", "--domain", "shop", "--json", "customer=acme"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["usage"][0]["limits"][1]["used"], 700);
    // `counters show` has the same fields, beside the key and the exception in words.
    let counters = ctl(&service, &["counters", "show", "--domain", "shop", "--json", "customer=acme"]);
    let counters: Value = serde_json::from_str(&counters).expect("JSON");
    let mut counter = counters["counters"][1].clone();
    let fields = counter.as_object_mut().expect("an object");
    assert!(fields.remove("key").is_some() && fields.remove("exception").is_some(), "{counters}");
    let names = |value: &Value| value.as_object().map(|fields| fields.keys().cloned().collect::<Vec<_>>());
    assert_eq!(names(&counter), names(yearly));
}

#[test]
fn a_call_has_at_most_a_hundred_descriptors() {
    let service = plan().start();
    let descriptors: Vec<_> = (0..101).map(|n| descriptor("customer", &n.to_string())).collect();
    assert_eq!(usage(&service, &descriptors[1..]).len(), 100);
    let answer = send(service.http_port(), "/usage", &body(&descriptors), None);
    let expected = "Bad Request: 101 descriptors, more than the 100 allowed\n";
    assert_eq!((answer.status, answer.body.as_str()), (400, expected));
    for wrong in [json!([]), json!({"domain": "shop"}), json!({"domain": "shop", "descriptor": []})] {
        assert_eq!(send(service.http_port(), "/usage", &wrong, None).status, 400, "{wrong}");
    }
    let page = ["POST /usage HTTP/1.1", "host: localhost", "origin: https://example.org"];
    let page = exchange(connect(service.http_port()).expect("a connection"), &page, "{}").expect("an answer");
    let expected = "/usage does not answer web pages (Origin or Sec-Fetch-Site header)\n";
    assert_eq!((page.status, page.body.as_str()), (403, expected));
}

fn token_file(token: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), token).expect("room for a few bytes");
    file
}

#[test]
fn the_token_of_usage_opens_usage_alone() {
    let (usage, admin) = (token_file("us4ge"), token_file("4dmin"));
    let service = plan()
        .set("server.http.usage_token_file", usage.path().to_string_lossy())
        .set("server.admin.token_file", admin.path().to_string_lossy())
        .start();
    let asked = body(&[descriptor("customer", "acme")]);
    let answer = |token| {
        let answer = send(service.http_port(), "/usage", &asked, token);
        (answer.status, answer.body)
    };
    let missing =
        "/usage needs the header Authorization: Bearer, with the token of server.http.usage_token_file\n";
    assert_eq!(answer(None), (401, missing.to_owned()));
    let wrong = (401, "wrong token: it must be that of server.http.usage_token_file\n".to_owned());
    assert_eq!(answer(Some("wrong")), wrong);
    assert_eq!(answer(Some("4dmin")), wrong);
    assert_eq!(answer(Some("us4ge")).0, 200);
    for path in ["/usage", "/usage/list", "/counters/show", "/counters/reset", "/exceptions/set"] {
        assert_eq!(send(service.admin_port(), path, &asked, Some("us4ge")).status, 401, "{path}");
    }
    assert_eq!(send(service.admin_port(), "/usage", &asked, Some("4dmin")).status, 200);
    assert_eq!(send(service.http_port(), "/json", &asked, None).status, 200, "/json needs no token");
    let log = service.log_with("/usage rejected a wrong token");
    assert!(!log.contains("us4ge") && !log.contains("4dmin"), "{log}");
    fs::write(usage.path(), "n3xt").expect("room for a few bytes");
    assert_eq!((answer(Some("n3xt")).0, answer(Some("us4ge")).0), (200, 401));
    fs::write(usage.path(), "no token").expect("room for a few bytes");
    assert_eq!(
        answer(Some("n3xt")),
        (503, "cannot use the usage token file; all tokens are rejected\n".to_owned())
    );
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    assert!(metrics.contains("ratelimitd_admin_refused_total"), "{metrics}");
}

/// Counters of customers, each with its units.
fn model(count: u64) -> Vec<(String, u64)> {
    (0..count).map(|n| (format!("c,\"{n}"), 1 + n * 7_919 % 9_973)).collect()
}

/// Compares lists with a model: `count` customers with ten counters each.
pub(crate) fn check_list(plan: Plan, count: u64) -> Ratelimitd {
    let admin = token_file("4dmin");
    let token = admin.path().to_string_lossy().into_owned();
    let service = plan.set("server.admin.token_file", token.as_str()).start();
    let mut model = model(count);
    for customers in model.chunks(50) {
        let descriptors: Vec<_> = customers
            .iter()
            .map(|(customer, hits)| {
                let mut descriptor = descriptor("customer", customer);
                descriptor["hitsAddend"] = (*hits).into();
                descriptor
            })
            .collect();
        let answer = send(service.http_port(), "/json", &body(&descriptors), None);
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    charge(&service, "quiet", "other", 3);
    model.sort_by_key(|(_, used)| std::cmp::Reverse(*used));
    let list = |arguments: &[&str]| {
        ctl(&service, &[&["usage", "now", "--domain", "shop", "--token-file", &token], arguments].concat())
    };
    for rule in ["yearly", "monthly", "log", "gcra", "interval"] {
        let read: Value =
            serde_json::from_str(&list(&["--rule", rule, "--top", "40", "--json"])).expect("JSON");
        let counters = read["counters"].as_array().expect("a list");
        let shown: Vec<_> = counters
            .iter()
            .map(|counter| {
                assert_eq!(counter["name"], rule);
                let customer = counter["entries"][0]["value"].as_str().expect("a value").to_owned();
                (customer, counter["used"].as_u64().expect("a number"))
            })
            .collect();
        assert_eq!(shown, model[..40], "{rule}");
        assert!((count..count + 100).contains(&read["seen"].as_u64().expect("a number")), "{read}");
        assert_eq!(read["unknown"], 0);
        assert!(seconds(&read["oldest_at"]) <= seconds(&counters[0]["read_at"]) + 1);
    }
    let csv = list(&["--rule", "shop.customer", "--top", "10000", "--csv"]);
    let mut lines = csv.lines();
    let header = "customer,name,rule,used,remaining,limit,window_start,window_end,resets_at,read_at";
    assert_eq!(lines.next(), Some(header));
    let yearly: Vec<_> = lines.filter(|line| line.contains(",yearly,")).collect();
    let (customer, used) = &model[0];
    let first = format!("\"{}\",yearly,shop.customer,{used},", customer.replace('"', "\"\""));
    assert!(yearly.iter().any(|line| line.starts_with(&first)), "{first}");
    let text = list(&["--rule", "yearly", "--top", "3"]);
    assert!(
        text.contains(&format!("customer={}", model[0].0)) && text.contains("no number is older"),
        "{text}"
    );
    let refused =
        send(service.admin_port(), "/usage/list", &json!({"domain": "shop", "rule": "none"}), Some("4dmin"));
    assert_eq!(refused.status, 404, "{}", refused.body);
    for wrong in
        [json!({"top": 0}), json!({"top": 10_001}), json!({"cursor": "nobody 7"}), json!({"tops": 1})]
    {
        let mut asked = json!({"domain": "shop", "rule": "yearly"});
        asked.as_object_mut().expect("an object").extend(wrong.as_object().expect("an object").clone());
        let refused = send(service.admin_port(), "/usage/list", &asked, Some("4dmin"));
        assert_eq!(refused.status, 400, "{asked}: {}", refused.body);
    }
    service
}

#[test]
fn a_list_has_the_most_used_counters_in_memory() {
    check_list(plan(), 400);
}

#[test]
fn a_list_needs_a_token_and_finds_a_tier_of_the_request_without_it() {
    let token = token_file("4dmin");
    let token_path = token.path().to_string_lossy().into_owned();
    let bare = plan().start();
    let asked = json!({"domain": "shop", "rule": "seats"});
    assert_eq!(send(bare.admin_port(), "/usage/list", &asked, None).status, 403);
    let service = plan().set("server.admin.token_file", token_path.as_str()).start();
    let mut seat = descriptor("seat", "a1");
    seat["entries"].as_array_mut().expect("a list").push(json!({"key": "plan", "value": "pro"}));
    seat["hitsAddend"] = 60.into();
    assert_eq!(send(service.http_port(), "/json", &body(std::slice::from_ref(&seat)), None).status, 200);
    let shown = &usage(&service, &[seat])[0][0];
    assert_eq!(json!([shown["used"], shown["limit"], shown["tier"]]), json!([60, 500, "pro"]));
    let list = send(service.admin_port(), "/usage/list", &asked, Some("4dmin"));
    let list: Value = serde_json::from_str(&list.body).expect("JSON");
    let counter = &list["counters"][0];
    assert_eq!(counter["entries"], json!([{"key": "seat", "value": "a1"}]));
    assert_eq!(
        json!([counter["used"], counter["limit"], counter["tier"]]),
        json!([60, 50, null]),
        "{counter}"
    );
    // A value whose limit has changed since: the counter of a blocked one still has its units.
    let block =
        ["block", "--domain", "shop", "seat=a1", "--for", "2h", "--reason", "x", "--token-file", &token_path];
    ctl(&service, &block);
    wait::expect("the block in the list", || {
        let list = send(service.admin_port(), "/usage/list", &asked, Some("4dmin"));
        let list: Value = serde_json::from_str(&list.body).expect("JSON");
        let counter = &list["counters"][0];
        let shown = json!([counter["used"], counter["limit"], counter["remaining"], counter["resets_at"]]);
        shown == json!([60, 0, 0, null]) && counter["exceptions"][0]["kind"] == "block"
    });
}
