//! The configuration of Alertmanager in `deploy/README.md`, in a real Alertmanager: one dead Redis pages once.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::daemon::Daemon;
use crate::support::{http, ports, wait};
use crate::tools::{REMEDY, document, elements, read};

const ALERTS: &str = "deploy/prometheus/ratelimitd.rules.yaml";

/// The snippet of the page.
fn configuration() -> String {
    let page = read("deploy/README.md");
    let (_, snippet) = page.split_once("```yaml\nroute:").expect("a configuration of Alertmanager");
    let (snippet, _) = snippet.split_once("```").expect("its end");
    format!("route:{snippet}")
}

struct Alertmanager {
    port: u16,
    _directory: TempDir,
    _daemon: Daemon,
}

impl Alertmanager {
    fn start(configuration: &str) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let file = directory.path().join("alertmanager.yaml");
        std::fs::write(&file, configuration).expect("room for a file");
        let port = ports::free();
        let mut command = Command::new("prometheus-alertmanager");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            // No cluster, which would wait for its peers.
            .arg("--cluster.listen-address=");
        let mut daemon = Daemon::spawn("prometheus-alertmanager", REMEDY, &mut command);
        let ready = daemon
            .wait_ready(|_| http::get(port, "/-/ready", &[]).ok().filter(|answer| answer.status == 200));
        ready.unwrap_or_else(|problem| panic!("Alertmanager does not become ready: {problem:?}"));
        Self { port, _directory: directory, _daemon: daemon }
    }

    fn fire(&self, alerts: &Value) {
        let lines = ["POST /api/v2/alerts HTTP/1.1", "host: localhost", "content-type: application/json"];
        let stream = http::connect(self.port).expect("Alertmanager listens");
        let answer = http::exchange(stream, &lines, &alerts.to_string()).expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// The groups that notify a receiver, each as the names of its alerts.
    fn groups(&self, receiver: &str) -> Vec<Vec<String>> {
        let answer = http::get(self.port, "/api/v2/alerts/groups?inhibited=false", &[]).expect("groups");
        let groups: Value = serde_json::from_str(&answer.body).expect("JSON");
        let of_receiver = elements(&groups).filter(|group| group["receiver"]["name"] == receiver);
        let name = |alert: &Value| alert["labels"]["alertname"].as_str().expect("a name").to_owned();
        let names = |group: &Value| {
            let mut names: Vec<_> = elements(&group["alerts"]).map(name).collect();
            names.sort_unstable();
            names
        };
        of_receiver.map(names).filter(|names| !names.is_empty()).collect()
    }
}

/// An alert of the rule file as Prometheus sends it.
fn alert(name: &str, labels: Value) -> Value {
    let rules = document(&read(ALERTS));
    let rule = elements(&rules["groups"][0]["rules"]).find(|rule| rule["alert"] == name);
    let mut labels = labels;
    labels["alertname"] = name.into();
    labels["severity"] = rule.unwrap_or_else(|| panic!("no alert {name}"))["labels"]["severity"].clone();
    json!({ "labels": labels })
}

#[test]
fn one_dead_redis_is_one_page_and_no_ticket() {
    let alertmanager = Alertmanager::start(&configuration());
    alertmanager.fire(&json!([
        alert("RatelimitdCallsFail", json!({"job": "edge"})),
        alert("RatelimitdAnswersByPolicy", json!({"job": "edge", "policy": "allow"})),
        alert("RatelimitdAnswersByPolicy", json!({"job": "edge", "policy": "deny"})),
        alert("RatelimitdBreakerOpen", json!({"job": "edge", "instance": "a"})),
        alert("RatelimitdBreakerOpen", json!({"job": "edge", "instance": "b"})),
        alert("RatelimitdSlow", json!({"job": "edge"})),
        // A Redis that nothing of the job needs: no page.
        alert("RatelimitdBreakerOpen", json!({"job": "batch", "instance": "c"})),
        alert("RatelimitdRulesRefused", json!({"job": "edge", "instance": "a"})),
    ]));
    let page = ["RatelimitdAnswersByPolicy", "RatelimitdAnswersByPolicy", "RatelimitdCallsFail"];
    wait::expect("one page with all alerts of the outage", || alertmanager.groups("pager") == [page]);
    let mut tickets = alertmanager.groups("tickets");
    tickets.sort_unstable();
    assert_eq!(tickets, [["RatelimitdBreakerOpen"], ["RatelimitdRulesRefused"]]);
}

/// Every alert says how urgent it is, and links its own section.
#[test]
fn every_alert_has_a_severity_and_a_section_of_the_runbook() {
    let runbook = read("docs/runbook.md");
    let rules = document(&read(ALERTS));
    for rule in elements(&rules["groups"][0]["rules"]) {
        let name = rule["alert"].as_str().expect("a name");
        let severity = rule["labels"]["severity"].as_str();
        assert!(severity.is_some_and(|severity| ["page", "ticket"].contains(&severity)), "{name}");
        let anchor = name.to_lowercase();
        let url = format!("https://example.com/ratelimitd/docs/runbook.md#{anchor}");
        assert_eq!(rule["annotations"]["runbook_url"], url.as_str(), "{name}");
        assert!(runbook.contains(&format!("\n### {name}\n")), "docs/runbook.md has no section {name}");
    }
}
