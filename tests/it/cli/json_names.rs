//! The names in JSON: the answer of `/json` has those of the protobuf JSON mapping (`overallCode`), everything else has
//! small letters and underscores (`reset_after_us`). No document mixes the two, but for the dynamic metadata, where
//! `hitsAddend` is the name that envoyproxy/ratelimit gives it.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::program::program_of;

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 1, name: peruser, algorithm: gcra, on_over: announce } }
  - { key: ip, rate_limit: { unit: month, unit_multiplier: 2, requests_per_unit: 3 } }
";
const REQUEST: &str =
    r#"{"t_us":1700000000000000,"domain":"shop","descriptors":[{"entries":[{"key":"ip","value":"a"}]}]}"#;
const METADATA: [&str; 2] = ["dynamicMetadata", "dynamic_metadata"];

fn printed(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } =
        Command::new(program_of(arguments)).args(arguments).output().expect("the binary runs");
    assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("UTF-8")
}

/// Adds the names of all maps, without those in the metadata.
fn add_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                names.insert(name.clone());
                if !METADATA.contains(&name.as_str()) {
                    add_names(field, names);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_names(item, names)),
        _ => {}
    }
}

fn is_camel(name: &str) -> bool {
    let letters: Vec<char> = name.chars().collect();
    letters.windows(2).any(|two| two[0].is_lowercase() && two[1].is_uppercase())
}

/// Fails unless each line, or the document as a whole, has names of one kind alone.
fn check(source: &str, text: &str, is_message: bool) {
    let documents: Vec<Value> = serde_json::Deserializer::from_str(text)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{source}: {error}: {text}"));
    assert!(!documents.is_empty(), "{source} has no JSON");
    for document in documents {
        let mut names = BTreeSet::new();
        add_names(&document, &mut names);
        let strange: Vec<_> = names
            .iter()
            .filter(|name| if is_message { name.contains('_') } else { is_camel(name) })
            .collect();
        assert!(strange.is_empty(), "{source}: {strange:?} beside {names:?}");
        let mut own = BTreeSet::new();
        METADATA.iter().for_each(|metadata| add_names(&document[*metadata], &mut own));
        own.retain(|name| is_camel(name));
        assert!(own.is_subset(&BTreeSet::from(["hitsAddend".to_owned()])), "{source}: {own:?}");
    }
}

fn service() -> Ratelimitd {
    Plan::new(RULES)
        .set("response.dynamic_metadata", true)
        .set("response.headers", "envoy_ratelimit")
        .set("log.format", "json")
        .set("log.level", "info")
        .start()
}

#[test]
fn no_document_mixes_two_kinds_of_names() {
    let service = service();
    let (grpc, admin) = (service.grpc_port(), service.admin_port());
    let [grpc, admin] = [grpc, admin].map(|port| format!("127.0.0.1:{port}"));
    let asked = json!({"domain": "shop", "hitsAddend": 2, "descriptors": [
        {"entries": [{"key": "user", "value": "ann"}], "hitsAddend": 2},
        {"entries": [{"key": "ip", "value": "a"}]},
    ]});
    let lines = ["POST /json HTTP/1.1", "host: localhost"];
    let stream = http::connect(service.http_port()).expect("a connection");
    let answer = http::exchange(stream, &lines, &asked.to_string()).expect("an answer").body;
    assert!(answer.contains("hitsAddend") && answer.contains("announce"), "{answer}");
    check("/json", &answer, true);
    let message = ["check", "--address", &grpc, "--timeout", "10s", "--domain", "shop", "--json", "ip=a"];
    let printed_message = printed(&message);
    assert!(printed_message.contains("\"dynamic_metadata\":{"), "{printed_message}");
    check("check --json", &printed_message, false);

    for page in ["/rules", "/exceptions", "/store", "/tls", "/build", "/console/state"] {
        check(page, &http::get(service.admin_port(), page, &[]).expect("an answer").body, false);
    }
    let url = format!("http://{admin}");
    for action in ["show", "reset"] {
        let arguments = ["counters", action, "--admin", &url, "--domain", "shop", "--json", "ip=a"];
        check("counters --json", &printed(&arguments), false);
    }
    check("top --json", &printed(&["top", "--json", "--admin", &admin]), false);
    check("log", &service.log(), false);
}

#[test]
fn reports_and_replayed_answers_have_small_letters_and_underscores() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let (rules, log) = (file("rules.yaml", RULES), file("log.jsonl", &format!("{REQUEST}\n")));
    check("replay", &printed(&["replay", "--rules", &rules, "--requests", &log]), false);
    let report = printed(&["simulate", "--recommend", "--rules", &rules, "--report-json", "-", &log]);
    check("simulate --report-json", &report, false);
}
