//! Shows progress while a log is read (bytes of files, lines per second, time left), and handles stop signals: after
//! the first one the report covers what was read so far, the second one ends the process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use base::{readable_duration, with_commas};
use indicatif::ProgressBar;
use ratelimitd::cli::stop_signals::StopSignals;
use simulate::log::Input;
use tokio::sync::oneshot;

use crate::progress_bar::progress_bar;

/// A bar on a terminal, nothing elsewhere.
pub(super) struct LogProgress {
    bar: ProgressBar,
    read: Vec<Arc<AtomicU64>>,
}

impl LogProgress {
    pub fn new(inputs: &[Input]) -> Self {
        let read = inputs.iter().map(|input| Arc::clone(&input.read_bytes)).collect();
        // `None` if one of them is a stream: then there is no known end.
        let size: Option<u64> = inputs.iter().map(|input| input.size).sum();
        let bar = progress_bar(size, "{bar:40} {bytes} of {total_bytes}{msg}", "{spinner} {bytes}{msg}");
        Self { bar, read }
    }

    pub fn update(&mut self, lines: u64) {
        if self.bar.is_hidden() {
            return;
        }
        let read = self.read.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        self.bar.set_message(pace(lines, (read, self.bar.length()), self.bar.elapsed()));
        self.bar.set_position(read);
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Lines per second, and the time left at the current speed: `, 10,637 lines/s, 1m 1s left`.
fn pace(lines: u64, (read, size): (u64, Option<u64>), elapsed: Duration) -> String {
    let millis = elapsed.as_millis().max(1);
    let per_second = u64::try_from(u128::from(lines) * 1_000 / millis).unwrap_or(u64::MAX);
    let left_s = |size: u64| {
        let left = u128::from(size.saturating_sub(read)) * millis;
        u64::try_from(left.checked_div(u128::from(read))? / 1_000).ok()
    };
    let left = match size {
        // The requests of the last lines still have to be sorted, and then the report is built.
        Some(size) if read >= size => ", making the report".to_owned(),
        Some(size) => left_s(size).map_or_else(String::new, |left_s| {
            format!(", {} left", readable_duration(Duration::from_secs(left_s.max(1))))
        }),
        None => String::new(),
    };
    format!(", {} lines/s{left}", with_commas(per_second))
}

/// As shells report a process ended by SIGINT.
const INTERRUPTED: i32 = 130;

/// Runs `work` and calls `stop` if a stop signal arrives meanwhile.
///
/// # Errors
/// If signals are not available.
pub(super) fn on_interrupt<T>(stop: impl Fn() + Send, work: impl FnOnce() -> T) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _context = runtime.enter();
        StopSignals::listen()?
    };
    let (done, is_done) = oneshot::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            runtime.block_on(async move {
                let interrupted = async {
                    signals.first().await;
                    stop();
                    signals.second().await;
                    std::process::exit(INTERRUPTED);
                };
                tokio::select! {
                    // Also ends when the sender is dropped: `work` has panicked.
                    _ = is_done => {}
                    () = interrupted => {}
                }
            });
        });
        let result = work();
        // The listener waits for it, or is gone with the process.
        let _ = done.send(());
        Ok(result)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_has_a_time_to_go_only_while_it_is_known() {
        let second = Duration::from_secs(1);
        let table = [
            (0, (0, Some(200)), second, ", 0 lines/s"),
            (10_637, (100, Some(6_200)), second, ", 10,637 lines/s, 1m 1s left"),
            (5, (999, Some(1_000)), second, ", 5 lines/s, 1s left"),
            (5, (1_000, Some(1_000)), second, ", 5 lines/s, making the report"),
            (5, (1_000, None), second, ", 5 lines/s"),
            (7, (1, Some(3)), Duration::ZERO, ", 7,000 lines/s, 1s left"),
        ];
        for (lines, bytes, elapsed, expected) in table {
            assert_eq!(pace(lines, bytes, elapsed), expected);
        }
    }
}
