//! Secret values: no page, no answer and no line of the log shows one, and the counters count as they do with values in
//! clear.

use std::fs;

use serde_json::{Value, json};

use crate::support::grpc::{Code, Rls};
use crate::support::http::{self, Response};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;

/// The key of the hashes.
pub(crate) const KEY: &str = "c0ffee00c0ffee00c0ffee00c0ffee00";

/// Secret values; each contains this text.
const TRACE: &str = "4f8a0c1b9d2e7f6a";
pub(crate) const TOKEN: &str = "sk-4f8a0c1b9d2e7f6a";
const RULE_TOKEN: &str = "vip-4f8a0c1b9d2e7f6a";

/// `api_key` is secret at the first level, `token` below a tenant. The rule of `api_key` with a value names a token.
pub(crate) const RULES: &str = "
domain: api
descriptors:
  - key: api_key
    secret: true
    rate_limit: { unit: year, requests_per_unit: 2, algorithm: gcra }
    descriptors: [{ key: path, rate_limit: { unit: year, requests_per_unit: 5 } }]
  - key: api_key
    value: vip-4f8a0c1b9d2e7f6a
    secret: true
    rate_limit: { unit: year, requests_per_unit: 9 }
  - key: tenant
    descriptors:
      - key: token
        value: 'tk-*'
        share_threshold: false
        secret: true
        rate_limit: { unit: year, requests_per_unit: 5, algorithm: sliding_log }
";

fn entries(pairs: &[(&str, &str)]) -> Value {
    let entries: Value = pairs.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    json!({"entries": entries})
}

fn post(port: u16, path: &str, body: &str) -> Response {
    let lines = [&format!("POST {path} HTTP/1.1"), "host: localhost", "content-type: application/json"];
    http::exchange(http::connect(port).expect("a connection"), &lines, body).expect("an answer")
}

fn request(domain: &str, descriptors: &[Value]) -> String {
    json!({"domain": domain, "descriptors": descriptors}).to_string()
}

/// A secret value in every place that a client has for it.
fn requests() -> Vec<(String, Vec<Value>)> {
    let secret = entries(&[("api_key", TOKEN)]);
    let long = format!("{TRACE}{}", "x".repeat(20_000));
    let mut overridden = entries(&[("user", "ann"), ("token", TOKEN)]);
    overridden["limit"] = json!({"requestsPerUnit": 7, "unit": "HOUR"});
    let of_domain = |descriptors: Vec<Value>| ("api".to_owned(), descriptors);
    vec![
        of_domain(vec![secret.clone(), entries(&[("api_key", RULE_TOKEN)])]),
        of_domain(vec![entries(&[("api_key", TOKEN), ("path", "/v1")])]),
        of_domain(vec![entries(&[("tenant", "acme"), ("token", &format!("tk-{TRACE}"))])]),
        // Without a rule: a level that no rule has, a value that no wildcard matches, another order.
        of_domain(vec![entries(&[("api_key", TOKEN), ("path", "/v1"), ("deeper", "x")])]),
        of_domain(vec![entries(&[("tenant", "acme"), ("token", TOKEN)])]),
        of_domain(vec![entries(&[("path", "/v1"), ("api_key", TOKEN)])]),
        of_domain(vec![entries(&[("api_key", &long)]), overridden]),
        ("nowhere".to_owned(), vec![secret]),
    ]
}

/// Sends secret values and asserts that no answer and no page shows one.
pub(crate) async fn check_that_nothing_is_shown(service: &Ratelimitd) {
    let mut answers = Vec::new();
    for (domain, descriptors) in requests() {
        let answer = post(service.http_port(), "/json", &request(&domain, &descriptors)).body;
        assert!(answer.contains("%k"), "the metadata has a hash: {answer}");
        answers.push(answer);
        for path in ["/counters/show", "/counters/reset"] {
            answers.push(post(service.admin_port(), path, &request(&domain, &descriptors)).body);
        }
    }
    let mut rls = Rls::connect(service.grpc_port()).await;
    for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(rls.send_one("api", &[("api_key", TOKEN)]).await.0, expected);
    }
    let exact = rls.send_one("api", &[("api_key", RULE_TOKEN)]).await.1.current_limit;
    assert_eq!(exact.map(|limit| limit.requests_per_unit), Some(9), "the value in clear is matched");
    // Refused: too many entries, and a body that is not a request.
    let many: Vec<_> = (0..100).map(|_| ("api_key", TOKEN)).collect();
    post(service.http_port(), "/json", &request("api", &[entries(&many)]));
    post(service.http_port(), "/json", &json!({"domain": "api", "descriptors": TOKEN}).to_string());
    for path in ["/", "/rlconfig", "/rules", "/store", "/build"] {
        answers.push(http::get(service.admin_port(), path, &[]).expect(path).body);
    }
    answers.push(http::get(service.http_port(), "/metrics", &[]).expect("metrics").body);
    for answer in answers {
        assert!(!answer.contains(TRACE), "{answer}");
    }
}

