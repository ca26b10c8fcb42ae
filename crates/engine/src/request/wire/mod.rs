//! How requests are written: the JSON mapping of protobuf, and text from bytes that are not UTF-8.

pub mod json;
mod text;

pub use text::text_of_bytes;
