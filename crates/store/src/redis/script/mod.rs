//! The script and its calls. Knows the text, the SHA1 by which servers know it, and how a batch becomes a command.
//!
//! `layout` has the facts that Rust and Lua share, `text` writes them into the script, `wire` makes a request of
//! charges and outcomes of its answer, and `batch` makes one call of many requests; `groups` finds those that are sent
//! once.

mod batch;
mod groups;
mod layout;
#[cfg(test)]
mod tests;
mod text;
mod wire;

pub(crate) use self::batch::{BatchLayout, ScriptRef, When};
pub(crate) use self::text::load;
pub use self::text::script_sha1;
pub(crate) use self::wire::{Answer, EncodedRequest, outcome, undone};
