//! The JSON Schema of rule files for editors, generated from the table of keys.

use engine::{MAX_LIMIT, Shares, Unit};
use serde_json::{Map, Value, json};
use strum::VariantNames as _;

use crate::keys::{self, Key, Section, ValueType};

/// The schema (draft 07), as in `config/rules.schema.json`.
pub fn schema() -> Value {
    let mut root = section(Section::File);
    let definitions: Map<_, _> = Section::ALL
        .iter()
        .filter_map(|part| Some((definition_name(*part)?.to_owned(), section(*part))))
        .collect();
    if let Value::Object(members) = &mut root {
        members.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
        members.insert("title".into(), "ratelimitd rule file".into());
        members.insert("definitions".into(), definitions.into());
    }
    root
}

fn definition_name(section: Section) -> Option<&'static str> {
    match section {
        Section::File => None,
        Section::Descriptor => Some("descriptor"),
        Section::RateLimit => Some("rate_limit"),
        Section::Replaces => Some("replaces"),
        Section::Tier => Some("tier"),
        Section::Penalty => Some("penalty"),
        Section::Feedback => Some("feedback"),
    }
}

fn section(section: Section) -> Value {
    let keys = keys::all().filter(|key| key.section == section);
    let properties: Map<_, _> = keys.map(|key| (key.name.to_owned(), property(key))).collect();
    let required = match section {
        Section::File => vec!["domain"],
        Section::Descriptor => vec!["key"],
        Section::RateLimit => vec![],
        Section::Replaces => vec!["name"],
        Section::Tier => vec!["requests_per_unit"],
        Section::Penalty => vec!["after", "within", "for"],
        Section::Feedback => vec!["max"],
    };
    let mut schema = json!({
        "type": "object",
        "additionalProperties": false,
        "required": required,
        "properties": properties,
    });
    if let (Value::Object(members), Value::Object(more)) = (&mut schema, keys_together(section)) {
        members.extend(more);
    }
    schema
}

/// Which keys of a section exclude or need each other.
fn keys_together(section: Section) -> Value {
    match section {
        Section::Descriptor => json!({ "not": { "required": ["rate_limit", "rate_limits"] } }),
        Section::RateLimit => json!({
            "if": {
                "required": ["unlimited"],
                "properties": { "unlimited": { "const": true }, "count": { "const": false } },
            },
            "then": { "not": { "required": ["unit"] } },
            "else": { "required": ["unit"] },
        }),
        _ => json!({}),
    }
}

fn property(key: Key) -> Value {
    let mut schema = match key.value_type {
        ValueType::Text => json!({ "type": ["string", "integer", "boolean"] }),
        ValueType::Unit => {
            json!({ "anyOf": [{ "enum": Unit::VARIANTS }, { "pattern": any_case(Unit::VARIANTS) }] })
        }
        ValueType::Integer(least) => json!({ "type": "integer", "minimum": least, "maximum": u32::MAX }),
        ValueType::Units => json!({ "type": "integer", "minimum": 0, "maximum": MAX_LIMIT }),
        ValueType::Duration(_) => json!({ "type": "string" }),
        ValueType::Share => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        ValueType::Shares => {
            let share = json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 });
            json!({ "type": "array", "items": share, "minItems": 1, "maxItems": Shares::MAX, "uniqueItems": true })
        }
        ValueType::Flag => json!({ "type": "boolean" }),
        ValueType::Choice(choices) => json!({ "enum": choices }),
        ValueType::List(section) => json!({ "type": "array", "items": reference(section) }),
        ValueType::Map(section) => json!({ "allOf": [reference(section)] }),
        ValueType::FreeMap => json!({ "type": "object" }),
        ValueType::Tiers => {
            let number = json!({ "type": "integer", "minimum": 0 });
            let tier = [number, json!({ "enum": ["base", "unlimited"] }), reference(Section::Tier)];
            json!({ "type": "object", "additionalProperties": { "anyOf": tier } })
        }
    };
    if let Value::Object(members) = &mut schema {
        members.insert("description".into(), key.doc.into());
    }
    schema
}

fn reference(section: Section) -> Value {
    match definition_name(section) {
        Some(name) => json!({ "$ref": format!("#/definitions/{name}") }),
        None => json!({ "$ref": "#" }),
    }
}

/// A regular expression for any of `words` in any case. JSON Schema has no flag for that.
fn any_case(words: &[&str]) -> String {
    let word = |word: &&str| -> String {
        word.chars().map(|c| format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase())).collect()
    };
    let words: Vec<_> = words.iter().map(word).collect();
    format!("^({})$", words.join("|"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_key_is_in_the_table_once() {
        let mut seen = HashSet::new();
        for key in keys::all() {
            assert!(seen.insert((key.section.label(), key.name)), "{} twice", key.name);
            assert!(key.doc.ends_with('.'), "{}: a sentence", key.name);
        }
    }

    #[test]
    fn the_schema_covers_every_section() {
        let schema = schema();
        assert_eq!(schema["properties"]["descriptors"]["items"]["$ref"], "#/definitions/descriptor");
        assert_eq!(
            schema["definitions"]["rate_limit"]["properties"]["replaces"]["items"]["$ref"],
            "#/definitions/replaces"
        );
        for section in ["descriptor", "rate_limit", "replaces"] {
            assert!(schema["definitions"][section]["properties"].is_object(), "{section}");
        }
    }
}
