//! Reads a map of a rule file by the table of keys. Reports unknown keys, misplaced keys and wrong types.

use std::str::FromStr;

use engine::{Share, Shares};

use super::merge_keys::{Entry, EntryReader, MergedValue};
use super::yaml11::ScalarValue;
use super::{FileReport, Position};
use crate::keys::{self, Key, PlainValue, Section, ValueType};
use crate::nearest::nearest_name;
use crate::yaml::{Content, Node, Scalar, excerpt};

/// The keys of one map that are known, in the right section and of the right type.
#[derive(Debug)]
pub(super) struct Fields<'n> {
    pub at: Position,
    pub section: Section,
    fields: Vec<Field<'n>>,
    /// Known keys whose value was reported and left out, at least in part.
    invalid: Vec<&'static str>,
    /// `true` if unknown or non-string keys were reported.
    has_unknown: bool,
}

#[derive(Debug)]
struct Field<'n> {
    key: Key,
    line: u32,
    value: FieldValue<'n>,
}

impl<'n> Fields<'n> {
    /// Reads `map` as a `section`. Every problem with its keys goes to `report`.
    pub fn from_map(map: &MergedValue<'n>, section: Section, at: Position, report: &mut FileReport) -> Self {
        let mut fields = Self { at, section, fields: Vec::new(), invalid: Vec::new(), has_unknown: false };
        if !map.node().is_map() {
            report.error(&fields.at, not_a_map(map.node()));
            fields.invalid = keys::names(section);
            return fields;
        }
        let mut reader = EntryReader { is_merged: keys::is_merged, report };
        for entry in reader.entries(map, &fields.at) {
            if let Some(field) = fields.read_field(&entry, report) {
                fields.fields.push(field);
            }
        }
        fields
    }

    fn read_field(&mut self, entry: &Entry<'n>, report: &mut FileReport) -> Option<Field<'n>> {
        let at = self.at.on_line(entry.line);
        let Some(name) = entry.name else {
            let text = text_or_type(entry.key);
            let hint = if is_group_of_digits(&text) { AFTER_A_COMMA } else { "" };
            report.error(&at, format!("config error, key is not of type string: {text}{hint}"));
            self.has_unknown = true;
            return None;
        };
        let Some(key) = keys::find(self.section, name) else {
            self.report_foreign_key(name, &at, report);
            return None;
        };
        let line = entry.value.node().line;
        match FieldValue::of_key(key, &entry.value) {
            Ok(Some(value)) => {
                self.refuse_non_maps(key.name, &value, report);
                Some(Field { key, line, value })
            }
            Ok(None) => {
                let effect = if entry.overrides { "removes the value given before" } else { "is ignored" };
                report.warn(&at, format!("'{name}' has no value and {effect}"));
                None
            }
            Err(reason) => {
                report.error(&self.at.key(name, line), reason);
                self.invalid.push(key.name);
                None
            }
        }
    }

    /// Reports list elements that are not maps. The other elements are used.
    fn refuse_non_maps(&mut self, name: &'static str, value: &FieldValue<'n>, report: &mut FileReport) {
        let FieldValue::List(nodes) = value else {
            return;
        };
        let at = self.at.key(name, 0);
        for (index, node) in nodes.iter().enumerate().filter(|(_, node)| !node.is_map()) {
            report.error(&at.element(index, node.line), not_a_map_in_list(node));
            self.invalid.push(name);
        }
    }

    /// Reports a key that does not belong to this section: only a warning if it belongs to another one.
    fn report_foreign_key(&mut self, name: &str, at: &Position, report: &mut FileReport) {
        let sections: Vec<_> = keys::sections_of(name).into_iter().map(Section::label).collect();
        if sections.is_empty() {
            let nearest = nearest_name(name, &keys::names(self.section));
            let suggestion = nearest.map(|key| format!("; did you mean '{key}'?")).unwrap_or_default();
            report.error(at, format!("config error, unknown key '{name}'{suggestion}"));
            self.has_unknown = true;
        } else {
            let (sections, here) = (sections.join(" or "), self.section.label());
            report.warn(at, format!("'{name}' belongs in {sections}; here, in {here}, it is ignored"));
        }
    }

    fn field(&self, name: &str) -> Option<&Field<'n>> {
        debug_assert!(keys::find(self.section, name).is_some(), "{name} is in the table");
        self.fields.iter().find(|field| field.key.name == name)
    }

    /// `true` if the key has a value of its type.
    pub fn has(&self, name: &str) -> bool {
        self.field(name).is_some()
    }

    /// `true` if a key or value was reported as an error: a missing key may then be a misspelled one.
    pub fn has_errors(&self) -> bool {
        self.has_unknown || !self.invalid.is_empty()
    }

