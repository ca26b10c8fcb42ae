//! The sub-commands.

pub mod descriptor;
pub mod explain;
pub mod validate;
