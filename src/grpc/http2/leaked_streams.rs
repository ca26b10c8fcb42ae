//! Bounds the streams that h2 leaks.
//!
//! When the client's window of the connection is used up, h2 puts a stream that has data to send into a queue. If the
//! client resets the stream meanwhile, h2 leaves it there, and does not release it when it leaves the queue: it takes
//! some 300 bytes until the connection ends (0.4.20; `grpc/tests/h2_leak.rs` shows it). Without a bound, one client
//! that takes no answers could fill the memory in seconds.

/// Calls between two looks: h2 takes a lock to tell the number of its streams.
const CALLS_BETWEEN_LOOKS: usize = 64;
/// More than the 50 streams that h2 keeps for a second after it has reset them. With the calls between two looks some
/// 40 KB.
const MAX_LEAKED: usize = 64;
/// The client goes on after GOAWAY. More than the 1,024 answers that may wait for a client that does not read.
const MAX_LEAKED_AFTER_GOAWAY: usize = 2 * 1_024;

/// Counts the leaked streams of one connection.
#[derive(Default)]
pub(super) struct LeakedStreams {
    calls: usize,
    leaked: usize,
}

impl LeakedStreams {
    /// Records accepted calls. `leaked` is asked at times for the streams that h2 holds for no call.
    pub(super) fn record_calls(&mut self, accepted: usize, leaked: impl FnOnce() -> usize) {
        self.calls += accepted;
        if self.calls >= CALLS_BETWEEN_LOOKS {
            self.calls = 0;
            self.leaked = leaked();
        }
    }

    /// Whether a new connection is better than this one.
    pub(super) fn are_many(&self) -> bool {
        self.leaked > MAX_LEAKED
    }

    /// Whether the client has gone on for too long.
    pub(super) fn are_too_many(&self) -> bool {
        self.leaked > MAX_LEAKED_AFTER_GOAWAY
    }
}
