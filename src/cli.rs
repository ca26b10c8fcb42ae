//! The sub-commands.

pub mod descriptor;
