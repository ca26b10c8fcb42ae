//! Maps turn log lines, or requests described by a proxy, into descriptors.
//!
//! They mirror Envoy's `rate_limits.actions`: a list of entries is a descriptor, and a descriptor is left out if one of
//! its entries has no value. Fields are found by name, independent of the log format. Entry points: [`Map`] for logs,
//! [`RequestMap`] for `/check`.
#![warn(clippy::panic, clippy::print_stderr, clippy::print_stdout)]

mod entry;
mod expression;
mod parser;
mod path;
mod request_field;
mod request_maps;
mod timestamp;
mod values;
mod yaml_map;

pub use expression::FieldIndex;
pub use request_field::RequestField;
pub use request_maps::{Became, Map, MappedLine, RequestMap, SentDescriptors, TimeField};
pub use timestamp::TimeFormat;
pub use values::{Selected, ValueFault};
pub use yaml_map::MapError;
