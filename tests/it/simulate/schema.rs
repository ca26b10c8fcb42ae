//! The report has exactly the fields that its schema describes.

use serde_json::Value;

use super::Simulation;
use crate::support::json_schema;

const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { name: users, unit: second, requests_per_unit: 1, algorithm: gcra } }
";

#[test]
fn the_report_has_the_fields_of_its_schema() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/simulate-report.schema.json");
    let schema = std::fs::read_to_string(path).expect("the schema");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let map = "domain: d\ntime: { from: t, unit: ms }\ndescriptors:\n  - - { key: user, from: user }\n\
               good: code == 200\nwas_limited: code == 429\n";
    let line = |at: u64| {
        format!("{{\"t\":{},\"user\":\"u{}\",\"code\":200}}\n", 1_776_284_220_000 + at * 100, at % 3)
    };
    let log: String = (0..100).map(line).collect::<String>() + "nonsense\n";
    let full = Simulation::new(RULES)
        .map(map)
        .file("--compare", "old.yaml", RULES.replace("unit: 1", "unit: 2").as_bytes())
        .log("a.json", log)
        .with(&["--algorithms", "--recommend", "--max-keys-hit", "100", "--lenient"])
        .succeed();
    assert!(full.of_rule("users", "over") > 0, "every list has an element");
    json_schema::check(&full.report, &schema, "report");
    let empty = Simulation::new(RULES).map(map).log("a.json", "").succeed();
    json_schema::check(&empty.report, &schema, "empty report");
}
