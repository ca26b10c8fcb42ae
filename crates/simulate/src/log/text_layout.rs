//! Column layouts of the text formats.

use std::sync::LazyLock;

use Column::{Bare, Bracketed, Optional, Quoted, RequestLine};
use smallvec::SmallVec;

use super::fault::LineFault;

#[derive(Clone, Copy, Debug)]
pub(super) enum Column {
    Bare(&'static str),
    Bracketed(&'static str),
    Quoted(&'static str),
    /// `"METHOD PATH PROTOCOL"`: three fields.
    RequestLine,
    /// Like [`Column::Bare`], at the end of the line, and optional.
    Optional(&'static str),
}

#[derive(Debug)]
pub(super) struct TextLayout {
    pub name: &'static str,
    columns: Vec<Column>,
}

/// Envoy's default format.
pub(super) static ENVOY: LazyLock<TextLayout> = LazyLock::new(|| {
    let columns = r#"[start_time] "request" code flags bytes_received bytes_sent duration upstream_service_time
        "x-forwarded-for" "user-agent" "x-request-id" "authority" "upstream_host""#;
    TextLayout::new("envoy", columns)
});

/// Istio's default format.
pub(super) static ISTIO: LazyLock<TextLayout> = LazyLock::new(|| {
    let columns = r#"[start_time] "request" code flags response_code_details connection_termination_details
        "upstream_transport_failure_reason" bytes_received bytes_sent duration upstream_service_time
        "x-forwarded-for" "user-agent" "x-request-id" "authority" "upstream_host" upstream_cluster
        upstream_local_address downstream_local_address downstream_remote_address requested_server_name route_name"#;
    TextLayout::new("istio", columns)
});

/// nginx's `combined`, with two columns that operators add.
pub(super) static NGINX: LazyLock<TextLayout> = LazyLock::new(|| {
    let columns = r#"remote_addr identity remote_user [time_local] "request" code bytes_sent "referer" "user-agent"
        msec? request_time?"#;
    TextLayout::new("nginx", columns)
});

impl Column {
    /// `column`: a name, delimited as in the lines.
    fn of(column: &'static str) -> Self {
        let inside = |start, end| column.strip_prefix(start)?.strip_suffix(end);
        match (inside("[", "]"), inside("\"", "\""), inside("", "?")) {
            (Some(name), ..) => Bracketed(name),
            (_, Some("request"), _) => RequestLine,
            (_, Some(name), _) => Quoted(name),
            (.., Some(name)) => Optional(name),
            _ => Bare(column),
        }
    }
}

/// The values of all fields of a line.
pub(super) type TextValues<'l> = SmallVec<[&'l str; 32]>;

impl TextLayout {
    fn new(name: &'static str, columns: &'static str) -> Self {
        Self { name, columns: columns.split_whitespace().map(Column::of).collect() }
    }

    /// Field names, in the order of [`TextLayout::split`].
    pub fn fields(&self) -> Vec<&'static str> {
        let names = self.columns.iter().flat_map(|column| match column {
            Bare(name) | Bracketed(name) | Quoted(name) | Optional(name) => vec![*name],
            RequestLine => vec!["method", "path", "protocol"],
        });
        names.collect()
    }

    /// The values of the fields; a missing optional one is empty.
    pub fn split<'l>(&self, line: &'l str) -> Result<TextValues<'l>, LineFault> {
        let mut values = TextValues::new();
        let mut columns = Columns::new(line);
        for &column in &self.columns {
            let at = columns.position();
            let missing = |column| LineFault::Column { format: self.name, column, bytes: at };
            match column {
                Bare(name) => values.push(columns.bare().ok_or_else(|| missing(name))?),
                Bracketed(name) => values.push(columns.bracketed().ok_or_else(|| missing(name))?),
                Quoted(name) => values.push(columns.quoted().ok_or_else(|| missing(name))?),
                Optional(_) => values.push(columns.bare().unwrap_or_default()),
                RequestLine => {
                    let line = columns.quoted().ok_or_else(|| missing("request line in quotes"))?;
                    let (method, path, protocol) = split_request_line(line);
                    values.extend([method, path, protocol]);
                }
            }
        }
        if !columns.is_empty() {
            let bytes = columns.position();
            return Err(LineFault::Column { format: self.name, column: "end of the line", bytes });
        }
        Ok(values)
    }
}

/// The unparsed rest of a line.
struct Columns<'l> {
    line: &'l str,
    rest: &'l str,
}

impl<'l> Columns<'l> {
    pub fn new(line: &'l str) -> Self {
        Self { line, rest: line }
    }

    /// Bytes read.
    pub fn position(&self) -> usize {
        self.line.len() - self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Up to the next space.
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

    /// Takes `start..end` of the rest as a column of `length` bytes including delimiters, and the space after it.
    fn take(&mut self, start: usize, end: usize, length: usize) -> &'l str {
        let column = &self.rest[start..end];
        let after = &self.rest[length..];
        self.rest = after.strip_prefix(' ').unwrap_or(after);
        column
    }
}

/// Splits a request line into method, path and protocol. Logged paths of bad requests may contain spaces.
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
