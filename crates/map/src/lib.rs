//! Maps: which descriptors the fields of a log line, or the parts of a request that is made now, become.
//!
//! `request_maps` has the way: `read` makes a map of YAML, `mapped` a request of the values of a line, `sent` says
//! which descriptors no line had, `request` is the map of `/check`. `entry` is one entry of a descriptor, `path` the
//! one spelling of a path, `timestamp` a time, `expression` a condition that `parser` reads; `yaml_map` names mistakes
//! in a map. `request_field` is what a request has before it is answered.
//!
//! Knows fields by name and YAML, and no format of logs. Mirrors Envoy's `rate_limits.actions`: a list of entries is a
//! descriptor, and a descriptor is left out if one of its entries has no value.
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