    /// `true` if the value of the key was reported, so that no second message is needed.
    pub fn is_invalid(&self, name: &str) -> bool {
        self.invalid.contains(&name)
    }

    /// `true` if the key needs no message: its value was reported, or it is missing and an unknown key was reported
    /// that may be this one misspelled.
    pub fn is_reported(&self, name: &str) -> bool {
        self.is_invalid(name) || self.has_unknown && !self.has(name)
    }

    /// The path of this map, on the line of the key's value, or of the map if the key is missing.
    pub fn position_of(&self, name: &str) -> Position {
        let line = self.field(name).map_or(self.at.line, |field| field.line);
        self.at.on_line(line)
    }

    /// The value of a key whose type is neither a list nor a map.
    pub fn plain(&self, name: &str) -> Option<PlainValue<'n>> {
        match self.field(name)?.value {
            FieldValue::Plain(value) => Some(value),
            _ => None,
        }
    }

    /// The names and values of all these keys.
    pub fn plain_values(&self) -> impl Iterator<Item = (&'static str, PlainValue<'n>)> {
        self.fields.iter().filter_map(|field| match field.value {
            FieldValue::Plain(value) => Some((field.key.name, value)),
            _ => None,
        })
    }

    pub fn text(&self, name: &str) -> Option<&'n str> {
        self.plain(name)?.text()
    }

    pub fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        self.plain(name)?.parsed()
    }

    pub fn integer(&self, name: &str) -> Option<u32> {
        self.plain(name)?.integer()
    }

    pub fn units(&self, name: &str) -> Option<u64> {
        self.plain(name)?.units()
    }

    pub fn flag(&self, name: &str) -> bool {
        self.plain(name).is_some_and(PlainValue::flag)
    }

    pub fn map(&self, name: &str) -> Option<(&MergedValue<'n>, Position)> {
        match self.field(name)? {
            Field { line, value: FieldValue::Map(map), .. } => Some((map, self.at.key(name, *line))),
            _ => None,
        }
    }

    /// The maps of a list, each with its position. Empty if the key is missing.
    pub fn list(&self, name: &str) -> impl Iterator<Item = (&'n Node, Position)> {
        let nodes: &'n [Node] = match self.field(name) {
            Some(Field { value: FieldValue::List(nodes), .. }) => nodes,
            _ => &[],
        };
        let at = self.at.key(name, 0);
        let maps = nodes.iter().enumerate().filter(|(_, node)| node.is_map());
        maps.map(move |(index, node)| (node, at.element(index, node.line)))
    }
}

fn not_a_map(node: &Node) -> String {
    format!("error loading config file: expected a map, found {}", type_and_text(node))
}

fn not_a_map_in_list(node: &Node) -> String {
    format!("config error, yaml file contains list of type other than map: {}", text_or_type(node))
}

