//! Makes the tree from the parser's events, with a stack of its own.

use std::collections::HashMap;

use saphyr_parser::{Event, Span};

use super::error::YamlError;
use super::{Content, Node, line};

/// Lists and maps within each other; about half as many levels of descriptors.
const DEEPEST: usize = 100;
/// Nodes that aliases may add to a document: enough for any rule file, too few for an alias bomb.
const ALIASED_NODES: usize = 200_000;

/// A list or map that is not complete yet.
struct Open {
    anchor: usize,
    line: u32,
    children: Vec<Node>,
    is_map: bool,
}

/// What there is of the tree so far.
#[derive(Default)]
pub(super) struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    aliased: usize,
    root: Option<Node>,
}

impl Builder {
    /// The whole tree, once the document has ended.
    pub fn into_root(self) -> Option<Node> {
        self.root
    }

    pub fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
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
