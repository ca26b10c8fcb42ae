//! Checks documents against the JSON Schemas of docs/: types, and exactly the names that a schema has.

use serde_json::Value;

/// Fails the test where `value` is not as its schema says.
pub fn check(value: &Value, schema: &Value, name: &str) {
    check_part(value, schema, schema, name);
}

/// Checks types and names; every name of the schema must be in the document.
fn check_part(value: &Value, schema: &Value, root: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").expect("a local reference");
        return check_part(value, &root["$defs"][name], root, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        if !value.is_null() {
            check_part(value, &any[0], root, at);
        }
        return;
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed = &schema["type"];
    // Every integer is a number.
    let kind = if kind == "integer" && *allowed == "number" { "number" } else { kind };
    let is_allowed = allowed == kind || allowed.as_array().is_some_and(|all| all.contains(&kind.into()));
    assert!(is_allowed, "{at}: {kind} instead of {allowed}");
    if let Some(object) = value.as_object() {
        let described = schema["properties"].as_object().unwrap_or_else(|| panic!("{at}: no properties"));
        let names = |map: &serde_json::Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
        let (mut found, mut expected) = (names(object), names(described));
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{at}");
        object
            .iter()
            .for_each(|(name, value)| check_part(value, &described[name], root, &format!("{at}.{name}")));
    }
    for (index, element) in value.as_array().into_iter().flatten().enumerate() {
        check_part(element, &schema["items"], root, &format!("{at}[{index}]"));
    }
}