/// The value of a key, with the type from the table of keys.
#[derive(Clone, Debug)]
enum FieldValue<'n> {
    Plain(PlainValue<'n>),
    List(&'n [Node]),
    Map(MergedValue<'n>),
}

impl<'n> FieldValue<'n> {
    /// The value of `key`; `None` for null.
    ///
    /// # Errors
    /// The reason if the value, or one of several merged values, does not have the key's type.
    fn of_key(key: Key, value: &MergedValue<'n>) -> Result<Option<Self>, String> {
        let Key { name, value_type, .. } = key;
        let node = value.node();
        let wrong_type = || wrong_type(name, value_type, node);
        match (value_type, &node.content) {
            (_, Content::Scalar(scalar)) if ScalarValue::resolve(scalar) == ScalarValue::Null => Ok(None),
            (ValueType::List(_), Content::List(nodes)) => Ok(Some(Self::List(nodes))),
            (ValueType::Shares, Content::List(nodes)) => {
                let shares = shares(nodes).map(PlainValue::Shares).map(Self::Plain);
                shares.map(Some).ok_or_else(wrong_type)
            }
            (ValueType::Map(_) | ValueType::FreeMap | ValueType::Tiers, Content::Map(_)) => {
                Ok(Some(Self::Map(value.clone())))
            }
            (ValueType::List(_), Content::Map(_)) => {
                Err(wrong_type() + "; begin the first line of each element with '- '")
            }
            (
                ValueType::List(_)
                | ValueType::Map(_)
                | ValueType::FreeMap
                | ValueType::Tiers
                | ValueType::Shares,
                _,
            ) => Err(wrong_type()),
            (_, Content::Scalar(scalar)) => Ok(Some(Self::Plain(plain_value(key, scalar, node)?))),
            (_, Content::List(_) | Content::Map(_)) => Err(wrong_type()),
        }
    }
}

/// `None` if the list has an element that is not a share, or if the shares do not fit together.
fn shares(nodes: &[Node]) -> Option<Shares> {
    let text = |node: &'_ Node| match &node.content {
        Content::Scalar(scalar) => Some(scalar.text.clone()),
        Content::List(_) | Content::Map(_) => None,
    };
    let texts = nodes.iter().take(Shares::MAX + 1).map(text).collect::<Option<Vec<_>>>()?;
    Shares::parse(texts.iter().map(|text| &**text))
}

/// The value of a key whose type is neither a list nor a map.
///
/// # Errors
/// The reason if the scalar does not have the key's type.
fn plain_value<'n>(key: Key, scalar: &'n Scalar, node: &Node) -> Result<PlainValue<'n>, String> {
    let Key { name, value_type, .. } = key;
    let wrong_type = || wrong_type(name, value_type, node);
    match (value_type, ScalarValue::resolve(scalar)) {
        (ValueType::Text | ValueType::Unit | ValueType::Choice(_), ScalarValue::Float(_)) => {
            // A value may be secret, and a token of hexadecimal digits may look like 12e34.
            let subject = if name == "value" { "what".to_owned() } else { format!("{}, which", scalar.text) };
            Err(format!(
                "error checking config: '{name}' is {subject} YAML reads as a floating-point number; put text in quotes"
            ))
        }
        (ValueType::Choice(choices), _) if !choices.contains(&&*scalar.text) => {
            Err(format!("unknown {name} '{}'; expected one of {}", scalar.text, choices.join(", ")))
        }
        (ValueType::Text | ValueType::Unit | ValueType::Choice(_), _) => Ok(PlainValue::Text(&scalar.text)),
        (ValueType::Duration(_), _) => {
            value_type.duration_us(&scalar.text).map(PlainValue::Integer).ok_or_else(wrong_type)
        }
        (ValueType::Share, _) => Share::parse(&scalar.text).map(PlainValue::Share).ok_or_else(wrong_type),
        (ValueType::Flag, ScalarValue::Bool(flag)) => Ok(PlainValue::Flag(flag)),
        (ValueType::Flag, ScalarValue::Float(_)) => Err(float_in_place_of(name, value_type, node)),
        (ValueType::Flag, _) => Err(wrong_type()),
        (_, value) => {
            let most = value_type.most();
            let instead = || whole_number(&scalar.text).filter(|&number| number <= most.into());
            let hint = || instead().map(|number| format!("; write {number}")).unwrap_or_default();
            match value {
                ScalarValue::Float(_) => Err(float_in_place_of(name, value_type, node) + &hint()),
                ScalarValue::Int(number) => {
                    let number = u64::try_from(number).ok().filter(|&number| number <= most);
                    number.map(PlainValue::Integer).ok_or_else(wrong_type)
                }
                _ => Err(wrong_type() + &hint()),
            }
        }
    }
}

/// In `{ requests_per_unit: 10,000 }` the part after the comma is a key.
const AFTER_A_COMMA: &str =
    "; a comma ends the value before it: write a number such as 10,000 without a comma";

fn is_group_of_digits(text: &str) -> bool {
    text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The number that is meant if it is written with commas, quotes, an exponent or leading zeros.
fn whole_number(text: &str) -> Option<u128> {
    let text = text.replace(',', "");
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let zeros: u32 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u128>().ok().filter(|_| is_number)?.checked_mul(10_u128.checked_pow(zeros)?)
}

fn float_in_place_of(name: &str, wanted: ValueType, node: &Node) -> String {
    format!("error checking config: '{name}' must be {}, found {}", wanted.expected(), type_and_text(node))
}

fn wrong_type(name: &str, wanted: ValueType, node: &Node) -> String {
    format!(
        "error loading config file: '{name}' must be {}, found {}",
        wanted.expected(),
        type_and_text(node)
    )
}

/// For a message: the type, and the string of a scalar.
pub(crate) fn type_and_text(node: &Node) -> String {
    match &node.content {
        Content::Scalar(scalar) if ScalarValue::resolve(scalar) != ScalarValue::Null => {
            format!("{} '{}'", ScalarValue::resolve(scalar).label(), shorten(&scalar.text))
        }
        _ => text_or_type(node),
    }
}

/// For a message: the string of a scalar, the type of anything else.
fn text_or_type(node: &Node) -> String {
    match &node.content {
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "a map".to_owned(),
        Content::Scalar(scalar) if ScalarValue::resolve(scalar) == ScalarValue::Null => "nothing".to_owned(),
        Content::Scalar(scalar) => shorten(&scalar.text),
    }
}

fn shorten(text: &str) -> String {
    let (start, more) = excerpt(text);
    format!("{start}{more}")
}
