//! What clients and rows have written cannot drive the terminal of an operator: no command prints a control character,
//! or one that turns a line, and a value stays on its line.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::console::{ask, state_with};
use crate::support::http;
use crate::support::process::Ratelimitd;
use crate::support::program::program_of;

const RULES: &str = "
domain: edge
descriptors: [{ key: user, rate_limit: { name: per-user, unit: year, requests_per_unit: 1 } }]
";
/// An escape sequence, C1 controls, marks that turn a line, separators of lines.
const HOSTILE: &str = "\u{202e}\u{9b}31m\u{1b}[31m\u{7}\u{2066}x\u{2028}\u{85}\nnext";

fn is_hostile(letter: char) -> bool {
    base::is_hostile(letter) && letter != '\n'
}

#[track_caller]
fn assert_harmless(what: &str, text: &str) {
    assert!(!text.contains(is_hostile), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("next")), "{what}: {text:?}");
}

/// Runs a command, and returns what it prints.
fn printed(arguments: &[&str]) -> String {
    let Output { stdout, stderr, .. } =
        Command::new(program_of(arguments)).args(arguments).output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (out, error) = (text(stdout), text(stderr));
    assert_harmless(&format!("{arguments:?}"), &out);
    assert_harmless(&format!("{arguments:?}"), &error);
    out
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, content: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, content).expect("a file");
        text(&path).to_owned()
    }
}

#[test]
fn explain_prints_values_and_rows_on_one_line() {
    let files = Files::new();
    let rules = files.write("rules.yaml", RULES);
    let row = json!([{
        "domain": "edge", "key": "user", "value": HOSTILE, "multiplier": 2, "reason": HOSTILE, "by": HOSTILE,
    }]);
    // YAML has these characters by their numbers only.
    let number = |letter: char| {
        if is_hostile(letter) { format!("\\u{:04x}", u32::from(letter)) } else { letter.to_string() }
    };
    let rows = files.write("rows.yaml", &row.to_string().chars().map(number).collect::<String>());
    let descriptor = format!("user={HOSTILE}");
    let domain = ["--domain", "edge", &descriptor];
    let shown = printed(&[&["explain", "--rules", &rules, "--exceptions", &rows][..], &domain].concat());
    assert!(
        shown.contains("reason") && shown.contains(r"\u{1b}[31m") && shown.contains(r"\u{202e}"),
        "{shown}"
    );
    let service = Ratelimitd::start(RULES);
    let admin = format!("127.0.0.1:{}", service.admin_port());
    assert!(printed(&[&["explain", "--admin", &admin][..], &domain].concat()).contains(r"\u{1b}"));
    printed(&["explain", "--rules", &rules, "--domain", HOSTILE, &descriptor]);
}

#[test]
fn check_counters_and_top_print_values_on_one_line() {
    let service = Ratelimitd::start(RULES);
    let [grpc, admin] = [service.grpc_port(), service.admin_port()].map(|port| format!("127.0.0.1:{port}"));
    let descriptor = format!("user={HOSTILE}");
    let request = ["--domain", "edge", &descriptor];
    let check = [&["check", "--timeout", "10s", "--address", &grpc][..], &request].concat();
    assert!(
        printed(&check).contains(r"user=\u{202e}\u{9b}31m\u{1b}[31m\u{7}\u{2066}x\u{2028}\u{85}\nnext: OK")
    );
    printed(&[&check[..], &["--json"]].concat());
    for action in ["show", "reset"] {
        let counters = [&["counters", action, "--admin", &admin][..], &request].concat();
        printed(&counters);
        let json = printed(&[&counters[..], &["--json"]].concat());
        let json: Value = serde_json::from_str(&json).expect("JSON");
        // The key has the value itself, escaped as a key is.
        assert!(json["counters"][0]["key"].as_str().is_some_and(|key| key.contains("next")), "{json}");
    }
    for _ in 0..2 {
        ask(&service, "edge", &[("user", HOSTILE)]);
    }
    let state = state_with(&service, "a key", |state| !state["keys"][0].is_null());
    // The value begins with the two characters that are shown of it.
    let masked = state["keys"][0]["entries"][0][1].as_str().expect("a masked value").to_owned();
    assert!(masked.starts_with("\u{202e}\u{9b}…#"), "{masked:?}");
    let page = http::get(service.admin_port(), "/console/state", &[]).expect("an answer").body;
    assert_harmless("/console/state", &page);
    let json = printed(&["top", "--json", "--admin", &admin]);
    assert!(json.contains(r"\u202e\u009b"), "{json}");
    printed(&["top", "--once", "--admin", &admin]);
}

#[test]
fn simulate_prints_lines_and_keys_on_one_line() {
    let files = Files::new();
    let rules = files.write("rules.yaml", RULES);
    let map = files
        .write("map.yaml", "domain: edge\ntime: { from: t }\ndescriptors: [[{ key: user, from: user }]]\n");
    let line =
        |second: u32| json!({"t": format!("2026-11-26T00:00:0{second}Z"), "user": HOSTILE}).to_string();
    let log = files.write("access.log", &format!("{}\n{}\n", line(1), line(2)));
    let simulate = ["simulate", "--rules", &rules, "--map", &map];
    let explained = printed(&[&simulate[..], &["--explain-line", "1", &log]].concat());
    assert!(explained.contains(r"\u{202e}"), "{explained}");
    let page = files.0.path().join("report.html");
    let table = printed(&[&simulate[..], &["--show-keys", "--report", text(&page), &log]].concat());
    assert!(table.contains("user="), "{table}");
    assert_harmless("the report page", &fs::read_to_string(&page).expect("a page"));
    let json = printed(&[&simulate[..], &["--report-json", "-", "--show-keys", &log]].concat());
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert!(report.to_string().contains("\u{202e}"), "the JSON means the value");
}
