//! The alert rules and the dashboard, in a real Prometheus that scrapes the running service.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::certificates::{Authority, Identity};
use crate::support::daemon::Daemon;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::{http, ports, wait};
use crate::tools::{REMEDY, document, in_project, read, run};

const ALERTS: &str = "deploy/prometheus/ratelimitd.rules.yaml";
const DASHBOARD: &str = "deploy/grafana/ratelimitd.json";

const RULES: &str = "
domain: live
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra, on_store_failure: allow }
  - key: trial
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 1, on_store_failure: allow }
  - key: login
    rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra, penalty: { after: 10, within: 1m, for: 15m } }
  - key: api
    rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra, feedback: { max: 10m } }
  - key: settled
    rate_limit:
      { name: settled, unit: year, requests_per_unit: 1000000, algorithm: gcra, settle: true, on_store_failure: allow }
  - key: reserved
    rate_limit:
      { name: reserved, unit: year, requests_per_unit: 1000000, algorithm: gcra, reserve: 5, on_store_failure: allow }
  - key: stream
    rate_limit: { unit: hour, requests_per_unit: 10000, algorithm: concurrency, on_store_failure: allow }
";

const EXCEPTIONS: &str = r#"
- { domain: live, key: settled, value: acme, multiplier: 2 }
"#;

#[test]
fn promtool_accepts_the_alerts_and_their_tests() {
    let printed = run("promtool", &["check", "rules", "--lint=all", "--lint-fatal", ALERTS]);
    assert!(printed.contains("35 rules found"), "{printed}");
    run("promtool", &["test", "rules", "deploy/prometheus/ratelimitd.rules.test.yaml"]);
}

/// A Prometheus that scrapes services every 200 ms.
struct Prometheus {
    port: u16,
    _directory: TempDir,
    _daemon: Daemon,
}

impl Prometheus {
    fn start(services: &[&Ratelimitd]) -> Self {
        let targets: Vec<String> =
            services.iter().map(|service| format!("127.0.0.1:{}", service.http_port())).collect();
        let directory = TempDir::new().expect("a temporary directory");
        let configuration = json!({
            "global": {"scrape_interval": "200ms"},
            "scrape_configs": [{
                "job_name": "ratelimitd",
                "static_configs": [{"targets": targets}],
            }],
            "rule_files": [in_project(ALERTS)],
        });
        let file = directory.path().join("prometheus.yaml");
        std::fs::write(&file, configuration.to_string()).expect("a configuration file");
        let port = ports::free();
        let mut daemon = Daemon::spawn("prometheus", REMEDY, &mut command(&file, directory.path(), port));
        let ready = daemon
            .wait_ready(|_| http::get(port, "/-/ready", &[]).ok().filter(|answer| answer.status == 200));
        ready.unwrap_or_else(|problem| panic!("Prometheus does not become ready: {problem:?}"));
        Self { port, _directory: directory, _daemon: daemon }
    }

    /// The series that an expression yields now.
    fn query(&self, expression: &str) -> Vec<Value> {
        let encoded: String = url::form_urlencoded::byte_serialize(expression.as_bytes()).collect();
        let answer = http::get(self.port, &format!("/api/v1/query?query={encoded}"), &[]).expect("an answer");
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!(body["status"], "success", "{expression}: {body}");
        body["data"]["result"].as_array().expect("series").clone()
    }
}

fn command(file: &Path, directory: &Path, port: u16) -> Command {
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    command
}

fn ask(service: &Ratelimitd, domain: &str, key: &str, value: &str) {
    send(service, domain, json!({"entries": [{"key": key, "value": value}]}));
}

/// Sends a request of one descriptor to `/json`, and returns the body of the answer.
fn send(service: &Ratelimitd, domain: &str, descriptor: Value) -> String {
    let request = json!({"domain": domain, "descriptors": [descriptor]}).to_string();
    let stream = http::connect(service.http_port()).expect("the HTTP port");
    http::exchange(stream, &["POST /json HTTP/1.1", "host: localhost"], &request).expect("an answer").body
}

