//! What several rooms need and no room owns. Knows nothing of rate limits.

pub mod clock;
mod file;
pub mod log_throttle;
mod text;

pub use file::{open_file, read_file, read_stream};
pub use text::{escaped, escaped_json, escaped_lines, hex, is_hostile};
