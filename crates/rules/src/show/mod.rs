//! Shows rules: `/rlconfig`, the explanation of a request, and the JSON Schema of rule files.

mod derivation;
mod describe;
mod describe_limit;
mod rlconfig;
mod schema;

pub use derivation::derivation_text;
pub use describe::{Description, describe};
pub use describe_limit::limit_text;
pub use rlconfig::rlconfig;
pub use schema::schema;
