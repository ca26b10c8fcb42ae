//! Reads the maps of a rule file by the table of keys: unknown keys, misplaced keys, wrong types.

use super::merge_keys::{Pair, Pairs};
use super::report::{At, Report};
use super::yaml11::Meaning;
use crate::rules::keys::{Key, Kind, Section};
use crate::yaml::{Content, Node, Scalar};

/// The keys of one map that are known, in their place and of the right type.
#[derive(Debug)]
pub(super) struct Fields<'n> {
    pub at: At,
    section: Section,
    found: Vec<Field<'n>>,
    /// Known keys whose value, or a part of it, cannot be used, which is reported.
    broken: Vec<&'static str>,
    /// Whether there are keys that are not known, which is reported.
    has_unknown: bool,
}

#[derive(Debug)]
struct Field<'n> {
    key: &'static Key,
    line: u32,
    value: Value<'n>,
}

#[derive(Clone, Debug)]
enum Value<'n> {
    Text(&'n str),
    Number(u32),
    Flag(bool),
    List(&'n [Node]),
    /// In one or several parts, the later over the earlier.
    Map(Vec<&'n Node>),
}

impl<'n> Fields<'n> {
    /// Reads a map that is a `section`, in one or several parts. What is wrong with its keys goes to `report`.
    pub fn read(parts: &[&'n Node], section: Section, at: At, report: &mut Report) -> Self {
        let mut fields = Self { at, section, found: Vec::new(), broken: Vec::new(), has_unknown: false };
        if let Some(other) = parts.iter().find(|part| !part.is_map()) {
            report.error(&fields.at, not_a_map(other));
            fields.broken = Key::names(section);
            return fields;
        }
        let mut pairs = Pairs { is_joined: Key::is_joined, report };
        for pair in pairs.effective(parts, &fields.at) {
            if let Some(field) = fields.field(&pair, report) {
                fields.found.push(field);
            }
        }
        fields
    }

    fn field(&mut self, pair: &Pair<'n>, report: &mut Report) -> Option<Field<'n>> {
        let at = self.at.on(pair.line);
        let Some(name) = pair.name else {
            let raw = raw(pair.key);
            report.error(&at, format!("config error, key is not of type string: {raw}"));
            return None;
        };
        let Some(key) = Key::find(self.section, name) else {
            self.stranger(name, &at, report);
            return None;
        };
        let line = pair.value().line;
        match typed(key, &pair.parts) {
            Ok(Some(value)) => {
                self.check_elements(key, &value, report);
                Some(Field { key, line, value })
            }
            Ok(None) if pair.replaces => {
                report.warn(&at, format!("'{name}' has no value and takes back the one that it had"));
                None
            }
            Ok(None) => {
                report.warn(&at, format!("'{name}' has no value and is ignored"));
                None
            }
            Err(reason) => {
                let wrong = pair.parts.iter().find(|part| !part.is_map()).map_or(line, |part| part.line);
                report.error(&self.at.key(name, wrong), reason);
                self.broken.push(key.name);
                None
            }
        }
    }

    /// Reports the elements of a list that are no maps. The others are used.
    fn check_elements(&mut self, key: &Key, value: &Value<'n>, report: &mut Report) {
        let Value::List(nodes) = value else {
            return;
        };
        let at = self.at.key(key.name, 0);
        let others = nodes.iter().enumerate().filter(|(_, node)| !node.is_map());
        for (index, other) in others {
            report.error(&at.element(index, other.line), not_a_map_in_list(other));
            self.broken.push(key.name);
        }
    }

    fn stranger(&mut self, name: &str, at: &At, report: &mut Report) {
        let homes: Vec<_> = Key::homes(name).into_iter().map(Section::noun).collect();
        if homes.is_empty() {
            report.error(at, format!("config error, unknown key '{name}'"));
            self.has_unknown = true;
        } else {
            let (homes, here) = (homes.join(" or "), self.section.noun());
            report.warn(at, format!("'{name}' belongs in {homes}; here, in {here}, it is ignored"));
        }
    }

    fn get(&self, name: &str) -> Option<&Field<'n>> {
        debug_assert!(Key::find(self.section, name).is_some(), "{name} is in the table");
        self.found.iter().find(|field| field.key.name == name)
    }

    /// Whether a key stands here with a value of its type.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Whether something that is written here cannot be used, so that what is missing may be only misspelt.
    pub fn has_errors(&self) -> bool {
        self.has_unknown || !self.broken.is_empty()
    }

    /// Whether a key stands here with a value that cannot be used, so that nothing more is to be said of it.
    pub fn is_broken(&self, name: &str) -> bool {
        self.broken.contains(&name)
    }

    /// Where the value of a key stands; where the map itself stands if it does not.
    pub fn at(&self, name: &str) -> At {
        let line = self.get(name).map_or(self.at.line, |field| field.line);
        self.at.on(line)
    }

    pub fn text(&self, name: &str) -> Option<&'n str> {
        match self.get(name)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn number(&self, name: &str) -> Option<u32> {
        match self.get(name)?.value {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Field { value: Value::Flag(true), .. }))
    }

    /// A map, in one or several parts, with the place of the last.
    pub fn map(&self, name: &str) -> Option<(&[&'n Node], At)> {
        match self.get(name)? {
            Field { line, value: Value::Map(parts), .. } => Some((parts, self.at.key(name, *line))),
            _ => None,
        }
    }

    /// The maps of a list, each with its place; none where there is no list.
    pub fn list(&self, name: &str) -> impl Iterator<Item = (&'n Node, At)> {
        let nodes: &'n [Node] = match self.get(name) {
            Some(Field { value: Value::List(nodes), .. }) => nodes,
            _ => &[],
        };
        let at = self.at.key(name, 0);
        let maps = nodes.iter().enumerate().filter(|(_, node)| node.is_map());
        maps.map(move |(index, node)| (node, at.element(index, node.line)))
    }
}

/// The value of `key`; `None` where nothing is given. Of several parts one that is wrong makes all wrong.
fn typed<'n>(key: &Key, parts: &[&'n Node]) -> Result<Option<Value<'n>>, String> {
    let name = key.name;
    let Some(node) = parts.iter().find(|part| !part.is_map()).or(parts.last()) else {
        return Ok(None);
    };
    match (key.kind, &node.content) {
        (_, Content::Scalar(scalar)) if scalar.meaning() == Meaning::Null => Ok(None),
        (Kind::List(_), Content::List(nodes)) => Ok(Some(Value::List(nodes))),
        (Kind::Map(_) | Kind::FreeMap, Content::Map(_)) => Ok(Some(Value::Map(parts.to_vec()))),
        (Kind::List(_), _) => Err(wrong_type(name, "a list", node)),
        (Kind::Map(_) | Kind::FreeMap, _) => Err(wrong_type(name, "a map", node)),
        (kind, Content::Scalar(scalar)) => scalar_value(name, kind, scalar, node).map(Some),
        (Kind::Flag, _) => Err(wrong_type(name, "true or false", node)),
        (Kind::Number(_), _) => Err(wrong_type(name, NUMBER, node)),
        (Kind::Text | Kind::Unit | Kind::Choice(_), _) => Err(wrong_type(name, "text", node)),
    }
}

