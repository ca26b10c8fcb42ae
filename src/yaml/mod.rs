//! YAML text to a tree with line numbers. Knows nothing of rules and settings, nor what a scalar stands for.
//!
//! Only the first document is read, as the reference service does. Depth, size and alias expansion are bounded, and
//! nothing recurses over unbounded input.

mod builder;
mod error;
mod tabs;

use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};

use builder::Builder;
pub(crate) use error::YamlError;
use tabs::Tabs;

/// Bytes of text that weigh as much as a node.
const TEXT_PER_NODE: usize = 64;

/// A node of the tree. Clones share what is below.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Where it starts, from 1.
    pub line: u32,
    pub content: Content,
    /// Nodes below and including this one, long texts counting for several.
    size: usize,
    /// Levels below and including this one.
    height: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Scalar(Scalar),
    List(Rc<[Node]>),
    /// As written: repeated keys and merge keys included.
    Map(Rc<[(Node, Node)]>),
}

/// A scalar as written.
#[derive(Clone, Debug)]
pub(crate) struct Scalar {
    pub text: Rc<str>,
    /// Neither quoted nor tagged as text, so it may stand for something else than text.
    pub is_plain: bool,
}

/// The first document of a file.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// `None` for an empty file.
    pub root: Option<Node>,
    /// Where another document starts.
    pub second_line: Option<u32>,
}

/// Reads the first document of `text`.
pub(crate) fn parse(text: &str) -> Result<Document, YamlError> {
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    read(text, Tabs::default()).or_else(|error| {
        if !error.is_tab_after_colon() {
            return Err(error);
        }
        // The parser insists on a space there; the reference service's does not. To take one for the other is safe
        // unless a text contains it.
        let (spaced, tabs) = tabs::spaced(text);
        read(&spaced, tabs).map_err(|later| if later.is_tab_after_colon() { error } else { later })
    })
}

/// Reads the first document of `text`, in which spaces stand for `tabs`.
fn read(text: &str, mut tabs: Tabs) -> Result<Document, YamlError> {
    let mut events = Events { parser: Parser::new_from_str(text), text };
    let mut builder = Builder::default();
    while let Some((event, span)) = events.next()? {
        if matches!(event, Event::Scalar(..)) && tabs.are_within(span) {
            return Err(YamlError::tab_after_colon(line(span)));
        }
        match event {
            Event::StreamEnd => break,
            Event::DocumentEnd => {
                return Ok(Document { root: builder.into_root(), second_line: events.second_document()? });
            }
            _ => builder.take(event, span)?,
        }
    }
    Ok(Document { root: None, second_line: None })
}

struct Events<'t> {
    parser: Parser<'t, StrInput<'t>>,
    text: &'t str,
}

impl<'t> Events<'t> {
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, YamlError> {
        self.parser.next_event().transpose().map_err(|error| YamlError::scan(&error, self.text))
    }

    /// Where another document starts, after the end of the first.
    fn second_document(&mut self) -> Result<Option<u32>, YamlError> {
        let following = self.next()?;
        Ok(following.and_then(|(event, span)| matches!(event, Event::DocumentStart(_)).then(|| line(span))))
    }
}

fn line(span: Span) -> u32 {
    number(span.start.line())
}

fn number(line: usize) -> u32 {
    // A file of the bounded size has fewer lines than that.
    u32::try_from(line).unwrap_or(u32::MAX)
}

impl Node {
    pub fn is_map(&self) -> bool {
        matches!(self.content, Content::Map(_))
    }

