//! Reads the wanted fields of one JSON object, and skips the others without a copy.

use std::borrow::Cow;
use std::fmt;

use map::Selected;
use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::fault::LineFault;

/// Fills `values` with the fields of `names`; `a.b` is the field `b` of the object `a`, or a key that is literally
/// `a.b`.
pub(super) fn read_object<'l>(
    line: &'l str,
    names: &[String],
    values: &mut Selected<'l>,
) -> Result<(), LineFault> {
    let mut deserializer = serde_json::Deserializer::from_str(line);
    let parsed = deserializer.deserialize_map(Fields { names, values }).and_then(|()| deserializer.end());
    parsed.map_err(|error| LineFault::Json(error.to_string()))
}

/// Reads the fields of `names` into `values`.
struct Fields<'a, 'l> {
    names: &'a [String],
    values: &'a mut Selected<'l>,
}

/// Borrowed if it has no escapes.
#[derive(Deserialize)]
struct Key<'l>(#[serde(borrow)] Cow<'l, str>);

impl<'l> Visitor<'l> for Fields<'_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            if !self.names.iter().any(|name| below(name, &key).is_some()) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: Value = map.next_value()?;
            for (name, place) in self.names.iter().zip(self.values.iter_mut()) {
                if let Some(found) = below(name, &key).and_then(|path| field(&value, path)) {
                    *place = text(found);
                }
            }
        }
        Ok(())
    }
}

/// The rest of a path after a key that it begins with: empty, or with a leading dot.
fn below<'p>(path: &'p str, key: &str) -> Option<&'p str> {
    path.strip_prefix(key).filter(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The value at the end of a path from `value`.
fn field<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    let Some(path) = path.strip_prefix('.') else { return Some(value) };
    value.as_object()?.iter().find_map(|(key, value)| field(value, below(path, key)?))
}

/// A string, number or boolean as a string; for a list, its elements joined as in a header: Caddy and Traefik write
/// headers as lists. `None` for null, for an object, for an empty string and for `-`.
fn text(value: &Value) -> Option<Cow<'static, str>> {
    match value {
        Value::Null | Value::Object(_) => None,
        Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
        // The shortest decimal that reads as this number, which is what the log has, to 15 digits.
        Value::Number(number) if number.is_f64() => number.as_f64().map(|number| number.to_string().into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::String(text) => (!text.is_empty() && text != "-").then(|| text.clone().into()),
        Value::Array(list) => {
            list.iter().filter_map(text).reduce(|list, value| Cow::Owned(format!("{list}, {value}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    fn read<'l>(line: &'l str, names: &[&str]) -> Result<Vec<Option<String>>, LineFault> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut values: Selected<'l> = smallvec![None; names.len()];
        read_object(line, &names, &mut values)?;
        Ok(values.into_iter().map(|value| value.map(Cow::into_owned)).collect())
    }

    #[test]
    fn wanted_fields_are_read_at_any_depth() {
        let line = r#"{"skipped":{"a":[1,{"b":2}]},"n":42,"t":1700000000.25,"s":"é\"x","none":null,"dash":"-",
                      "empty":"","no":[""],"request":{"headers":{"X-Key":["k1","k2"]},"method":"GET"},"a.b":"literal","ok":true}"#;
        let names = [
            "n",
            "t",
            "s",
            "none",
            "dash",
            "empty",
            "no",
            "request.headers.X-Key",
            "request.method",
            "a.b",
            "ok",
            "missing",
        ];
        let expected = [
            Some("42"),
            Some("1700000000.25"),
            Some("é\"x"),
            None,
            None,
            None,
            None,
            Some("k1, k2"),
            Some("GET"),
            Some("literal"),
            Some("true"),
            None,
        ];
        let expected: Vec<_> = expected.iter().map(|value| value.map(str::to_owned)).collect();
        assert_eq!(read(line, &names), Ok(expected));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for line in ["", "[]", "{\"a\":1", "{\"a\":1} x", "{a:1}", "null"] {
            assert!(read(line, &["a"]).is_err(), "{line}");
        }
    }
}
