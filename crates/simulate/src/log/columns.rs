//! Splits a line of text into columns.

/// What is left of a line.
pub(super) struct Columns<'l> {
    line: &'l str,
    rest: &'l str,
}

impl<'l> Columns<'l> {
    pub fn new(line: &'l str) -> Self {
        Self { line, rest: line }
    }

    /// The number of bytes read.
    pub fn position(&self) -> usize {
        self.line.len() - self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Text up to the next space.
    pub fn bare(&mut self) -> Option<&'l str> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b' ', self.rest.as_bytes()).unwrap_or(self.rest.len());
        Some(self.take(0, end, end))
    }

    /// Text in brackets, without them.
    pub fn bracketed(&mut self) -> Option<&'l str> {
        let inside = self.rest.strip_prefix('[')?;
        let end = memchr::memchr(b']', inside.as_bytes())?;
        Some(self.take(1, 1 + end, 2 + end))
    }

    /// Text in quotes, without them. It ends at the first quote before a space or the end of the line: Envoy does not
    /// escape quotes within a header.
    pub fn quoted(&mut self) -> Option<&'l str> {
        let inside = self.rest.strip_prefix('"')?.as_bytes();
        let is_end = |at: &usize| inside.get(at + 1).is_none_or(|next| *next == b' ');
        let end = memchr::memchr_iter(b'"', inside).find(is_end)?;
        Some(self.take(1, 1 + end, 2 + end))
    }

    /// Takes `start..end` of the rest as a column that has `length` bytes with its delimiters, and the space after it.
    fn take(&mut self, start: usize, end: usize, length: usize) -> &'l str {
        let column = &self.rest[start..end];
        let after = &self.rest[length..];
        self.rest = after.strip_prefix(' ').unwrap_or(after);
        column
    }
}

/// Method, path and protocol of a request line. A path may have spaces in logs of bad requests.
pub(super) fn split_request_line(request: &str) -> (&str, &str, &str) {
    let (method, rest) = request.split_once(' ').unwrap_or((request, ""));
    match rest.rsplit_once(' ') {
        Some((path, protocol)) if protocol.starts_with("HTTP/") || protocol == "-" => {
            (method, path, protocol)
        }
        _ => (method, rest, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_split_by_their_delimiters() {
        let mut columns = Columns::new(r#"[a b] "c "d" e" f - "" g"#);
        assert_eq!(columns.bracketed(), Some("a b"));
        assert_eq!(columns.quoted(), Some(r#"c "d"#), "a quote before a space ends the column");
        assert_eq!(columns.position(), 13);
        let mut columns = Columns::new(r#""x"y" - "" g"#);
        assert_eq!(columns.quoted(), Some(r#"x"y"#));
        assert_eq!(columns.bare(), Some("-"));
        assert_eq!(columns.quoted(), Some(""));
        assert_eq!(columns.quoted(), None, "not in quotes");
        assert_eq!(columns.bare(), Some("g"));
        assert_eq!(columns.bare(), None);
    }

    #[test]
    fn a_request_line_has_three_parts() {
        let table = [
            ("GET /a HTTP/1.1", ("GET", "/a", "HTTP/1.1")),
            ("GET /a b HTTP/2", ("GET", "/a b", "HTTP/2")),
            ("GET /a", ("GET", "/a", "")),
            ("- - -", ("-", "-", "-")),
            ("", ("", "", "")),
        ];
        for (line, parts) in table {
            assert_eq!(split_request_line(line), parts, "{line}");
        }
    }
}
