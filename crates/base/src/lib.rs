//! What several rooms need and no room owns. Knows nothing of rate limits.

mod duration;
mod file;
mod text;

pub use duration::{decimal_seconds, readable_duration};
pub use file::{open_file, read_file, read_stream};
pub use text::{escaped, escaped_json, escaped_lines, hex, is_hostile};