/// A service that shows and logs all that it can.
pub(crate) fn talkative(rules: &str) -> Plan {
    let plan = Plan::new(rules).env("SECRETS__KEY", KEY).set("server.drain", "0s");
    plan.set("response.dynamic_metadata", true).set("response.headers", "ietf").set("log.level", "trace")
}

pub(crate) fn check_log(mut service: Ratelimitd) {
    service.terminate();
    let status = service.wait_exit();
    assert!(status.success(), "{status}");
    let log = service.log();
    assert!(log.contains("resetting a counter") && log.contains("TRACE"), "{log}");
    for text in [TRACE, KEY] {
        let line = log.lines().find(|line| line.contains(text));
        assert_eq!(line, None, "the log shows {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_no_answer_and_no_line_of_the_log_shows_a_secret_value() {
    let service = talkative(RULES).start();
    check_that_nothing_is_shown(&service).await;
    check_log(service);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_value_is_hashed_where_the_setting_says_so() {
    let rules = "
domain: api
descriptors: [{ key: api_key, rate_limit: { unit: year, requests_per_unit: 2, algorithm: gcra } }]
";
    let service = talkative(rules).set("secrets.hash_all_values", true).start();
    let body = request("api", &[entries(&[("api_key", TOKEN)]), entries(&[("user", TRACE), ("x", TRACE)])]);
    for (port, path) in [(service.http_port(), "/json"), (service.admin_port(), "/counters/reset")] {
        let answer = post(port, path, &body).body;
        assert!(answer.contains("%k") && !answer.contains(TRACE), "{answer}");
    }
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(rls.send_one("api", &[("api_key", TOKEN)]).await.0, Code::Ok);
    check_log(service);
}

#[test]
fn rules_with_secret_values_need_a_key() {
    let Err(problem) = Plan::new(RULES).try_start() else { panic!("there is no key") };
    let expected =
        "rules.yaml:5: a secret value needs a key for its hash: set secrets.key_file or secrets.key";
    assert!(problem.log.contains(expected), "{problem:?}");
    assert!(!problem.log.contains(TRACE), "{problem:?}");
}

#[test]
fn an_unusable_key_is_refused_and_not_shown() {
    let short = "short-c0ffee";
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("key");
    fs::write(&file, short).expect("a file");
    let path = file.display().to_string();
    let plan = || Plan::new(RULES);
    let table = [
        // settings, message
        (plan().env("SECRETS__KEY", short), "secrets.key: expected 32 to 4096 visible ASCII characters"),
        (plan().set("secrets.key", short), "secrets.key: expected 32 to 4096 visible ASCII characters"),
        (plan().set("secrets.key_file", path.as_str()), "key: the first line must have 32 to 4096"),
        (
            plan().set("secrets.key_file", "/nowhere/key"),
            "secrets.key_file: /nowhere/key: No such file or directory",
        ),
        (plan().set("secrets.key_file", "/"), "secrets.key_file: /: not a regular file"),
        (
            plan().set("secrets.key_file", path.as_str()).env("SECRETS__KEY", KEY),
            "secrets.key_file: the key is set already",
        ),
        (plan().set("secrets.hash_all_values", true), "secrets.hash_all_values: the hashes need a key"),
    ];
    for (plan, message) in table {
        let Err(problem) = plan.try_start() else { panic!("no start without a key: {message}") };
        assert_eq!(problem.status.and_then(|status| status.code()), Some(1), "{problem:?}");
        assert!(problem.log.contains(message), "{message}: {problem:?}");
        assert!(!problem.log.contains("c0ffee"), "{problem:?}");
    }
}

#[test]
fn changed_rules_that_need_a_key_are_refused() {
    let service = Ratelimitd::start(
        "
domain: api
descriptors: [{ key: api_key, rate_limit: { unit: year, requests_per_unit: 2 } }]
",
    );
    let before = http::get(service.admin_port(), "/rlconfig", &[]).expect("an answer").body;
    fs::write(service.rules().join("rules.yaml"), RULES).expect("a rule file");
    let page = || http::get(service.admin_port(), "/rules", &[]).expect("an answer").body;
    wait::expect("the refusal", || page().contains("rules.yaml:5: a secret value needs a key"));
    assert_eq!(http::get(service.admin_port(), "/rlconfig", &[]).expect("an answer").body, before);
    for text in [page(), service.log()] {
        assert!(!text.contains(TRACE), "{text}");
    }
}

#[test]
fn a_problem_with_a_secret_rule_does_not_quote_its_value() {
    let rule =
        |value: &str| format!("{{ key: api_key, secret: true, value: {value}, share_threshold: true }}");
    let rules = format!("domain: api\ndescriptors: [{0}, {0}, {1}]\n", rule(RULE_TOKEN), rule("48012e7"));
    let Err(problem) = Plan::new(&rules).env("SECRETS__KEY", KEY).try_start() else { panic!("bad rules") };
    let log = problem.log;
    for message in [
        "but found key 'api_key_(secret)'",
        "duplicate descriptor composite key 'api.api_key_(secret)'",
        "'value' is what YAML reads as a floating-point number",
    ] {
        assert!(log.contains(message), "{message}: {log}");
    }
    assert!(!log.contains(TRACE) && !log.contains("48012"), "{log}");
}
