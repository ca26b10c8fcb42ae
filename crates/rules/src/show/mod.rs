//! Shows rules: `/rlconfig`, the explanation of a request, the JSON Schema of rule files.

mod describe;
mod describe_limit;
mod rlconfig;
mod schema;

pub use describe::{Description, describe};
pub use rlconfig::rlconfig;
pub use schema::schema;
