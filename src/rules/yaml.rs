//! YAML text to a tree with line numbers. Knows nothing of rules.
//!
//! Only the first document is read, as the reference service does. The tree is built from parser events with a stack
//! of its own, so depth, size and alias expansion are bounded here and nothing recurses over unbounded input.

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

/// Lists and maps within each other; about half as many levels of descriptors.
const DEEPEST: usize = 100;
/// Nodes that aliases may add to a document: enough for any rule file, too few for an alias bomb.
const ALIASED_NODES: usize = 200_000;

/// Bytes of text that weigh as much as a node.
const TEXT_PER_NODE: usize = 64;

/// A node of the tree. Clones share what is below.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Where it starts, from 1.
    pub line: u32,
    pub content: Content,
    /// Nodes below and including this one, long texts counting for several.
    size: usize,
    /// Levels below and including this one.
    height: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Scalar(Scalar),
    List(Rc<[Node]>),
    /// As written: repeated keys and merge keys included.
    Map(Rc<[(Node, Node)]>),
}

/// A scalar as written.
#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub text: Rc<str>,
    /// Neither quoted nor tagged as text, so it may stand for something else than text.
    pub is_plain: bool,
}

/// The first document of a file.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// `None` for an empty file.
    pub root: Option<Node>,
    /// Where another document starts.
    pub second_line: Option<u32>,
}

/// Why a text is no YAML, or more than is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct YamlError {
    pub line: u32,
    pub reason: String,
}

/// Reads the first document of `text`.
pub(super) fn parse(text: &str) -> Result<Document, YamlError> {
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder::default();
    while let Some((event, span)) = next(&mut parser)? {
        match event {
            Event::StreamEnd => break,
            Event::DocumentEnd => {
                return Ok(Document { root: builder.root, second_line: second_document(&mut parser)? });
            }
            _ => builder.take(event, span)?,
        }
    }
    Ok(Document { root: None, second_line: None })
}

fn next<'t>(parser: &mut Parser<'t, StrInput<'t>>) -> Result<Option<(Event<'t>, Span)>, YamlError> {
    parser.next_event().transpose().map_err(|error| scan_error(&error))
}

fn second_document<'t>(parser: &mut Parser<'t, StrInput<'t>>) -> Result<Option<u32>, YamlError> {
    let following = next(parser)?;
    Ok(following.and_then(|(event, span)| matches!(event, Event::DocumentStart(_)).then(|| line(span))))
}

fn scan_error(error: &ScanError) -> YamlError {
    YamlError { line: number(error.marker().line()), reason: error.info().to_owned() }
}

fn line(span: Span) -> u32 {
    number(span.start.line())
}

fn number(line: usize) -> u32 {
    // A file of the bounded size has fewer lines than that.
    u32::try_from(line).unwrap_or(u32::MAX)
}

/// A list or map that is not complete yet.
struct Open {
    anchor: usize,
    line: u32,
    children: Vec<Node>,
    is_map: bool,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    aliased: usize,
    root: Option<Node>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let line = line(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.add(Node::scalar(line, &text, style, tag.as_deref()), anchor)
            }
            Event::SequenceStart(anchor, _) => self.start(anchor, line, false),
            Event::MappingStart(anchor, _) => self.start(anchor, line, true),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => {
                    let anchor = open.anchor;
                    self.add(open.close(), anchor)
                }
                None => Ok(()),
            },
            Event::Alias(anchor) => self.alias(anchor, line),
            _ => Ok(()),
        }
    }

    fn start(&mut self, anchor: usize, line: u32, is_map: bool) -> Result<(), YamlError> {
        self.open.push(Open { anchor, line, children: Vec::new(), is_map });
        self.check_depth(0, line)
    }

    fn check_depth(&self, height: usize, line: u32) -> Result<(), YamlError> {
        if self.open.len() + height > DEEPEST {
            let reason = format!("lists and maps may not nest deeper than {DEEPEST} levels");
            return Err(YamlError { line, reason });
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, line: u32) -> Result<(), YamlError> {
        let Some(node) = self.anchors.get(&anchor) else {
            let reason = "an alias stands inside the anchor that it names".to_owned();
            return Err(YamlError { line, reason });
        };
        self.check_depth(node.height, line)?;
        self.aliased += node.size;
        if self.aliased > ALIASED_NODES {
            let reason = format!("aliases add more than {ALIASED_NODES} nodes to the document");
            return Err(YamlError { line, reason });
        }
        let node = node.clone();
        self.add(node, 0)
    }

    fn add(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        self.check_depth(node.height, node.line)?;
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            Some(open) => open.children.push(node),
            None => self.root = Some(node),
        }
        Ok(())
    }
}

impl Open {
    fn close(self) -> Node {
        let size = 1 + self.children.iter().map(|child| child.size).sum::<usize>();
        let height = 1 + self.children.iter().map(|child| child.height).max().unwrap_or(0);
        let content = if self.is_map {
            Content::Map(in_pairs(self.children).into())
        } else {
            Content::List(self.children.into())
        };
        Node { line: self.line, content, size, height }
    }
}

fn in_pairs(nodes: Vec<Node>) -> Vec<(Node, Node)> {
    let mut pairs = Vec::with_capacity(nodes.len() / 2);
    let mut nodes = nodes.into_iter();
    while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
        pairs.push((key, value));
    }
    pairs
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
    use super::*;

    fn reason(text: &str) -> String {
        parse(text).expect_err("refused").reason
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
