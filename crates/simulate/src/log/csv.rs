//! Comma-separated values as in RFC 4180, but without line breaks within quotes.

use std::borrow::Cow;

use super::fault::LineFault;

pub(super) fn split_csv(line: &str) -> Result<Vec<Cow<'_, str>>, LineFault> {
    let mut values = Vec::new();
    let mut rest = line;
    loop {
        let (value, after) = match rest.strip_prefix('"') {
            Some(inside) => quoted_value(inside)?,
            None => {
                let end = memchr::memchr(b',', rest.as_bytes()).unwrap_or(rest.len());
                (Cow::Borrowed(&rest[..end]), &rest[end..])
            }
        };
        values.push(value);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(values),
            None => return Err(LineFault::Csv("text follows a closing quote")),
        }
    }
}

/// The value that begins after a quote, and what follows its closing quote.
fn quoted_value(inside: &str) -> Result<(Cow<'_, str>, &str), LineFault> {
    let mut from = 0;
    loop {
        let end = memchr::memchr(b'"', &inside.as_bytes()[from..]).map(|at| from + at);
        let end = end.ok_or(LineFault::Csv("unclosed quote"))?;
        if inside.as_bytes().get(end + 1) == Some(&b'"') {
            from = end + 2;
            continue;
        }
        let text = &inside[..end];
        let value = if from == 0 { Cow::Borrowed(text) } else { Cow::Owned(text.replace("\"\"", "\"")) };
        return Ok((value, &inside[end + 1..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_commas_are_read() {
        let table = [
            ("a,b", vec!["a", "b"]),
            ("", vec![""]),
            (",", vec!["", ""]),
            (r#""a,b",c"#, vec!["a,b", "c"]),
            (r#""say ""no""",2"#, vec![r#"say "no""#, "2"]),
        ];
        for (line, expected) in table {
            assert_eq!(split_csv(line).expect("valid CSV"), expected, "{line}");
        }
        for line in [r#""a"#, r#""a"b,c"#] {
            assert!(split_csv(line).is_err(), "{line}");
        }
    }
}
