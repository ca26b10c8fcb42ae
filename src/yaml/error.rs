//! Why a text is no YAML: what the parser says, and what to do about it where that is known.

use saphyr_parser::ScanError;

use super::number;

/// Why a text is no YAML, or more than is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct YamlError {
    pub line: u32,
    pub reason: String,
}

const TAB_AFTER_COLON: &str = "a tab stands between ':' and the value; put a space in its place";
const STAR: &str = "; a value that begins with '*' must be in quotes";
const DEEPER: &str = "; what goes on within brackets or quotes must be indented deeper than the key above it";

impl YamlError {
    /// What the parser says of `text`.
    pub(super) fn scan(error: &ScanError, text: &str) -> Self {
        let line = error.marker().line();
        if error.info() == "':' must be followed by a valid YAML whitespace" {
            return Self::tab_after_colon(number(line));
        }
        let written = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let is_star = written.chars().nth(error.marker().col()) == Some('*');
        let hint = match error.info() {
            info if is_star && (info.contains("anchor") || info.contains("alias")) => STAR,
            "invalid indentation"
            | "invalid indentation in flow construct"
            | "invalid indentation in quoted scalar" => DEEPER,
            _ => "",
        };
        Self { line: number(line), reason: format!("{}{hint}", error.info()) }
    }

    pub(super) fn tab_after_colon(line: u32) -> Self {
        Self { line, reason: TAB_AFTER_COLON.to_owned() }
    }

    pub(super) fn is_tab_after_colon(&self) -> bool {
        self.reason == TAB_AFTER_COLON
    }
}
