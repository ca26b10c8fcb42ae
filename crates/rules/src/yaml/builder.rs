//! Both ends of the YAML parser, with their bounds: the characters that it reads, and the tree built from its events.
//! The builder keeps its own stack, so nothing recurses over the input.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::str::Chars;

use saphyr_parser::{Event, Span};

use super::tree::{Node, YamlError, start_line};

/// Deepest nesting of lists and maps. A level of descriptors takes two of these levels.
const MAX_DEPTH: usize = 100;
/// Nodes of a document: keys, values, lists and maps. About 40,000 rules with one limit each; a node takes about 70
/// bytes, and briefly twice that when a long list ends.
const MAX_NODES: usize = 400_000;
/// Anchors are kept until the end of the document.
const MAX_ANCHORS: usize = 10_000;
/// Nodes that aliases may add to a document: enough for any rule file, too few for an alias bomb.
const MAX_ALIASED_NODES: usize = 200_000;

/// The parser keeps all tokens of a list or map in brackets until the closing bracket, because the whole may be the key
/// of a map. A token takes about 200 bytes of memory and one or two bytes of input, so the input is bounded before the
/// parser returns an event. A token has at least one indicator of weight 2, or two quotes of weight 1: about 200,000
/// tokens, or a rule file of 10,000 rules as JSON.
const MAX_WEIGHT: usize = 400_000;

/// A list or map whose end has not been reached.
struct OpenNode {
    anchor: usize,
    line: u32,
    children: Vec<Node>,
    is_map: bool,
}

/// The tree as parsed so far.
#[derive(Default)]
pub(super) struct TreeBuilder {
    open: Vec<OpenNode>,
    nodes: usize,
    anchors: HashMap<usize, Node>,
    aliased: usize,
    root: Option<Node>,
}

impl TreeBuilder {
    /// The whole tree, after the end of the document.
    pub fn into_root(self) -> Option<Node> {
        self.root
    }

    /// Removes the last element if the document is a list and the element has ended. The bounds on nodes and aliases
    /// then apply to the next element.
    pub fn take_element(&mut self) -> Option<Node> {
        match self.open.as_mut_slice() {
            [OpenNode { is_map: false, children, .. }] => {
                let element = children.pop()?;
                (self.nodes, self.aliased) = (0, 0);
                Some(element)
            }
            _ => None,
        }
    }

    pub fn add_event(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let line = start_line(span);
        if matches!(
            event,
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(_)
        ) {
            self.count_node(line)?;
        }
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let node = Node::scalar(line, &text, style, tag.as_deref());
                let node = node.map_err(|reason| YamlError { line, reason: reason.to_owned() })?;
                self.add_node(node, anchor)
            }
            Event::SequenceStart(anchor, _) => self.open_node(anchor, line, false),
            Event::MappingStart(anchor, _) => self.open_node(anchor, line, true),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(OpenNode { anchor, line, children, is_map }) => {
                    self.add_node(Node::collection(line, children, is_map), anchor)
                }
                None => Ok(()),
            },
            Event::Alias(anchor) => self.add_alias(anchor, line),
            _ => Ok(()),
        }
    }

    fn open_node(&mut self, anchor: usize, line: u32, is_map: bool) -> Result<(), YamlError> {
        self.open.push(OpenNode { anchor, line, children: Vec::new(), is_map });
        self.check_depth(0, line)
    }

    fn count_node(&mut self, line: u32) -> Result<(), YamlError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            let reason = format!("the document has more than {MAX_NODES} keys and values");
            return Err(YamlError { line, reason });
        }
        Ok(())
    }

    fn check_depth(&self, height: usize, line: u32) -> Result<(), YamlError> {
        if self.open.len() + height > MAX_DEPTH {
            let reason = format!("lists and maps may not nest deeper than {MAX_DEPTH} levels");
            return Err(YamlError { line, reason });
        }
        Ok(())
    }

    fn add_alias(&mut self, anchor: usize, line: u32) -> Result<(), YamlError> {
        let Some(node) = self.anchors.get(&anchor) else {
            let reason = "an alias is inside the node that it refers to".to_owned();
            return Err(YamlError { line, reason });
        };
        self.check_depth(usize::from(node.height), line)?;
        self.aliased += node.size as usize;
        if self.aliased > MAX_ALIASED_NODES {
            let reason = format!("aliases add more than {MAX_ALIASED_NODES} nodes to the document");
            return Err(YamlError { line, reason });
        }
        let node = node.clone();
        self.add_node(node, 0)
    }

    /// `anchor` is 0 for a node without one.
    fn add_node(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        self.check_depth(usize::from(node.height), node.line)?;
        if anchor != 0 {
            if self.anchors.len() >= MAX_ANCHORS {
                let reason = format!("the document has more than {MAX_ANCHORS} anchors");
                return Err(YamlError { line: node.line, reason });
            }
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            Some(open) => open.children.push(node),
            None => self.root = Some(node),
        }
        Ok(())
    }
}

/// What the parser has read since the last event. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadAhead {
    weight: Rc<Cell<usize>>,
    /// The line last read, from 1.
    line: Rc<Cell<u32>>,
    /// The first character that YAML does not allow, if there is one.
    control: Rc<Cell<Option<char>>>,
}

fn is_allowed(letter: char) -> bool {
    match letter {
        '\t' | '\n' | '\r' | '\u{85}' => true,
        '\u{FFFE}' | '\u{FFFF}' => false,
        other => !other.is_control(),
    }
}

impl ReadAhead {
    /// Call before the parser returns an event.
    pub fn restart(&self) {
        self.weight.set(0);
    }

    /// Call after the parser has returned an event.
    pub fn check(&self) -> Result<(), YamlError> {
        if let Some(control) = self.control.get() {
            let reason = format!("control characters are not allowed (U+{:04X})", u32::from(control));
            return Err(YamlError { line: self.line.get(), reason });
        }
        if self.weight.get() <= MAX_WEIGHT {
            return Ok(());
        }
        let reason = "a list or map in brackets is too long; write it without brackets".to_owned();
        Err(YamlError { line: self.line.get(), reason })
    }

    /// `true` if the parser may read on after `next`.
    fn add(&self, next: char) -> bool {
        match next {
            '\n' => self.line.set(self.line.get().saturating_add(1)),
            '[' | ']' | '{' | '}' | ',' | ':' | '?' | '!' | '&' | '*' => {
                self.weight.set(self.weight.get() + 2)
            }
            '"' | '\'' => self.weight.set(self.weight.get() + 1),
            _ if !is_allowed(next) => {
                self.control.set(Some(next));
                return false;
            }
            _ => {}
        }
        self.weight.get() <= MAX_WEIGHT
    }
}

/// The characters of a string, up to the bound of its [`ReadAhead`].
#[derive(Debug)]
pub(super) struct BoundedChars<'t> {
    chars: Chars<'t>,
    read_ahead: ReadAhead,
}

impl<'t> BoundedChars<'t> {
    pub fn new(text: &'t str, read_ahead: ReadAhead) -> Self {
        read_ahead.line.set(1);
        Self { chars: text.chars(), read_ahead }
    }
}

impl Iterator for BoundedChars<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        // The parser reads on past the end. The error is on the line of the character.
        if self.read_ahead.control.get().is_some() {
            return None;
        }
        let next = self.chars.next()?;
        self.read_ahead.add(next).then_some(next)
    }
}
