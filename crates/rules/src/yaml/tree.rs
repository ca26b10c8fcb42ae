//! The tree: nodes with the line on which they start, and scalars as written; and parse errors.

use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use saphyr_parser::{ScalarStyle, ScanError, Span, Tag};
use serde_json::Value;

/// This many bytes of a scalar count as one node, so that aliases of long strings are bounded too.
const TEXT_BYTES_PER_NODE: usize = 64;

/// Clones share the nodes below.
#[derive(Clone, Debug)]
pub struct Node {
    /// The first line of the node, from 1.
    pub line: u32,
    pub content: Content,
    /// The number of nodes from here down, including this one; a long string counts as several.
    pub(super) size: u32,
    /// The number of levels below this one; the depth of a document is bounded far below 255.
    pub(super) height: u8,
}

#[derive(Clone, Debug)]
pub enum Content {
    Scalar(Scalar),
    List(Rc<[Node]>),
    /// The pairs as written, including repeated keys and merge keys.
    Map(Rc<[(Node, Node)]>),
}

#[derive(Clone, Debug)]
pub struct Scalar {
    pub text: Rc<str>,
    /// Neither quoted nor tagged as string or binary, so the scalar may be a number, a boolean or null.
    pub is_plain: bool,
}

impl Scalar {
    /// `true` if YAML reads the scalar as null: nothing, `~` or `null`, not quoted.
    pub fn is_null(&self) -> bool {
        self.is_plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }
}

/// The first document of a file.
#[derive(Clone, Debug)]
pub struct Document {
    /// `None` for an empty file.
    pub root: Option<Node>,
    /// The line on which a second document starts.
    pub second_line: Option<u32>,
}

impl Node {
    pub fn is_map(&self) -> bool {
        matches!(self.content, Content::Map(_))
    }

    /// # Errors
    /// Why a `!!binary` value is not a string.
    pub(super) fn scalar(
        line: u32,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
    ) -> Result<Self, &'static str> {
        let tag = tag.filter(|tag| tag.is_yaml_core_schema()).map(|tag| &*tag.suffix);
        let decoded = (tag == Some("binary")).then(|| decode_binary(text)).transpose()?;
        let text = decoded.as_deref().unwrap_or(text);
        let is_plain = tag.map_or(style == ScalarStyle::Plain, |tag| !matches!(tag, "str" | "binary"));
        let size = u32::try_from(text.len() / TEXT_BYTES_PER_NODE).unwrap_or(u32::MAX).saturating_add(1);
        Ok(Self { line, size, ..Self::unwritten(text, is_plain) })
    }

    /// A scalar without quotes. Nodes that are in no file are on line 0.
    pub fn plain(text: &str) -> Self {
        Self::unwritten(text, true)
    }

    /// A string on line 0.
    pub fn text(text: &str) -> Self {
        Self::unwritten(text, false)
    }

    fn unwritten(text: &str, is_plain: bool) -> Self {
        let content = Content::Scalar(Scalar { text: text.into(), is_plain });
        Self { line: 0, content, size: 1, height: 0 }
    }

    /// A list on line 0.
    pub fn list(elements: impl Iterator<Item = Self>) -> Self {
        Self::collection(0, elements.collect(), false)
    }

    /// A map on line 0. Its keys are strings.
    pub fn map(pairs: impl IntoIterator<Item = (impl AsRef<str>, Self)>) -> Self {
        let children = pairs.into_iter().flat_map(|(key, value)| [Self::text(key.as_ref()), value]);
        Self::collection(0, children.collect(), true)
    }

    /// A list or map that starts on `line`, with the sizes of its `children` added up.
    pub(super) fn collection(line: u32, children: Vec<Self>, is_map: bool) -> Self {
        let size = children.iter().fold(1, |size: u32, child| size.saturating_add(child.size));
        let height = children.iter().map(|child| child.height).max().unwrap_or(0).saturating_add(1);
        let content =
            if is_map { Content::Map(into_pairs(children).into()) } else { Content::List(children.into()) };
        Self { line, content, size, height }
    }
}

/// If a name is repeated, the last value counts.
impl From<&Value> for Node {
    fn from(json: &Value) -> Self {
        match json {
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::plain(&json.to_string()),
            Value::String(text) => Self::text(text),
            Value::Array(elements) => Self::list(elements.iter().map(Self::from)),
            Value::Object(fields) => Self::map(fields.iter().map(|(name, value)| (name, value.into()))),
        }
    }
}

/// Decodes a value with the tag `!!binary`, which is base64 and may have line breaks.
///
/// # Errors
/// Why it cannot be decoded to a string.
fn decode_binary(value: &str) -> Result<String, &'static str> {
    let digits: String = value.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(digits).map_err(|_| "the value of !!binary is not base64")?;
    String::from_utf8(bytes).map_err(|_| "the value of !!binary is not UTF-8")
}

/// The parser reports the keys and values of a map in turn.
fn into_pairs(nodes: Vec<Node>) -> Vec<(Node, Node)> {
    let mut pairs = Vec::with_capacity(nodes.len() / 2);
    let mut nodes = nodes.into_iter();
    while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
        pairs.push((key, value));
    }
    pairs
}

/// The first line of `span`.
pub(super) fn start_line(span: Span) -> u32 {
    line_number(span.start.line())
}

pub(super) fn line_number(line: usize) -> u32 {
    // Never reached by rule files: `rules` bounds their size. A larger settings file only gets wrong lines in messages.
    u32::try_from(line).unwrap_or(u32::MAX)
}

/// Characters of a value that a message may quote.
const MAX_EXCERPT_CHARS: usize = 60;

/// The beginning of `text` for a message, and `...` if the text is longer.
pub fn excerpt(text: &str) -> (&str, &'static str) {
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => (&text[..end], "..."),
        None => (text, ""),
    }
}

/// Why a document cannot be decoded or parsed, exceeds a bound, or is not what its reader expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    pub line: u32,
    pub reason: String,
}

const TAB_AFTER_COLON: &str = "a tab follows ':'; write a space instead";
const TAB_INDENTS: &str = "a tab indents this line; write spaces instead";
const STAR: &str = "; a value that begins with '*' must be in quotes";
const INDENTATION: &str =
    "; lines inside brackets or quotes must be indented deeper than the key that they belong to";

impl YamlError {
    pub fn new(line: u32, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }

    /// The parser's `error` about `text`.
    pub(super) fn from_scan(error: &ScanError, text: &str) -> Self {
        let line = error.marker().line();
        if let Some(line) = indenting_tab(error, text) {
            return Self::new(line_number(line), TAB_INDENTS);
        }
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

/// The line that a tab indents, if the error is about that. A scalar over several lines starts on an earlier one.
fn indenting_tab(error: &ScanError, text: &str) -> Option<usize> {
    if !error.info().contains("tab") {
        return None;
    }
    let is_indented_by_tab = |line: &str| {
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        indentation < line.len() && line[..indentation].contains('\t')
    };
    let start = error.marker().line();
    let mut lines = text.lines().enumerate().skip(start.saturating_sub(1));
    lines.find(|(_, line)| is_indented_by_tab(line)).map(|(index, _)| index + 1)
}