const NUMBER: &str = "a whole number from 0 to 4294967295";

fn scalar_value<'n>(name: &str, kind: Kind, scalar: &'n Scalar, node: &Node) -> Result<Value<'n>, String> {
    match (kind, scalar.meaning()) {
        (_, Meaning::Float(_)) => Err(format!(
            "error checking config: '{name}' is {}, which YAML reads as a floating-point number; put text in quotes",
            scalar.text
        )),
        (Kind::Choice(choices), _) if !choices().contains(&&*scalar.text) => {
            Err(format!("unknown {name} '{}': it is one of {}", scalar.text, choices().join(", ")))
        }
        (Kind::Text | Kind::Unit | Kind::Choice(_), _) => Ok(Value::Text(&scalar.text)),
        (Kind::Flag, Meaning::Bool(flag)) => Ok(Value::Flag(flag)),
        (Kind::Flag, _) => Err(wrong_type(name, "true or false", node)),
        (Kind::Number(_), Meaning::Int(number)) => match u32::try_from(number) {
            Ok(number) => Ok(Value::Number(number)),
            Err(_) => Err(wrong_type(name, NUMBER, node)),
        },
        _ => Err(wrong_type(name, NUMBER, node)),
    }
}

fn not_a_map(node: &Node) -> String {
    format!("error loading config file: expected a map, found {}", shown(node))
}

fn not_a_map_in_list(node: &Node) -> String {
    format!("config error, yaml file contains list of type other than map: {}", raw(node))
}

fn wrong_type(name: &str, wanted: &str, node: &Node) -> String {
    format!("error loading config file: '{name}' must be {wanted}, found {}", shown(node))
}

/// A node with the type it has.
fn shown(node: &Node) -> String {
    match &node.content {
        Content::Scalar(scalar) if scalar.meaning() != Meaning::Null => {
            format!("{} '{}'", scalar.meaning().noun(), shortened(&scalar.text))
        }
        _ => raw(node),
    }
}

/// A node as it is written, lists and maps by their type alone.
fn raw(node: &Node) -> String {
    match &node.content {
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "a map".to_owned(),
        Content::Scalar(scalar) if scalar.meaning() == Meaning::Null => "nothing".to_owned(),
        Content::Scalar(scalar) => shortened(&scalar.text),
    }
}

fn shortened(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
