//! Shows rules: `/rlconfig`, the explanation of a request, the JSON Schema of rule files; and durations for people.

mod derivation;
mod describe;
mod describe_limit;
mod duration;
mod rlconfig;
mod schema;

pub use derivation::derivation_text;
pub use describe::{Description, describe};
pub use duration::{decimal_seconds, readable_duration};
pub use rlconfig::rlconfig;
pub use schema::schema;
