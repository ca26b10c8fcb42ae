//! The signals that stop the process: SIGTERM, SIGINT and SIGHUP.

use std::fs;
use std::future;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that follow the first one within this time belong to the same shutdown: `timeout` of coreutils signals a
/// process and then its group, and some supervisors repeat their signal.
const SAME_STOP: Duration = Duration::from_secs(1);

/// Where Linux shows the signals that a process ignores. Other systems do not have it.
const STATUS: &str = "/proc/self/status";

pub struct StopSignals {
    /// Handled even if it was ignored at startup: otherwise an orchestrator kills the process and no call is finished.
    terminate: Signal,
    /// Ignored in jobs that a shell started in the background.
    interrupt: Option<Signal>,
    /// Ignored under `nohup`. envoyproxy/ratelimit stops on SIGHUP, so scripts may send it.
    hang_up: Option<Signal>,
}

impl StopSignals {
    /// Installs the handlers. SIGINT and SIGHUP that were ignored when the process started stay ignored.
    pub fn listen() -> io::Result<Self> {
        let status = fs::read_to_string(STATUS).unwrap_or_default();
        let unless_ignored = |name, kind: SignalKind| {
            if is_ignored(&status, kind.as_raw_value()) {
                tracing::info!(signal = %name, "signal was ignored at startup; it will not stop the service");
                return Ok(None);
            }
            signal(kind).map(Some)
        };
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: unless_ignored("SIGINT", SignalKind::interrupt())?,
            hang_up: unless_ignored("SIGHUP", SignalKind::hangup())?,
        })
    }

    pub async fn first(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            () = receive(&mut self.interrupt) => {}
            () = receive(&mut self.hang_up) => {}
        }
    }

    /// Waits for a second signal, not a repetition of the [`first`](Self::first). Call it after the first has arrived.
    pub async fn second(&mut self) {
        let repeated = async {
            loop {
                self.first().await;
            }
        };
        // Always ends with the timeout.
        let _ = tokio::time::timeout(SAME_STOP, repeated).await;
        self.first().await;
    }
}

async fn receive(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => future::pending().await,
    }
}

/// `true` if a process with this status ignores this signal. The line `SigIgn` is a hexadecimal mask with the first
/// signal in the lowest bit.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    u32::try_from(signal - 1).ok().and_then(|bit| mask.checked_shr(bit)).is_some_and(|bits| bits & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_the_status_tells_which_signals_are_ignored() {
        let status = |mask: &str| format!("Name:\tratelimitd\nSigBlk:\tffffffffffffffff\nSigIgn:\t{mask}\n");
        let cases = [
            // (mask, signal, ignored)
            // SIGHUP is 1, SIGINT 2, SIGPIPE 13, SIGTERM 15.
            ("0000000000001001", 1, true),
            ("0000000000001001", 2, false),
            ("0000000000001001", 13, true),
            ("0000000000004002", 2, true),
            ("0000000000004002", 15, true),
            ("0000000000004002", 1, false),
            ("8000000000000000", 64, true),
            ("ffffffffffffffff", 65, false),
            ("nonsense", 1, false),
        ];
        for (mask, signal, ignored) in cases {
            assert_eq!(is_ignored(&status(mask), signal), ignored, "{signal} in {mask}");
        }
        assert!(!is_ignored("", 1), "a system without the file");
    }
}
