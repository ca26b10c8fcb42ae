//! The report has exactly the fields that its schema describes.

use serde_json::Value;

use super::Simulation;

const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { name: users, unit: second, requests_per_unit: 1, algorithm: gcra } }
";

/// Checks types and names; every name of the schema must be in the report.
fn check(value: &Value, schema: &Value, root: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").expect("a local reference");
        return check(value, &root["$defs"][name], root, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        if !value.is_null() {
            check(value, &any[0], root, at);
        }
        return;
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) => {
            assert!(number.is_u64(), "{at}: {number} is not a whole number");
            "integer"
        }
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed = &schema["type"];
    let is_allowed = allowed == kind || allowed.as_array().is_some_and(|all| all.contains(&kind.into()));
    assert!(is_allowed, "{at}: {kind} instead of {allowed}");
    if let Some(object) = value.as_object() {
        let described = schema["properties"].as_object().unwrap_or_else(|| panic!("{at}: no properties"));
        let names = |map: &serde_json::Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
        let (mut found, mut expected) = (names(object), names(described));
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{at}");
        object.iter().for_each(|(name, value)| check(value, &described[name], root, &format!("{at}.{name}")));
    }
    for (index, element) in value.as_array().into_iter().flatten().enumerate() {
        check(element, &schema["items"], root, &format!("{at}[{index}]"));
    }
}

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
    check(&full.report, &schema, &schema, "report");
    let empty = Simulation::new(RULES).map(map).log("a.json", "").succeed();
    check(&empty.report, &schema, &schema, "empty report");
}
