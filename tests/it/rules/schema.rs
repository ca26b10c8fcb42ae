//! The JSON Schema of rule files and the program agree on which files are valid.

use boon::{Compiler, SchemaIndex, Schemas};

use super::{load_text, root};
use crate::support::yaml;

/// Limits of the descriptor `a`, each with a part of the error of the program; empty for a valid file.
const LIMITS: [(&str, &str); 18] = [
    ("rate_limit: { unit: day, requests_per_unit: 1 }", ""),
    ("rate_limit: { unit: MINUTE, requests_per_unit: 1 }", ""),
    ("rate_limit: { unit: day, requests_per_unit: 1, unlimited: false }", ""),
    ("rate_limit: { unlimited: true }", ""),
    ("rate_limits: [{ unit: day, requests_per_unit: 1 }, { unit: hour, requests_per_unit: 1 }]", ""),
    ("rate_limits: []", ""),
    ("value: v", ""),
    ("rate_limit: { unit: day, requests_per_unit: 1, tiers: { pro: { requests_per_unit: 2 } } }", ""),
    ("rate_limit: { requests_per_unit: 1 }", "invalid rate limit unit ''"),
    ("rate_limit: {}", "invalid rate limit unit ''"),
    ("rate_limit: { unit: fortnight, requests_per_unit: 1 }", "invalid rate limit unit 'fortnight'"),
    ("rate_limit: { unlimited: false, requests_per_unit: 1 }", "invalid rate limit unit ''"),
    ("rate_limit: { unlimited: true, unit: day }", "should not specify rate limit unit when unlimited"),
    (
        "rate_limits: [{ unit: day, requests_per_unit: 1 }, { requests_per_unit: 9 }]",
        "invalid rate limit unit",
    ),
    (
        "rate_limit: { unit: day, requests_per_unit: 1 }, rate_limits: [{ unit: hour, requests_per_unit: 1 }]",
        "cannot have both rate_limit and rate_limits",
    ),
    ("rate_limit: { unlimited: true }, rate_limits: []", "cannot have both rate_limit and rate_limits"),
    ("descriptors: [{ key: b, rate_limit: { requests_per_unit: 1 } }]", "invalid rate limit unit ''"),
    (
        "rate_limit: { unit: day, requests_per_unit: 1, tiers: { pro: { burst: 2 } } }",
        "requests_per_unit of the tier",
    ),
];

struct Schema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Schema {
    fn shipped() -> Self {
        let text = std::fs::read_to_string(root().join("config/rules.schema.json")).expect("the schema");
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        let document = serde_json::from_str(&text).expect("JSON");
        compiler.add_resource("rules.json", document).expect("a resource");
        let index = compiler.compile("rules.json", &mut schemas).expect("a schema");
        Self { schemas, index }
    }

    fn check(&self, text: &str) -> Result<(), String> {
        self.schemas.validate(&yaml::parse(text), self.index).map_err(|error| format!("{error:#}"))
    }
}

#[test]
fn the_schema_and_the_program_agree_on_units_and_lists_of_limits() {
    let schema = Schema::shipped();
    for (limits, reason) in LIMITS {
        let text = format!("domain: d\ndescriptors: [{{ key: a, {limits} }}]\n");
        let problems = load_text(&text).err().map_or_else(String::new, |problems| problems.to_string());
        assert_eq!(problems.is_empty(), reason.is_empty(), "{limits}: {problems}");
        assert!(problems.contains(reason), "{limits}: {problems}");
        let checked = schema.check(&text);
        assert_eq!(checked.is_ok(), reason.is_empty(), "{limits}: {checked:?}");
    }
}

#[test]
fn the_schema_accepts_the_shipped_rules() {
    let schema = Schema::shipped();
    for entry in std::fs::read_dir(root().join("config/rules")).expect("the example rules") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        assert_eq!(schema.check(&text), Ok(()), "{}", path.display());
    }
}