/// An estimate and its settle, a check and its charge.
fn make_quota_traffic(service: &Ratelimitd) {
    let settled = json!({"key": "settled", "value": "acme"});
    let answer = send(service, "live", json!({"entries": [settled], "hitsAddend": 20}));
    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
    // Without Redis the answer has no receipt.
    if let Some(receipt) = answer["dynamicMetadata"]["receipt"].as_str() {
        let receipt = json!({"key": "ratelimitd_receipt", "value": receipt});
        send(service, "live", json!({"entries": [settled, receipt], "hitsAddend": 15}));
    }
    for hits in [0, 7] {
        let reserved = json!({"key": "reserved", "value": "acme"});
        send(service, "live", json!({"entries": [reserved], "hitsAddend": hits}));
    }
}

/// Requests with every outcome, by users of their own, so that each round increases each count.
fn make_traffic(service: &Ratelimitd, round: usize) {
    let user = format!("user-{round}");
    for _ in 0..7 {
        for (domain, key) in
            [("live", "user"), ("live", "trial"), ("live", "stream"), ("unknown", "user"), ("", "user")]
        {
            ask(service, domain, key, &user);
        }
    }
    make_quota_traffic(service);
}

/// The expressions of the dashboard, with values for the variables that Grafana sets.
fn dashboard_queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let text = |target: &Value| target["expr"].as_str().expect("an expression").to_owned();
    let variables = [("$__rate_interval", "1m"), ("$job", ".*"), ("$instance", ".*"), ("$domain", ".*")];
    let filled =
        |query: String| variables.iter().fold(query, |query, (name, value)| query.replace(name, value));
    targets.map(text).map(filled).collect()
}

/// The expressions of the alerts without the comparison at the end: an alert yields a series only while it fires.
fn alert_queries() -> Vec<String> {
    let alerts = document(&read(ALERTS));
    let rules = alerts["groups"][0]["rules"].as_array().expect("rules").clone();
    let expression = |rule: &Value| rule["expr"].as_str().expect("an expression").to_owned();
    let without_comparison = |query: String| {
        let end = query
            .rfind(" > ")
            .or_else(|| query.rfind(" < "))
            .or_else(|| query.rfind(" != "))
            .unwrap_or_else(|| panic!("no comparison: {query}"));
        query[..end].to_owned()
    };
    rules.iter().map(expression).map(without_comparison).collect()
}

/// A service with the metrics of TLS and xDS, which begin at 0. No xDS server listens.
fn tls_and_xds(identity: &Identity) -> Ratelimitd {
    let path = |path: &Path| path.display().to_string();
    Plan::default()
        .set("server.grpc.tls.cert_file", path(&identity.certificate))
        .set("server.grpc.tls.key_file", path(&identity.key))
        .set("rules.xds.address", format!("localhost:{}", ports::free()))
        .wait_for_livez()
        .start()
}

/// A name or a label with a typing error, or a metric that exists no more, yields no series.
#[test]
fn every_panel_and_every_alert_finds_series_of_the_running_service() {
    let mut redis = Redis::start();
    let exceptions = TempDir::new().expect("a folder");
    std::fs::write(exceptions.path().join("rows.yaml"), EXCEPTIONS).expect("a file of exceptions");
    let path = exceptions.path().display().to_string();
    let usage = TempDir::new().expect("a folder");
    let ledger = usage.path().display().to_string();
    let plan = Plan::new(RULES).redis(&redis.url()).set("exceptions.path", path).set("ledger.path", ledger);
    let service = plan.start();
    let authority = Authority::new();
    let with_tls_and_xds = tls_and_xds(&authority.certificate_for(&["localhost"]));
    let prometheus = Prometheus::start(&[&service, &with_tls_and_xds]);
    let queries: Vec<String> = dashboard_queries().into_iter().chain(alert_queries()).collect();
    assert!(queries.len() > 30, "{} queries", queries.len());

    std::fs::write(service.rules().join("bad.yaml"), "domain: [").expect("a bad rule file");
    std::fs::write(exceptions.path().join("bad.csv"), "domain,key").expect("a bad file of exceptions");
    let mut missing = queries;
    let mut round = 0;
    // Rates need two scrapes, before and after an increase, so traffic goes on while Prometheus scrapes.
    let mut search_until = |is_done: fn(&[String]) -> bool| {
        let found = wait::until(Duration::from_secs(60), || {
            round += 1;
            make_traffic(&service, round);
            missing.retain(|query| prometheus.query(query).is_empty());
            is_done(&missing).then_some(())
        });
        assert!(found.is_some(), "no series for:\n{}", missing.join("\n"));
    };
    search_until(|missing| missing.iter().all(|query| !query.contains("outcome=")));
    redis.stop();
    search_until(|missing| missing.is_empty());
}
