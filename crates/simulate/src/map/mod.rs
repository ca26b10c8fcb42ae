//! Maps: which descriptors a line of a log becomes, or a request that is made now (`request`).
//!
//! Knows fields by name and YAML. Mirrors Envoy's `rate_limits.actions`: a list of entries is a descriptor, and a
//! descriptor is left out if one of its entries has no value.

mod entry;
mod expression;
mod line;
mod parser;
mod path;
mod read;
mod request;
mod sent;
mod yaml_map;

pub use line::MappingError;
pub(super) use line::{FileMapping, MappedLine, Mapping, NotMapped};
pub use read::Map;
pub use request::RequestMap;
pub(super) use sent::SentDescriptors;
pub use yaml_map::MapError;
