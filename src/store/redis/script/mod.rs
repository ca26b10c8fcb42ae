//! The script and its calls. Knows the text, the SHA1 by which servers know it, and how a batch becomes a command.

mod decode;
mod encode;
mod layout;
mod order;
mod runs;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use redis::{Cmd, Script};

pub(crate) use self::decode::{Answer, outcome, undone};
pub(crate) use self::encode::Encoded;
pub(crate) use self::order::CallOrder;

/// The parts in order: reading the counters, the kernels, deciding charges, and a batch of requests.
const TEXT: &str = concat!(
    include_str!("lua/counters.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/sliding_window.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/gcra.lua"),
    include_str!("lua/interval_bucket.lua"),
    include_str!("lua/decide.lua"),
    include_str!("lua/equal.lua"),
    include_str!("lua/batch.lua"),
);

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// At which time a batch is decided, and how long its counters are kept after they equal unused counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The server's time. Counters are kept a second longer, because a counter that expired early would admit too much.
    Now,
    /// A time that the caller chooses, in microseconds since the epoch, below 2^52. Counters expire by the server's
    /// clock even so: they are kept an hour longer, because the caller's time may stand still meanwhile.
    At(u64),
}

impl When {
    /// The time argument of the script: negative for the server's time.
    fn now_us(self) -> i64 {
        match self {
            Self::Now => -1,
            Self::At(now_us) => now_us.cast_signed(),
        }
    }

    fn grace_ms(self) -> u64 {
        match self {
            Self::Now => 1_000,
            Self::At(_) => 3_600_000,
        }
    }
}

/// The SHA1 of the script, by which `EVALSHA` names it.
#[must_use]
pub fn script_sha1() -> &'static str {
    SCRIPT.get_hash()
}

/// The command that loads the script into a server.
pub(crate) fn load() -> Cmd {
    let mut command = Cmd::new();
    command.arg("SCRIPT").arg("LOAD").arg(TEXT);
    command
}

/// How a call names the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptRef {
    /// `EVALSHA`: short, but a server that has not loaded the script answers NOSCRIPT.
    Sha1,
    /// `EVAL`: sends the whole text, and loads it.
    Text,
}
