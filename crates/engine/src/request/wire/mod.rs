//! How requests are written: the JSON mapping of protobuf, text from bytes that are not UTF-8, and units as numbers.
//!
//! The messages themselves, such as [`RawRequest`], are in `request/mod.rs`.

pub mod json;
mod text;

pub use crate::limit::period::{WireUnit, request_unit, request_units};
pub use crate::request::{Bounds, RawDescriptor, RawLimit, RawRequest, RequestError};
pub use text::text_of_bytes;
