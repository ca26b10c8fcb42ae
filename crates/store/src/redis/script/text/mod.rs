//! The scripts: the files in lua/, sent as they are. A call with one charge runs the script of its kernel; batch.lua
//! decides all other calls. lua/README.md explains kernels, and how their text is copied into batch.lua.
//!
//! Lua in Redis keeps nothing between two calls, so each call pays for what its script defines, used or not. A function
//! costs a call 2,000 to 4,000 instructions, which is 5 to 10 % of the decision of one charge, because each variable of
//! the script that the function uses becomes an object of its own. So only sliding logs have functions.
//! A variable costs 25 instructions, so batch.lua writes most numbers out, with their names in comments.

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use redis::Pipeline;

use super::layout::{KERNELS, KernelLayout};

/// A script of the service, as servers know it.
#[derive(Debug)]
pub struct Script {
    name: String,
    text: &'static str,
    sha1: String,
}

/// Decides any call.
pub(super) static BATCH: LazyLock<Script> =
    LazyLock::new(|| Script::new("batch".to_owned(), include_str!("../lua/batch.lua")));

/// The script of each kernel in the order of [`KERNELS`]; `None` for a kernel without a counter.
static PLAIN: LazyLock<Vec<Option<Script>>> = LazyLock::new(|| {
    KERNELS.iter().map(|kernel| Some(Script::new(kernel.name.to_ascii_lowercase(), kernel.lua?))).collect()
});

impl Script {
    fn new(name: String, text: &'static str) -> Self {
        let sha1 = redis::Script::new(text).get_hash().to_owned();
        Self { name, text, sha1 }
    }

    /// The name of its file, without `.lua`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What servers execute, byte for byte. It begins with a comment that describes `KEYS`, `ARGV` and the reply.
    #[must_use]
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// The SHA1 of the text as 40 hexadecimal digits, by which `EVALSHA` names the script.
    #[must_use]
    pub fn sha1(&self) -> &str {
        &self.sha1
    }

    /// What it decides: the first sentence of the text.
    #[must_use]
    pub fn purpose(&self) -> String {
        let comment =
            self.text.lines().map_while(|line| line.strip_prefix("-- ")).collect::<Vec<_>>().join(" ");
        comment.split_once(". ").map_or(comment.as_str(), |(first, _)| first).trim_end_matches('.').to_owned()
    }
}

/// All scripts that the service loads into its servers.
pub fn scripts() -> impl Iterator<Item = &'static Script> {
    PLAIN.iter().flatten().chain([&*BATCH])
}

/// The script that decides one charge of this kernel; `None` if the kernel has no counter.
pub(super) fn plain(kernel: &KernelLayout) -> Option<&'static Script> {
    PLAIN.get(usize::from(kernel.number).checked_sub(1)?)?.as_ref()
}

/// The SHA1 of the batch script.
#[must_use]
pub fn script_sha1() -> &'static str {
    BATCH.sha1()
}

/// The commands that load all scripts into a server.
pub(crate) fn load() -> Pipeline {
    let mut commands = Pipeline::new();
    for script in scripts() {
        commands.cmd("SCRIPT").arg("LOAD").arg(script.text).ignore();
    }
    commands
}
