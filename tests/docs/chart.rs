//! The generated files of the chart: the schema of the settings, from the catalogue of the program, by which Helm
//! refuses a key that the service does not have; and the alerts.

use std::path::Path;

use ratelimitd::settings::{Setting, Settings};
use serde_json::{Map, Value, json};

use super::compare_or_update;

const SCHEMA: &str = "deploy/helm/ratelimitd/values.schema.json";
/// The generated definition is the last part of the file.
const START: &str = "\n    \"settings\": {\n      \"type\": \"object\"";
const ALERTS: &str = "deploy/prometheus/ratelimitd.rules.yaml";
const ALERTS_OF_THE_CHART: &str = "deploy/helm/ratelimitd/files/ratelimitd.rules.yaml";

#[test]
fn the_schema_of_the_chart_has_every_setting() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCHEMA);
    let committed = std::fs::read_to_string(path).expect("a schema");
    let (head, _) = committed.split_once(START).expect("the definition of the settings");
    let settings = schema_of_section(&Settings::catalogue(), "", 4);
    let schema = format!("{head}\n    \"settings\": {settings}\n  }}\n}}\n");
    assert!(serde_json::from_str::<Value>(&schema).is_ok(), "{schema}");
    compare_or_update(SCHEMA, &schema);
}

/// A copy and no link: Helm writes a line on standard error for each link that it follows, at every call.
#[test]
fn the_chart_has_a_copy_of_the_alerts() {
    let file = std::fs::symlink_metadata(ALERTS_OF_THE_CHART).expect("the alerts of the chart");
    assert!(!file.is_symlink(), "{ALERTS_OF_THE_CHART} is a link");
    compare_or_update(ALERTS_OF_THE_CHART, &std::fs::read_to_string(ALERTS).expect("the alerts"));
}

/// The schema of the settings whose keys begin with `section`, which is empty or ends with a dot.
fn schema_of_section(catalogue: &[Setting], section: &str, indent: usize) -> String {
    let below = || catalogue.iter().filter_map(|setting| Some((setting.key.strip_prefix(section)?, setting)));
    let mut names: Vec<&str> = Vec::new();
    for (key, _) in below() {
        let name = key.split('.').next().expect("a first part");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let schema_of_name = |name: &&str| match below().find(|(key, _)| key == name) {
        Some((_, setting)) => schema_of(setting).to_string(),
        None => schema_of_section(catalogue, &format!("{section}{name}."), indent + 4),
    };
    let outer = " ".repeat(indent);
    let properties: Vec<_> =
        names.iter().map(|name| format!("{outer}    \"{name}\": {}", schema_of_name(name))).collect();
    [
        "{".to_owned(),
        format!("{outer}  \"type\": \"object\","),
        format!("{outer}  \"additionalProperties\": false,"),
        format!("{outer}  \"properties\": {{"),
        properties.join(",\n"),
        format!("{outer}  }}"),
        format!("{outer}}}"),
    ]
    .join("\n")
}

/// The schema of one setting, from the values that it takes in words.
fn schema_of(setting: &Setting) -> Value {
    let expected = setting.expected.as_str();
    let mut schema = if expected == "true or false" {
        json!({"enum": [true, false, "true", "false"]})
    } else if let Some(names) = expected.strip_prefix("one of ").filter(|names| is_list_of_names(names)) {
        let number = |name: &str| name.parse().map(|number: u64| number.into());
        let texts = names.split(", ").map(Value::from);
        // Helm reads 429 without quotes as a number.
        json!({"enum": names.split(", ").flat_map(number).chain(texts).collect::<Vec<_>>()})
    } else if let Some([min, max]) = expected.strip_prefix("a whole number from ").and_then(bounds) {
        json!({"type": "integer", "minimum": min, "maximum": max})
    } else if let Some([min, max]) = number_or_auto(expected) {
        // The bounds are of numbers, the pattern is of strings.
        json!({"type": ["integer", "string"], "minimum": min, "maximum": max, "pattern": "^auto$"})
    } else if expected.starts_with("a number from 0 to 1") {
        // As a text, too: Helm writes a small number as 1e-06.
        json!({"type": ["number", "string"], "minimum": 0, "maximum": 1})
    } else if expected.starts_with("a duration from ") {
        // A zero needs no unit.
        json!({"anyOf": [{"const": 0}, {"type": "string", "pattern": "^(0|([0-9]+ *[a-z]+ *)+)$"}]})
    } else if let Some(columns) = expected.strip_prefix("a list of rows, each with some of: ") {
        let properties: Map<_, _> =
            columns.split(", ").map(|column| (column.to_owned(), json!({}))).collect();
        json!({"type": "array", "items": {
            "type": "object", "additionalProperties": false, "properties": properties,
        }})
    } else {
        json!({"type": "string"})
    };
    schema["description"] = expected.into();
    schema
}

/// Whether the text is names with commas between them, and not also another form of values.
fn is_list_of_names(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_, ".contains(&byte)) && !text.contains(" or ")
}

fn number_or_auto(expected: &str) -> Option<[u64; 2]> {
    bounds(expected.strip_prefix("a whole number from ")?.strip_suffix(", or auto")?)
}

fn bounds(text: &str) -> Option<[u64; 2]> {
    let (min, max) = text.split_once(" to ")?;
    Some([min.parse().ok()?, max.parse().ok()?])
}
