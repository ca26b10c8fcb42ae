//! Code that several modules share and that is not about rate limits: clocks, files, text and file watching.

#![warn(clippy::panic, clippy::print_stderr, clippy::print_stdout)]

pub mod clock;
mod duration;
mod file;
pub mod log_throttle;
pub mod page;
mod slow_load;
mod text;
mod watch;

pub use duration::{decimal_seconds, readable_duration};
pub use file::{open_file, read_file, read_stream};
pub use slow_load::told_if_slow;
pub use text::{
    debug_digest, digest, escaped, escaped_json, escaped_lines, hex, is_hostile, sha256, with_commas,
};
pub use watch::{Change, FindFiles, Watched, check_forever, check_until, on_blocking_thread, ticks};
