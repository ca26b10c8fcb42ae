//! Access logs: from files to lines, and from a line to the values of its fields.
//!
//! Knows the formats of lines and nothing of rules: which fields become descriptors is decided by `map`.

mod blocks;
mod csv;
mod fault;
mod format;
mod haproxy;
mod input;
mod json;
mod line_reader;
mod piped;
mod text_layout;

pub(super) use blocks::{Block, BlockReader, MAX_LINE_BYTES, lines};
pub use fault::LineFault;
pub use format::Format;
pub(super) use format::recognize;
pub use input::{Input, InputError};
pub(super) use line_reader::LineReader;
