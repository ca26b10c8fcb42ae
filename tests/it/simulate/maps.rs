//! The maps that come with the program.

use std::path::Path;

use super::Simulation;

const ENVOY: &str = "[2026-04-15T20:17:00.310Z] \"GET /users/7?x=1 HTTP/2\" 429 RL 154 0 226 100 \"10.0.0.1, 192.0.2.7\" \
                     \"curl\" \"id\" \"host\" \"10.0.2.1:80\"";
const NGINX: &str = "192.0.2.7 - ann [15/Apr/2026:20:17:00 +0000] \"GET / HTTP/1.1\" 429 612 \"-\" \"curl\"";
const HAPROXY: &str = "192.0.2.7:33317 [15/Apr/2026:20:17:00.655] in static/srv1 10/0/30/69/109 429 2750 - - ---- \
                       1/1/1/1/0 0/0 \"GET / HTTP/1.1\"";
const CADDY: &str = r#"{"ts":1776284220.310,"request":{"remote_ip":"192.0.2.7","headers":{"X-Api-Key":["k1"]}},"status":429}"#;
const LLM: &str = r#"{"start_time":"2026-04-15T20:17:00.310Z","x-tenant":"acme","response_code":429,"gen_ai.usage.total_tokens":"1234"}"#;

#[test]
fn every_shipped_map_reads_a_line_of_its_format() {
    let table = [
        ("api-key.yaml", CADDY, &["descriptor api_key=k1"][..]),
        ("envoy-address.yaml", ENVOY, &["descriptor remote_address=192.0.2.7"]),
        (
            "envoy-path.yaml",
            ENVOY,
            &["descriptor remote_address=192.0.2.7", "descriptor path=/users/*,method=GET"],
        ),
        ("haproxy-address.yaml", HAPROXY, &["descriptor remote_address=192.0.2.7"]),
        ("llm-tokens.yaml", LLM, &["descriptor tenant=acme (1234 units)"]),
        ("nginx-address.yaml", NGINX, &["descriptor remote_address=192.0.2.7"]),
        ("user.yaml", NGINX, &["descriptor api_user=ann"]),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/maps");
    let mut files: Vec<String> = std::fs::read_dir(&folder)
        .expect("the maps")
        .map(|entry| entry.expect("a readable entry").file_name().into_string().expect("UTF-8"))
        .collect();
    files.sort_unstable();
    assert_eq!(files, table.map(|(file, ..)| file), "a map without a test");
    for (file, line, descriptors) in table {
        let map = std::fs::read_to_string(folder.join(file)).expect("a readable map");
        let rules =
            "domain: edge\ndescriptors: [{ key: a, rate_limit: { unit: second, requests_per_unit: 1 } }]\n";
        let explained =
            Simulation::new(rules).map(&map).log("a.log", line).with(&["--explain-line", "1"]).succeed();
        for expected in descriptors.iter().chain(&["good: false", "was_limited: true"]) {
            assert!(explained.stdout.contains(expected), "{file}: {expected}\n{}", explained.stdout);
        }
    }
}

#[test]
fn a_receipt_is_no_entry_of_a_map() {
    let rules =
        "domain: llm\ndescriptors: [{ key: tenant, rate_limit: { unit: minute, requests_per_unit: 9 } }]\n";
    let map = "domain: llm\ntime: { from: start_time }\ncost: { from: tokens }\ndescriptors:\n  - - { key: tenant, \
               from: x-tenant }\n    - { key: ratelimitd_receipt, from: receipt }\n";
    let ended = Simulation::new(rules).map(map).log("a.log", LLM).run();
    assert_ne!(ended.code, 0, "{}", ended.stdout);
    for part in ["map.yaml:6", "'ratelimitd_receipt' is no entry of a descriptor", "'cost'"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}