    fn scalar(line: u32, text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Self {
        let is_plain = match tag.filter(|tag| tag.is_yaml_core_schema()) {
            Some(tag) => tag.suffix != "str",
            None => style == ScalarStyle::Plain,
        };
        Self {
            line,
            content: Content::Scalar(Scalar { text: text.into(), is_plain }),
            size: 1 + text.len() / TEXT_PER_NODE,
            height: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PIECES: [&str; 24] = [
        "a",
        "é",
        ":",
        "\t",
        " ",
        "\n",
        "\r\n",
        "  ",
        "- ",
        "|\n",
        "|-\n",
        ">+\n",
        "'",
        "\"",
        " # ",
        "{",
        "}",
        ", ",
        "b:\tc\n",
        "x:\ty",
        "? ",
        "a: |\n  ",
        "\n  d:\te\n",
        "&k ",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        /// A space after the tabs pleases the parser, too, and would show within a text.
        #[test]
        fn no_text_changes_where_spaces_are_read_for_tabs(pieces in proptest::collection::vec(0..PIECES.len(), 0..14)) {
            let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
            let needs_spaces = read(&text, Tabs::default()).is_err_and(|error| error.is_tab_after_colon());
            if let (true, Ok(document)) = (needs_spaces, parse(&text)) {
                let (_, tabs) = tabs::spaced(&text);
                let mut widened: Vec<char> = text.chars().collect();
                tabs.ends().rev().for_each(|end| widened.insert(end, ' '));
                let widened: String = widened.into_iter().collect();
                let shown = |document: Document| document.root.as_ref().map(shape);
                let widened = read(&widened, Tabs::default()).map(shown).map_err(|error| error.reason);
                prop_assert_eq!(Ok(shown(document)), widened, "{:?}", text);
            }
        }
    }

    fn reason(text: &str) -> String {
        parse(text).expect_err("refused").reason
    }

    /// The tree in one line, maps as `{key: value}`, texts in quotes where they were not plain.
    fn shape(node: &Node) -> String {
        match &node.content {
            Content::Scalar(scalar) if scalar.is_plain => scalar.text.to_string(),
            Content::Scalar(scalar) => format!("{:?}", scalar.text),
            Content::List(nodes) => format!("[{}]", nodes.iter().map(shape).collect::<Vec<_>>().join(", ")),
            Content::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| format!("{}: {}", shape(key), shape(value)));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
        }
    }

    #[test]
    fn a_tab_may_stand_between_a_key_and_its_value() {
        let table = [
            ("a:\tb\n", "{a: b}"),
            ("a:\t\tb\nc:\t-1\n", "{a: b, c: -1}"),
            ("é:\n  - b:\tü\n    c:\td\n", "{é: [{b: ü, c: d}]}"),
            ("{a:\tb, c:\t[d]}\n", "{a: b, c: [d]}"),
            ("a: x # b:\tc\nd:\te\n", "{a: x, d: e}"),
        ];
        for (text, expected) in table {
            let root = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error:?}")).root;
            assert_eq!(root.as_ref().map(shape).as_deref(), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn a_tab_within_a_text_is_kept_or_everything_refused() {
        let kept = [
            ("a: |\n  b:\tc\n", r#"{a: "b:\tc\n"}"#),
            ("a: \"b:\tc\"\nd:\t\"e\"\n", r#"{a: "b:\tc", d: "e"}"#),
        ];
        for (text, expected) in kept {
            assert_eq!(
                parse(text).expect(text).root.as_ref().map(shape).as_deref(),
                Some(expected),
                "{text:?}"
            );
        }
        for text in [
            "a: |\n  b:\tc\nd:\te\n",
            "d:\te\na: 'b:\tc'\n",
            "d:\te\na: >-\n  x\n  é:\tc",
            "d:\te\n? |\n  b:\tc\n: e\n",
        ] {
            let tab = "a tab stands between ':' and the value; put a space in its place";
            assert_eq!(reason(text), tab, "{text:?}");
        }
    }

    #[test]
    fn what_the_parser_says_comes_with_what_to_do() {
        let quotes = "; a value that begins with '*' must be in quotes";
        let deeper = "; what goes on within brackets or quotes must be indented deeper than the key above it";
        let table = [
            ("a: *\n", Some(quotes)),
            ("a: *.example.com\n", Some(quotes)),
            ("- [x, *]\n", Some(quotes)),
            ("a:\n  b: {c: 1,\n  d: 2}\n", Some(deeper)),
            ("a: [\n1\n]\n", Some(deeper)),
            ("a:\n  - b: 'x\n  y'\n", Some(deeper)),
            ("a: @x\n", None),
            ("a: [", None),
        ];
        for (text, hint) in table {
            let reason = reason(text);
            assert_eq!(
                reason.split_once(';').map(|(_, hint)| format!(";{hint}")).as_deref(),
                hint,
                "{text:?}"
            );
        }
    }

    #[test]
    fn nesting_is_bounded_however_it_is_written() {
        let flow = format!("{}{}", "[".repeat(101), "]".repeat(101));
        let block = "- ".repeat(200_000);
        let keys = (0..101).fold(String::new(), |text, level| text + &" ".repeat(level) + "a:\n");
        for text in [flow, block, keys] {
            assert_eq!(reason(&text), "lists and maps may not nest deeper than 100 levels");
        }
        let deep = "- ".repeat(100);
        assert!(parse(&deep).is_ok());
    }

    #[test]
    fn nesting_is_bounded_through_aliases() {
        let mut text = "- &a0 []\n".to_owned();
        for level in 1..=100 {
            text += &format!("- &a{level} [*a{}]\n", level - 1);
        }
        assert_eq!(reason(&text), "lists and maps may not nest deeper than 100 levels");
    }

    #[test]
    fn aliases_cannot_blow_a_document_up() {
        let mut text = "- &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            text += &format!("- &a{level} [{aliases}]\n");
        }
        assert_eq!(reason(&text), "aliases add more than 200000 nodes to the document");
    }

    #[test]
    fn an_alias_cannot_contain_itself() {
        assert_eq!(reason("&a [*a]"), "an alias stands inside the anchor that it names");
    }

    #[test]
    fn only_the_first_document_counts() {
        let document = parse("a: 1\n---\nb: 2\n").expect("yaml");
        assert_eq!(document.second_line, Some(2));
        assert_eq!(parse("a: 1\n").expect("yaml").second_line, None);
        assert!(parse("").expect("yaml").root.is_none());
        assert!(parse("# only a comment\n").expect("yaml").root.is_none());
    }
}
