//! The scripts: the files in lua/, sent unchanged. A call with one charge runs its kernel's script, any other decision
//! batch.lua. rows.lua decides no request.
//!
//! Lua in Redis keeps nothing between calls, so each call pays for everything that its script defines. lua/README.md
//! explains the kernels, their copies in batch.lua, and what functions and variables cost.

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use redis::Pipeline;

use super::layout::{KERNELS, KernelLayout};

/// A script of the service, as servers load it.
#[derive(Debug)]
pub struct Script {
    name: String,
    text: &'static str,
    sha1: String,
}

/// Decides any call.
pub(super) static BATCH: LazyLock<Script> =
    LazyLock::new(|| Script::new("batch".to_owned(), include_str!("../lua/batch.lua")));

/// Keeps the rows that are set while the service runs.
pub(super) static ROWS: LazyLock<Script> =
    LazyLock::new(|| Script::new("rows".to_owned(), include_str!("../lua/rows.lua")));

/// Each kernel's script in the order of [`KERNELS`]; `None` for a kernel without a counter.
static PLAIN: LazyLock<Vec<Option<Script>>> = LazyLock::new(|| {
    KERNELS.iter().map(|kernel| Some(Script::new(kernel.name.to_ascii_lowercase(), kernel.lua?))).collect()
});

impl Script {
    fn new(name: String, text: &'static str) -> Self {
        let sha1 = redis::Script::new(text).get_hash().to_owned();
        Self { name, text, sha1 }
    }

    /// File name without `.lua`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source that servers execute, byte for byte. It starts with a comment that describes `KEYS`, `ARGV` and the
    /// reply.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// SHA1 of the source as 40 hexadecimal digits, by which `EVALSHA` refers to the script.
    pub fn sha1(&self) -> &str {
        &self.sha1
    }

    /// Returns what the script decides: the first sentence of its source.
    pub fn purpose(&self) -> String {
        let comment =
            self.text.lines().map_while(|line| line.strip_prefix("-- ")).collect::<Vec<_>>().join(" ");
        comment.split_once(". ").map_or(comment.as_str(), |(first, _)| first).trim_end_matches('.').to_owned()
    }
}

/// All scripts that the service loads into its servers.
pub fn scripts() -> impl Iterator<Item = &'static Script> {
    PLAIN.iter().flatten().chain([&*BATCH, &*ROWS])
}

/// The script that decides one charge of this kernel; `None` if the kernel does not have a counter.
pub(super) fn plain(kernel: &KernelLayout) -> Option<&'static Script> {
    PLAIN.get(usize::from(kernel.number).checked_sub(1)?)?.as_ref()
}

pub fn script_sha1() -> &'static str {
    BATCH.sha1()
}

/// Returns the commands that load all scripts into a server.
pub(crate) fn load() -> Pipeline {
    let mut commands = Pipeline::new();
    for script in scripts() {
        commands.cmd("SCRIPT").arg("LOAD").arg(script.text).ignore();
    }
    commands
}
