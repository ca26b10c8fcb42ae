//! Parser errors: the parser's own text, and what to write instead where that is known.

use saphyr_parser::ScanError;

use super::tree::line_number;

/// A message quotes at most this many characters of a value.
const MAX_EXCERPT_CHARS: usize = 60;

/// The beginning of `text` for a message, and `...` if the text is longer.
pub fn excerpt(text: &str) -> (&str, &'static str) {
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => (&text[..end], "..."),
        None => (text, ""),
    }
}

/// Why a text cannot be parsed, or exceeds a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    pub line: u32,
    pub reason: String,
}

const TAB_AFTER_COLON: &str = "a tab follows ':'; write a space instead";
const STAR: &str = "; a value that begins with '*' must be in quotes";
const INDENTATION: &str =
    "; lines inside brackets or quotes must be indented deeper than the key that they belong to";

impl YamlError {
    /// The parser's `error` about `text`.
    pub(super) fn from_scan(error: &ScanError, text: &str) -> Self {
        let line = error.marker().line();
        let starts_with_star = || {
            let written = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
            written.chars().nth(error.marker().col()) == Some('*')
        };
        let reason = match error.info() {
            "':' must be followed by a valid YAML whitespace" => TAB_AFTER_COLON.to_owned(),
            info @ ("invalid indentation"
            | "invalid indentation in flow construct"
            | "invalid indentation in quoted scalar") => format!("{info}{INDENTATION}"),
            info if (info.contains("anchor") || info.contains("alias")) && starts_with_star() => {
                format!("{info}{STAR}")
            }
            info => info.to_owned(),
        };
        Self { line: line_number(line), reason }
    }
}
