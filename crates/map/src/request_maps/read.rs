//! Reads a map from YAML. Every mistake is an error with its line.

use std::path::Path;

use engine::RESERVED_KEYS;
use rules::yaml::{self, Node, YamlError};

use super::{CostRule, Map, TimeField};
use crate::entry::{DescriptorRule, EntryRule, EntrySource, PathTemplate, Step};
use crate::expression::{Expression, FieldIndex, FieldUses};
use crate::parser::parse_expression;
use crate::request_field::RequestField;
use crate::timestamp::TimeFormat;
use crate::yaml_map::{MapError, YamlMap, list, scalar};

/// Far more than any map written by hand.
const MAX_BYTES: u64 = 1 << 20;

impl Map {
    /// Reads the map in a file.
    ///
    /// # Errors
    /// [`MapError`] for the first mistake.
    pub fn load(path: &Path) -> Result<Self, MapError> {
        let file = path.display().to_string();
        let failed = |reason: String| MapError { file: file.clone(), line: 1, reason };
        let bytes = base::read_file(path, MAX_BYTES).map_err(|error| failed(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| failed("not UTF-8".to_owned()))?;
        Self::parse(&file, &text)
    }

    /// Reads the map in `text`; errors call it `file`.
    ///
    /// # Errors
    /// [`MapError`] for the first mistake.
    pub fn parse(file: &str, text: &str) -> Result<Self, MapError> {
        let at = |YamlError { line, reason }| MapError { file: file.to_owned(), line, reason };
        let document = yaml::parse(text).map_err(at)?;
        let root = document.root.ok_or_else(|| at(YamlError::new(1, "the map is empty")))?;
        read_map(file, &root).map_err(at)
    }
}

const KEYS: [&str; 8] = ["domain", "time", "normalize", "descriptors", "cost", "keep", "good", "was_limited"];

fn read_map(file: &str, root: &Node) -> Result<Map, YamlError> {
    let map = YamlMap::new(root, "the map", &KEYS)?;
    let mut fields = FieldUses::default();
    let domain = map.text("domain")?.filter(|(text, _)| !text.is_empty());
    let (domain, _) = domain.ok_or_else(|| map.missing("domain"))?;
    let time = map.get("time").map_or(Ok(Vec::new()), |node| read_times(node, &mut fields))?;
    let descriptors = map.get("descriptors").ok_or_else(|| map.missing("descriptors"))?;
    let descriptors = list(descriptors, "descriptors")?
        .iter()
        .map(|node| read_descriptor(node, &mut fields))
        .collect::<Result<Vec<_>, _>>()?;
    if descriptors.is_empty() {
        return Err(map.missing("descriptors"));
    }
    let cost = map.get("cost").map_or(Ok(CostRule::Constant(1)), |node| read_cost(node, &mut fields))?;
    let mut condition = |key| read_condition(&map, key, &mut fields);
    let (keep, good, was_limited) = (condition("keep")?, condition("good")?, condition("was_limited")?);
    let normalized = match map.text("normalize")? {
        None => None,
        Some((name, line)) => Some(fields.find(name).ok_or_else(|| {
            YamlError::new(
                line,
                format!("'normalize' names '{name}', which no descriptor and no condition uses"),
            )
        })?),
    };
    let of_request = fields.names().map(RequestField::from_name).enumerate();
    let hosts = of_request.filter(|(_, field)| *field == Some(RequestField::Host));
    Ok(Map {
        file: file.to_owned(),
        domain: domain.to_owned(),
        time,
        normalized,
        hosts: hosts.map(|(index, _)| FieldIndex(index)).collect(),
        descriptors,
        cost,
        keep,
        good,
        was_limited,
        fields,
    })
}

/// A field, or a list of fields.
fn read_times(node: &Node, fields: &mut FieldUses) -> Result<Vec<TimeField>, YamlError> {
    if node.is_map() {
        return Ok(vec![read_time(node, fields)?]);
    }
    list(node, "time")?.iter().map(|node| read_time(node, fields)).collect()
}

fn read_time(node: &Node, fields: &mut FieldUses) -> Result<TimeField, YamlError> {
    let map = YamlMap::new(node, "time", &["from", "unit"])?;
    let (from, line) = map.text("from")?.ok_or_else(|| map.missing("from"))?;
    let format = match map.text("unit")? {
        None => TimeFormat::Rfc3339,
        Some((name, line)) => {
            let known = TimeFormat::NAMES.into_iter().find(|(known, _)| *known == name);
            known.map(|(_, format)| format).ok_or_else(|| {
                let names = TimeFormat::NAMES.map(|(name, _)| name).join(", ");
                YamlError::new(line, format!("time unit: expected one of {names}, found '{name}'"))
            })?
        }
    };
    Ok((fields.index(from, line), format))
}

fn read_cost(node: &Node, fields: &mut FieldUses) -> Result<CostRule, YamlError> {
    if !node.is_map() {
        return Ok(CostRule::Constant(whole_number(node, "cost")?));
    }
    let map = YamlMap::new(node, "cost", &["from", "unit"])?;
    let (from, line) = map.text("from")?.ok_or_else(|| map.missing("from"))?;
    let unit = map.get("unit").map_or(Ok(1), |node| whole_number(node, "unit"))?;
    if unit == 0 {
        return Err(YamlError::new(node.line, "cost unit: expected at least 1"));
    }
    Ok(CostRule::Field { field: fields.index(from, line), unit })
}

fn whole_number(node: &Node, key: &str) -> Result<u64, YamlError> {
    let text = scalar(node, key)?;
    text.parse()
        .map_err(|_| YamlError::new(node.line, format!("{key}: expected a whole number, found '{text}'")))
}

fn read_condition(
    map: &YamlMap<'_>,
    key: &str,
    fields: &mut FieldUses,
) -> Result<Option<Expression>, YamlError> {
    let Some((text, line)) = map.text(key)? else { return Ok(None) };
    let parsed = parse_expression(text, line, fields);
    parsed.map(Some).map_err(|reason| YamlError::new(line, format!("{key}: {reason}")))
}

/// A list of entries, or a map with the list and a condition.
fn read_descriptor(node: &Node, fields: &mut FieldUses) -> Result<DescriptorRule, YamlError> {
    let (entries, when) = if node.is_map() {
        let map = YamlMap::new(node, "a descriptor", &["entries", "when"])?;
        (map.get("entries").ok_or_else(|| map.missing("entries"))?, read_condition(&map, "when", fields)?)
    } else {
        (node, None)
    };
    let entries = list(entries, "a descriptor")?;
    if entries.is_empty() {
        return Err(YamlError::new(node.line, "a descriptor needs at least one entry"));
    }
    let entries = entries.iter().map(|entry| read_entry(entry, fields)).collect::<Result<_, _>>()?;
    Ok(DescriptorRule { when, entries })
}

const ENTRY_KEYS: [&str; 9] =
    ["key", "value", "from", "take", "strip", "prefix", "lowercase", "template", "default"];

fn read_entry(node: &Node, fields: &mut FieldUses) -> Result<EntryRule, YamlError> {
    let map = YamlMap::new(node, "an entry", &ENTRY_KEYS)?;
    let key = map.text("key")?.filter(|(text, _)| !text.is_empty()).ok_or_else(|| map.missing("key"))?.0;
    if RESERVED_KEYS.contains(&key) {
        let reason = format!(
            "'{key}' is no entry of a descriptor: a map takes the real cost of a request, which 'cost' names"
        );
        return Err(YamlError::new(node.line, reason));
    }
    let source = match (map.text("value")?, map.text("from")?) {
        (Some((text, _)), None) => {
            if let Some(other) = ENTRY_KEYS[3..].iter().find(|other| map.get(other).is_some()) {
                return Err(YamlError::new(
                    node.line,
                    format!("'{other}' has no effect on a constant 'value'"),
                ));
            }
            EntrySource::Constant(text.to_owned())
        }
        (None, Some((from, line))) => EntrySource::Field {
            field: fields.index(from, line),
            steps: read_steps(&map)?,
            default: map.text("default")?.map(|(text, _)| text.to_owned()),
        },
        _ => {
            return Err(YamlError::new(
                node.line,
                "an entry needs either 'value', a constant, or 'from', a field",
            ));
        }
    };
    Ok(EntryRule { key: key.to_owned(), source })
}

fn read_steps(map: &YamlMap<'_>) -> Result<Vec<Step>, YamlError> {
    let take = map.parsed("take", "'first' or 'trusted-hop N' with N from 1", |text| {
        match text.strip_prefix("trusted-hop ") {
            Some(hop) => hop.trim().parse().ok().filter(|hop| *hop > 0).map(Step::TrustedHop),
            None => (text == "first").then_some(Step::First),
        }
    })?;
    let strip = map.parsed("strip", "'query' or 'port'", |text| match text {
        "query" => Some(Step::StripQuery),
        "port" => Some(Step::StripPort),
        _ => None,
    })?;
    let bits = |text: &str| text.parse().ok().filter(|bits| (1..=128).contains(bits));
    let network = map.parsed("prefix", "a number of bits of an IPv6 address, from 1 to 128", bits)?;
    let is_lowercase = map.parsed("lowercase", "true or false", |text| text.parse().ok())?;
    let lowercase = is_lowercase.unwrap_or(false).then_some(Step::Lowercase);
    let templates = map.get("template").map(read_templates).transpose()?;
    Ok([take, strip, network.map(Step::Network), lowercase, templates].into_iter().flatten().collect())
}

fn read_templates(node: &Node) -> Result<Step, YamlError> {
    let template = |node: &Node| {
        let text = scalar(node, "template")?;
        if text.rsplit('/').skip(1).any(|segment| segment == "**") {
            return Err(YamlError::new(node.line, format!("template: '**' is not at the end of '{text}'")));
        }
        Ok(PathTemplate { text: text.to_owned() })
    };
    Ok(Step::Templates(list(node, "template")?.iter().map(template).collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let entry = |text: &str| format!("domain: d\ndescriptors:\n  - - {{ {text} }}\n");
        let table = [
            ("".to_owned(), "m:1: the map is empty"),
            ("- a".to_owned(), "m:1: the map must be a map of keys"),
            ("descriptors: []".to_owned(), "m:1: 'domain' is missing in the map"),
            ("domain: d\ndescriptors: []".to_owned(), "'descriptors' is missing"),
            (
                "domain: d\ndomains: e".to_owned(),
                "m:2: 'domains' is not a key of the map; did you mean 'domain'?",
            ),
            (
                "domain: d\nrules: e".to_owned(),
                "m:2: 'rules' is not a key of the map; its keys are domain, time",
            ),
            (entry("key: k, frm: f"), "m:3: 'frm' is not a key of an entry; did you mean 'from'?"),
            ("domain: d\ndomain: e".to_owned(), "m:2: duplicate key 'domain'"),
            ("domain: d\ndescriptors: 1".to_owned(), "m:2: descriptors must be a list"),
            ("domain: d\ndescriptors:\n  - []".to_owned(), "m:3: a descriptor needs at least one entry"),
            (entry("key: k"), "m:3: an entry needs either 'value'"),
            (entry("key: k, value: v, from: f"), "m:3: an entry needs either 'value'"),
            (entry("key: k, value: v, strip: query"), "m:3: 'strip' has no effect"),
            (
                format!("normalize: pth\n{}", entry("key: k, from: path")),
                "m:1: 'normalize' names 'pth', which no descriptor and no condition uses",
            ),
            (entry("key: k, from: f, take: last"), "m:3: 'take': expected 'first' or 'trusted-hop N'"),
            (entry("key: k, from: f, take: trusted-hop 0"), "m:3: 'take': expected"),
            (entry("key: k, from: f, strip: all"), "m:3: 'strip': expected"),
            (entry("key: k, from: f, prefix: 129"), "m:3: 'prefix': expected a number of bits"),
            (entry("key: k, from: f, prefix: 0"), "m:3: 'prefix': expected"),
            (entry("key: k, from: f, template: x"), "m:3: template must be a list"),
            (entry("from: f"), "m:3: 'key' is missing"),
            ("domain: d\ndescriptors:\n  - { when: a == b }".to_owned(), "m:3: 'entries' is missing"),
            (
                "domain: d\ndescriptors:\n  - { entries: [], when: a }".to_owned(),
                "m:3: when: expected an operator",
            ),
            (
                entry("key: k, from: f, template: [/a/**, /b/**/c]"),
                "m:3: template: '**' is not at the end of",
            ),
            (entry("key: k, from: f") + "cost: many", "m:4: cost: expected a whole number"),
            (entry("key: k, from: f") + "cost: { from: b, unit: 0 }", "m:4: cost unit: expected"),
            (entry("key: k, from: f") + "good: code <", "m:4: good: expected a value"),
            (entry("key: k, from: f") + "time: { from: t, unit: days }", "m:4: time unit: expected one of"),
            (entry("key: k, from: f") + "time: [{ unit: s }]", "m:4: 'from' is missing in time"),
            (entry("key: k, from: f") + "time: now", "m:4: time must be a list"),
            ("domain: [".to_owned(), "m:"),
        ];
        for (text, expected) in table {
            let error = Map::parse("m", &text).expect_err(&text).to_string();
            assert!(error.contains(expected), "{text}\n{error}");
        }
    }

    #[test]
    fn a_field_that_is_used_twice_is_wanted_once() {
        let text = "domain: d\ndescriptors:\n  - - { key: a, from: path }\n    - { key: b, from: path }\ngood: path == x and code == 1\n";
        let map = Map::parse("m", text).expect("a valid map");
        assert_eq!(map.fields.names().collect::<Vec<_>>(), ["path", "code"]);
        assert!(map.has_good() && !map.has_was_limited());
    }
}
