//! Parses YAML into a tree with line numbers, without interpreting scalars.
//!
//! Only the first document is read, as in envoyproxy/ratelimit. Depth, size, alias expansion and the parser's memory
//! are bounded: a file of the wrong kind must not take the process down.

mod builder;
mod tree;

use saphyr_parser::{BufferedInput, Event, Parser, Span};

use builder::{BoundedChars, ReadAhead, TreeBuilder};
use tree::start_line;
pub use tree::{Content, Document, Node, Scalar, YamlError, excerpt};

/// Reads the first document of `text`.
pub fn parse(text: &str) -> Result<Document, YamlError> {
    parse_with(text, |_| Ok(()))
}

/// Reads the first document of `text`, and passes each element of its list to `on_element` as soon as it ends. A long
/// list then needs no more memory than its largest element, and the bounds of a document apply to each element. Returns
/// the document without these elements: an empty list, unless the document is something else.
pub fn parse_list(
    text: &str,
    mut on_element: impl FnMut(Node) -> Result<(), YamlError>,
) -> Result<Document, YamlError> {
    parse_with(text, |builder| builder.take_element().map_or(Ok(()), &mut on_element))
}

fn parse_with(
    text: &str,
    mut after_event: impl FnMut(&mut TreeBuilder) -> Result<(), YamlError>,
) -> Result<Document, YamlError> {
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let mut events = Events::new(text);
    let mut builder = TreeBuilder::default();
    while let Some((event, span)) = events.next_event()? {
        match event {
            Event::StreamEnd => break,
            Event::DocumentEnd => {
                return Ok(Document { root: builder.into_root(), second_line: events.second_document()? });
            }
            _ => builder.add_event(event, span)?,
        }
        after_event(&mut builder)?;
    }
    Ok(Document { root: None, second_line: None })
}

struct Events<'t> {
    parser: Parser<'t, BufferedInput<BoundedChars<'t>>>,
    read_ahead: ReadAhead,
    text: &'t str,
}

impl<'t> Events<'t> {
    fn new(text: &'t str) -> Self {
        let read_ahead = ReadAhead::default();
        let parser = Parser::new_from_iter(BoundedChars::new(text, read_ahead.clone()));
        Self { parser, read_ahead, text }
    }

    fn next_event(&mut self) -> Result<Option<(Event<'t>, Span)>, YamlError> {
        self.read_ahead.restart();
        let event = self.parser.next_event().transpose();
        // Checked first: the parser has seen the end of its input, which usually is an error of its own.
        self.read_ahead.check()?;
        event.map_err(|error| YamlError::from_scan(&error, self.text))
    }

