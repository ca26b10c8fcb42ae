//! How a descriptor is written on the command line: `key=value,key=value`.

use std::str::FromStr;

use engine::Entry;

/// A descriptor on the command line: its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorArg(pub Vec<Entry>);

/// Why a text is not a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// An entry starts with `=`, or is empty. Entries are counted from 1.
    #[error("entry {number} of '{text}' has no key; a descriptor is key=value[,key=value...]")]
    NoKey { number: usize, text: String },
}

/// Parses `key=value[,key=value...]`.
///
/// The first `=` of an entry ends the key, so values may contain `=`. A comma within a value is written `\,`; any other
/// backslash is part of the value. An entry without `=` has an empty value.
impl FromStr for DescriptorArg {
    type Err = DescriptorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let entry = |(index, entry): (usize, String)| {
            let (key, value) = entry.split_once('=').unwrap_or((&entry, ""));
            if key.is_empty() {
                return Err(DescriptorError::NoKey { number: index + 1, text: text.to_owned() });
            }
            Ok(Entry { key: key.to_owned(), value: value.to_owned() })
        };
        split_entries(text).into_iter().enumerate().map(entry).collect::<Result<_, _>>().map(Self)
    }
}

fn split_entries(text: &str) -> Vec<String> {
    let mut entries = vec![String::new()];
    let mut rest = text;
    while let Some(at) = rest.find(',') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        let (written, is_escaped) = match before.strip_suffix('\\') {
            Some(written) => (written, true),
            None => (before, false),
        };
        if let Some(entry) = entries.last_mut() {
            entry.push_str(written);
            if is_escaped {
                entry.push(',');
            }
        }
        if !is_escaped {
            entries.push(String::new());
        }
        rest = after;
    }
    if let Some(entry) = entries.last_mut() {
        entry.push_str(rest);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let DescriptorArg(entries) = text.parse().expect("a descriptor");
        entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
    }

    #[test]
    fn descriptors_are_read_as_written() {
        let table: [(&str, &[(&str, &str)]); 8] = [
            ("a=1", &[("a", "1")]),
            ("a=1,b=2", &[("a", "1"), ("b", "2")]),
            ("a", &[("a", "")]), // no value
            ("a=,b", &[("a", ""), ("b", "")]),
            ("path=/x?y=1", &[("path", "/x?y=1")]), // the first `=` ends the key
            (r"a=1\,2,b=3", &[("a", "1,2"), ("b", "3")]), // an escaped comma
            (r"a=c:\dir,b=3", &[("a", r"c:\dir"), ("b", "3")]), // a plain backslash
            (r"a=\,\,", &[("a", ",,")]),
        ];
        for (text, expected) in table {
            let expected: Vec<_> =
                expected.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
            assert_eq!(pairs(text), expected, "{text}");
        }
    }

    #[test]
    fn an_entry_without_a_key_is_refused() {
        for (text, number) in [("", 1), ("=1", 1), ("a=1,", 2), ("a=1,,b=2", 2)] {
            let error = text.parse::<DescriptorArg>().expect_err(text);
            assert_eq!(error, DescriptorError::NoKey { number, text: text.to_owned() });
        }
    }
}
