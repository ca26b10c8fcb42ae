//! YAML test data as JSON values. Plain scalars are read by the core schema of YAML 1.2; a float has a point.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// Reads the first document of `text`.
pub fn parse(text: &str) -> Value {
    let mut events = Parser::new_from_str(text).map(|event| event.expect("the test data is YAML").0);
    loop {
        let event = events.next().expect("the test data has a document");
        if !matches!(event, Event::StreamStart | Event::DocumentStart(_)) {
            return node(event, &mut events);
        }
    }
}

fn node<'t>(event: Event<'t>, events: &mut impl Iterator<Item = Event<'t>>) -> Value {
    match event {
        Event::Scalar(text, ScalarStyle::Plain, ..) => plain(&text),
        Event::Scalar(text, ..) => Value::String(text.into_owned()),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            loop {
                match events.next().expect("the list ends") {
                    Event::SequenceEnd => return Value::Array(items),
                    first => items.push(node(first, events)),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut fields = Map::new();
            loop {
                let key = match events.next().expect("the map ends") {
                    Event::MappingEnd => return Value::Object(fields),
                    Event::Scalar(key, ..) => key.into_owned(),
                    other => panic!("a key is text: {other:?}"),
                };
                let first = events.next().expect("a key has a value");
                let value = node(first, events);
                assert!(fields.insert(key.clone(), value).is_none(), "the key {key} is repeated");
            }
        }
        other => panic!("test data has no {other:?}"),
    }
}

fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" => return Value::Null,
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    let number = text.parse::<i64>().map(Value::from).ok();
    let float = || text.contains('.').then(|| text.parse::<f64>().ok().map(Value::from)).flatten();
    number.or_else(float).unwrap_or_else(|| Value::String(text.to_owned()))
}

#[test]
fn scalars_lists_and_maps_become_json() {
    let value = parse("a: [1, '1', 1.5, 1e2, on, ~, true]\nb:\n  c: |\n    text\n");
    assert_eq!(value.to_string(), r#"{"a":[1,"1",1.5,"1e2","on",null,true],"b":{"c":"text\n"}}"#);
}