    /// The line on which a second document starts. Call after the end of the first.
    fn second_document(&mut self) -> Result<Option<u32>, YamlError> {
        let following = self.next_event()?;
        Ok(following
            .and_then(|(event, span)| matches!(event, Event::DocumentStart(_)).then(|| start_line(span))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str) -> String {
        parse(text).expect_err("refused").reason
    }

    /// The tree in one line, maps as `{key: value}`, scalars that are not plain in quotes.
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
    fn a_tab_after_a_colon_is_refused_with_its_line_and_what_to_write() {
        for text in ["a: 1\nb:\tc\n", "a: 1\nb:\t-1\n", "{x: y,\n b:\tc}\n", "- x\n- b:\tc\n"] {
            let error = parse(text).expect_err("refused");
            assert_eq!(
                (error.line, error.reason.as_str()),
                (2, "a tab follows ':'; write a space instead"),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_tab_that_indents_is_refused_with_its_line_and_what_to_write() {
        let table = [
            ("domain: d\ndescriptors:\n\t- key: a\n", 3),
            ("domain: d\ndescriptors:\n  - key: a\n\tvalue: b\n", 4),
            ("domain: d\ndescriptors:\n  - key: a\n\n  \tvalue: b\n", 5),
            ("a:\n  b: 'x\n\ty'\n", 3),
        ];
        for (text, line) in table {
            let error = parse(text).expect_err("refused");
            let reason = "a tab indents this line; write spaces instead";
            assert_eq!((error.line, error.reason.as_str()), (line, reason), "{text:?}");
        }
    }

    #[test]
    fn a_control_character_is_refused_with_its_line_and_its_number() {
        let table = [
            ("a: b\nc: d\u{1}\n", 2, "U+0001"),
            ("a: b\n# \u{7f}\n", 2, "U+007F"),
            ("a: \"\u{0}\"\n", 1, "U+0000"),
            ("a:\n  - [b, c\u{9b}]\n", 2, "U+009B"),
            ("a: \u{fffe}\n", 1, "U+FFFE"),
        ];
        for (text, line, number) in table {
            let error = parse(text).expect_err("refused");
            let reason = format!("control characters are not allowed ({number})");
            assert_eq!((error.line, error.reason), (line, reason), "{text:?}");
        }
        for text in ["a: b\u{85}c\n", "a:\r\n  b: c\r\n", "a: \"\\x01\"\n", "\u{feff}a: \u{e000}\n"] {
            assert!(parse(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn a_tab_within_a_text_or_before_quotes_is_kept() {
        let kept = [
            ("a: |\n  b:\tc\n", r#"{a: "b:\tc\n"}"#),
            ("a: \"b:\tc\"\nd:\t\"e\"\n", r#"{a: "b:\tc", d: "e"}"#),
            ("a: x # b:\tc\n", "{a: x}"),
        ];
        for (text, expected) in kept {
            assert_eq!(
                parse(text).expect(text).root.as_ref().map(shape).as_deref(),
                Some(expected),
                "{text:?}"
            );
        }
    }

    #[test]
    fn parser_errors_say_what_to_write_instead() {
        let quotes = "; a value that begins with '*' must be in quotes";
        let deeper =
            "; lines inside brackets or quotes must be indented deeper than the key that they belong to";
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
    fn alias_expansion_is_bounded() {
        let mut text = "- &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            text += &format!("- &a{level} [{aliases}]\n");
        }
        assert_eq!(reason(&text), "aliases add more than 200000 nodes to the document");
    }

    #[test]
    fn the_number_of_nodes_is_bounded() {
        let refused = "the document has more than 400000 keys and values";
        let list = |nodes: usize| "- x\n".repeat(nodes);
        // The list itself is a node.
        assert!(parse(&list(399_999)).is_ok());
        let error = parse(&list(400_000)).expect_err("refused");
        assert_eq!((error.line, error.reason.as_str()), (400_000, refused));
        let pairs: String = (0..300_000).map(|key| format!("k{key}: v\n")).collect();
        assert_eq!(reason(&pairs), refused);
        let aliases = "- &a x\n".to_owned() + &"- *a\n".repeat(600_000);
        assert_eq!(reason(&aliases), "aliases add more than 200000 nodes to the document");
        let anchors: String = (0..20_000).map(|anchor| format!("- &a{anchor} x\n")).collect();
        assert_eq!(reason(&anchors), "the document has more than 10000 anchors");
    }

    #[test]
    fn a_list_or_map_in_brackets_is_bounded_and_one_without_is_not() {
        let refused = "a list or map in brackets is too long; write it without brackets";
        let flow = |items: usize| format!("# c\n[{}]", "a, [], ".repeat(items));
        assert!(parse(&flow(20_000)).is_ok());
        for text in [flow(100_000), flow(100_000).replace(", ", ",\n")] {
            assert_eq!(reason(&text), refused);
        }
        for item in ["'a', ", "\"a\", ", "a: b, ", "? a, ", "!a b, ", "&a b, "] {
            assert_eq!(reason(&format!("[{}", item.repeat(300_000))), refused, "{item}");
        }
        let pairs: String = (0..100_000).map(|key| format!("k{key}: [a, b, c]  # {{}}\n")).collect();
        assert!(parse(&pairs).is_err_and(|error| error.reason.contains("keys and values")));
        let comments = "# []{},:\n".repeat(30_000) + "a: 1\n";
        assert!(parse(&comments).is_ok());
    }

    #[test]
    fn an_alias_cannot_contain_itself() {
        assert_eq!(reason("&a [*a]"), "an alias is inside the node that it refers to");
    }

    #[test]
    fn binary_values_are_decoded_to_text() {
        let kept = [
            ("a: !!binary aGVsbG8=\n", r#"{a: "hello"}"#),
            ("a: !!binary |\n  aGVs\n  bG8=\n", r#"{a: "hello"}"#),
            ("a: !!binary NQ==\n", r#"{a: "5"}"#), // a string, not a number
            ("a: !!binary ''\n", r#"{a: ""}"#),
        ];
        for (text, expected) in kept {
            assert_eq!(
                parse(text).expect(text).root.as_ref().map(shape).as_deref(),
                Some(expected),
                "{text:?}"
            );
        }
        for (text, expected) in [("gIGC", "not UTF-8"), ("aGVsbG8", "not base64"), ("'%%'", "not base64")] {
            let error = parse(&format!("a: 1\nb: !!binary {text}\n")).expect_err("refused");
            assert_eq!((error.line, error.reason), (2, format!("the value of !!binary is {expected}")));
        }
    }

    #[test]
    fn only_the_first_document_counts() {
        let document = parse("a: 1\n---\nb: 2\n").expect("yaml");
        assert_eq!(document.second_line, Some(2));
        assert_eq!(parse("a: 1\n").expect("yaml").second_line, None);
        assert!(parse("").expect("yaml").root.is_none());
        assert!(parse("# only a comment\n").expect("yaml").root.is_none());
    }

    #[test]
    fn the_elements_of_a_list_come_one_by_one() {
        let elements = |text: &str| {
            let mut elements = Vec::new();
            let document = parse_list(text, |node| {
                elements.push((node.line, shape(&node)));
                Ok(())
            });
            (elements, document.map(|document| document.root.as_ref().map(shape)))
        };
        let text = "- &one { a: [1, 2] }\n- *one\n-\n  - x\n";
        let expected = [(1, "{a: [1, 2]}"), (1, "{a: [1, 2]}"), (4, "[x]")];
        let (found, rest) = elements(text);
        assert_eq!(found, expected.map(|(line, shape)| (line, shape.to_owned())));
        assert_eq!(rest, Ok(Some("[]".to_owned())));
        assert_eq!(elements("[a, {b: c}]").0.len(), 2);
        for (text, rest) in [("a: [b]\n", Some("{a: [b]}")), ("x", Some("x")), ("", None), ("[]", Some("[]"))]
        {
            assert_eq!(elements(text), (Vec::new(), Ok(rest.map(str::to_owned))), "{text:?}");
        }
    }

    #[test]
    fn a_list_may_be_longer_than_a_document_if_its_elements_are_short() {
        let mut count = 0;
        let long = "- { a: b }\n".repeat(200_000);
        let read = parse_list(&long, |_| {
            count += 1;
            Ok(())
        });
        assert!(read.is_ok() && parse(&long).is_err());
        assert_eq!(count, 200_000);
        let element = format!("- [{}x]\n", "x, ".repeat(400_001));
        assert!(parse_list(&element, |_| Ok(())).is_err());
    }
}
