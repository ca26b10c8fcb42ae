//! The script and its calls. Knows the text, the SHA1 by which servers know it, and how a batch becomes a command.

mod constants;
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
const PARTS: [&str; 8] = [
    include_str!("lua/counters.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/sliding_window.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/gcra.lua"),
    include_str!("lua/interval_bucket.lua"),
    include_str!("lua/decide.lua"),
    include_str!("lua/batch.lua"),
];

static TEXT: LazyLock<String> = LazyLock::new(|| constants::with_constants(&PARTS.concat()));

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&TEXT));

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
    /// The time for the script, in microseconds: negative for the server's time.
    fn now(self) -> f64 {
        match self {
            Self::Now => -1.0,
            Self::At(now_us) => now_us as f64,
        }
    }

    fn grace_ms(self) -> f64 {
        match self {
            Self::Now => 1e3,
            Self::At(_) => 3.6e6,
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
    command.arg("SCRIPT").arg("LOAD").arg(TEXT.as_str());
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
