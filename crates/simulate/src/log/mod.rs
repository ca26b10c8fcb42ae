//! Reads access logs: files into lines, and lines into field values. The crate `map` turns fields into descriptors.

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
