//! The input of the parser. Bounds how much of it the parser may read before it returns an event.
//!
//! The parser keeps all tokens of a list or map in brackets until the closing bracket, because the whole may be the key
//! of a map. A token takes about 200 bytes of memory, and one or two of its text.

use std::cell::Cell;
use std::rc::Rc;
use std::str::Chars;

use super::tree::YamlError;

/// A token has at least one indicator of weight 2, or two quotes of weight 1: about 200,000 tokens, or a rule file of
/// 10,000 rules as JSON.
const MAX_WEIGHT: usize = 400_000;

/// What the parser has read since the last event. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadAhead {
    weight: Rc<Cell<usize>>,
    /// The line that was read last, from 1.
    line: Rc<Cell<u32>>,
    /// The first character that YAML does not allow, if the text has one.
    control: Rc<Cell<Option<char>>>,
}

/// Whether YAML allows this character.
fn is_allowed(letter: char) -> bool {
    match letter {
        '\t' | '\n' | '\r' | '\u{85}' => true,
        '\u{FFFE}' | '\u{FFFF}' => false,
        other => !other.is_control(),
    }
}

impl ReadAhead {
    /// Call it before the parser is asked for an event.
    pub fn restart(&self) {
        self.weight.set(0);
    }

    /// Call it after the parser was asked for an event.
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

    /// Whether the parser may read on after `next`.
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

/// The characters of a text, up to the bound of its [`ReadAhead`].
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
        // The parser reads on after the end. The error is on the line of the character.
        if self.read_ahead.control.get().is_some() {
            return None;
        }
        let next = self.chars.next()?;
        self.read_ahead.add(next).then_some(next)
    }
}
