//! One JSON object: the values of the fields that are wanted. The others are skipped without a copy.

use std::borrow::Cow;
use std::fmt;

use map::Selected;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::fault::LineFault;

/// Fills `values` with the fields of `names`; `a.b` is the field `b` of the object `a`, unless a key is `a.b` itself.
pub(super) fn read_object<'l>(
    line: &'l str,
    names: &[String],
    values: &mut Selected<'l>,
) -> Result<(), LineFault> {
    let mut deserializer = serde_json::Deserializer::from_str(line);
    let object = Object { names, prefix: "", values };
    let parsed = deserializer.deserialize_map(object).and_then(|()| deserializer.end());
    parsed.map_err(|error| LineFault::Json(error.to_string()))
}

/// An object whose keys have this prefix in the names of fields.
struct Object<'a, 'l> {
    names: &'a [String],
    prefix: &'a str,
    values: &'a mut Selected<'l>,
}

/// What to do with the value of a key.
enum KeyUse {
    Value(usize),
    /// Fields below this prefix are wanted.
    Below(String),
    Nothing,
}

impl Object<'_, '_> {
    fn key_use(&self, key: &str) -> KeyUse {
        let mut is_below = false;
        for (index, name) in self.names.iter().enumerate() {
            match name.strip_prefix(self.prefix).and_then(|name| name.strip_prefix(key)) {
                Some("") => return KeyUse::Value(index),
                Some(rest) => is_below |= rest.starts_with('.'),
                None => {}
            }
        }
        if is_below { KeyUse::Below(format!("{}{key}.", self.prefix)) } else { KeyUse::Nothing }
    }
}

impl<'l> Visitor<'l> for Object<'_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(Text)? {
            match self.key_use(&key) {
                KeyUse::Value(index) => {
                    let value = map.next_value_seed(Scalar)?;
                    // Several names may be the same field under two names.
                    for (at, name) in self.names.iter().enumerate().skip(index + 1) {
                        if *name == self.names[index] {
                            self.values[at].clone_from(&value);
                        }
                    }
                    self.values[index] = value;
                }
                KeyUse::Below(prefix) => {
                    map.next_value_seed(Nested(Object {
                        names: self.names,
                        prefix: &prefix,
                        values: &mut *self.values,
                    }))?;
                }
                KeyUse::Nothing => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// An object, or another value, which has no wanted fields.
struct Nested<'a, 'l>(Object<'a, 'l>);

impl<'l> DeserializeSeed<'l> for Nested<'_, 'l> {
    type Value = ();

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for Nested<'_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'l>>(self, map: A) -> Result<(), A::Error> {
        self.0.visit_map(map)
    }

    fn visit_seq<A: SeqAccess<'l>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A key, borrowed where it has no escapes.
struct Text;

impl<'l> DeserializeSeed<'l> for Text {
    type Value = Cow<'l, str>;

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<Cow<'l, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'l> Visitor<'l> for Text {
    type Value = Cow<'l, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'l str) -> Result<Cow<'l, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'l, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// A text, a number or a boolean as text; `None` for null and for the text `-`; an empty text for a list or an object.
struct Scalar;

impl<'l> DeserializeSeed<'l> for Scalar {
    type Value = Option<Cow<'l, str>>;

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for Scalar {
    type Value = Option<Cow<'l, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'l str) -> Result<Self::Value, E> {
        Ok((text != "-").then_some(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok((text != "-").then(|| Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        // The shortest decimal that reads as this number: what the log has, to 15 digits.
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(if value { "true" } else { "false" })))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'l>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        // The first element that is a text or a number: Caddy and Traefik write headers as lists.
        let mut first = None;
        while let Some(value) = list.next_element_seed(Self)? {
            first = first.or(value);
        }
        Ok(first)
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
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
                      "request":{"headers":{"X-Key":["k1","k2"]},"method":"GET"},"a.b":"literal","ok":true}"#;
        let names = [
            "n",
            "t",
            "s",
            "none",
            "dash",
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
            Some("k1"),
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
