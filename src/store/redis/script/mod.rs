//! The one script, and the calls of it. Knows its text, its name on the server and how a batch becomes a command.

mod decode;
mod encode;

use std::sync::LazyLock;

use redis::{Cmd, Script};

pub(crate) use self::decode::{Answer, outcome};
pub(crate) use self::encode::{Encoded, numbers};
use crate::engine::StoreError;

/// The parts in order: the counters, the kernels, and what decides by them.
const TEXT: &str = concat!(
    include_str!("lua/counters.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/sliding_window.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/gcra.lua"),
    include_str!("lua/interval_bucket.lua"),
    include_str!("lua/decide.lua"),
);

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// When a batch is decided, and for how long its counters are kept beyond their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// At the server's own time. A counter that goes a second late is no harm, one that goes early would be.
    Now,
    /// At a time of the caller's choosing, in microseconds since the epoch, below 2^52. Counters go by the server's
    /// clock even so, which must not overtake the caller's while that stands still.
    At(u64),
}

impl When {
    /// As the script is told it: below 0 for the server's own.
    fn now_us(self) -> i64 {
        match self {
            Self::Now => -1,
            Self::At(now_us) => now_us.cast_signed(),
        }
    }

    fn slack_ms(self) -> u64 {
        match self {
            Self::Now => 1_000,
            Self::At(_) => 3_600_000,
        }
    }
}

/// What servers call the script: the hash of its text.
#[must_use]
pub fn script_name() -> &'static str {
    SCRIPT.get_hash()
}

/// The command that makes the script known to a server.
pub(crate) fn load() -> Cmd {
    let mut command = Cmd::new();
    command.arg("SCRIPT").arg("LOAD").arg(TEXT);
    command
}

/// How a call names the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// By its hash: short, and understood by a server that knows the script.
    Hash,
    /// In full: understood by every server, which knows it from then on.
    Text,
}

/// The command that decides these requests.
pub(crate) fn call<'a>(requests: impl Iterator<Item = &'a Encoded> + Clone, when: When, by: By) -> Cmd {
    let keys: usize = requests.clone().map(Encoded::key_count).sum();
    let bytes: usize = requests.clone().map(Encoded::size).sum();
    let uses = requests.clone().fold(0, |uses, request| uses | request.uses());
    let mut record = Vec::with_capacity(bytes);
    let mut command = Cmd::with_capacity(keys + 7, bytes + 112);
    match by {
        By::Hash => command.arg("EVALSHA").arg(SCRIPT.get_hash()),
        By::Text => command.arg("EVAL").arg(TEXT),
    };
    command.arg(keys);
    for request in requests {
        for key in request.keys() {
            command.arg(key);
        }
        record.extend_from_slice(request.record());
    }
    command.arg(when.now_us()).arg(when.slack_ms()).arg(record).arg(uses);
    command
}

/// Gives each request its part of the numbers.
pub(crate) fn split_reply<'a>(
    requests: impl Iterator<Item = &'a Encoded> + Clone,
    numbers: &[i64],
) -> Result<Vec<Answer>, StoreError> {
    let expected: usize = requests.clone().map(Encoded::width).sum();
    let split = numbers.split_first().filter(|(_, numbers)| numbers.len() == expected);
    let Some((&now, mut rest)) = split else {
        let failure = format!("{} numbers instead of {}", numbers.len(), expected + 1);
        return Err(StoreError::Malformed(failure));
    };
    // A clock before 1970 counts from there.
    let now_us = now.max(0).unsigned_abs();
    let answers = requests.map(|request| {
        let (numbers, after) = rest.split_at(request.width());
        rest = after;
        Answer { now_us, numbers: numbers.into() }
    });
    Ok(answers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lua_file_is_part_of_the_script() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/script/lua");
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("a Lua file is text");
            assert!(TEXT.contains(&text), "{} is not in the script", path.display());
        }
    }
}
