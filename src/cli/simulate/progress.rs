//! What is shown and heard while a log is read: the progress bar with bytes of files, lines per second and time to go;
//! and the signals to stop. After the first one the report is of what was read until then, the second one ends the
//! process.

use std::io::{self, IsTerminal};
use std::thread;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use simulate::log::{Input, ReadBytes};
use simulate::pass::Progress;
use tokio::sync::oneshot;

use crate::cli::stop_signals::StopSignals;

/// A bar on a terminal, nothing elsewhere.
pub(super) struct LogProgress {
    bar: ProgressBar,
    read: Vec<ReadBytes>,
}

impl LogProgress {
    pub fn new(inputs: &[Input]) -> Self {
        let read = inputs.iter().map(|input| input.read_bytes.clone()).collect();
        if !io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), read };
        }
        // `None` if one is a stream: then there is no end to go to.
        let size: Option<u64> = inputs.iter().map(|input| input.size).sum();
        let bar = ProgressBar::with_draw_target(size, ProgressDrawTarget::stderr_with_hz(5));
        let template = match size {
            Some(_) => "{bar:40} {bytes} of {total_bytes}, {msg}, {eta} left",
            None => "{spinner} {bytes}, {msg}",
        };
        let style = ProgressStyle::with_template(template);
        // The templates are constants, so the fallback is never used.
        Self { bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())), read }
    }

    pub fn update(&mut self, progress: Progress) {
        if self.bar.is_hidden() {
            return;
        }
        let millis = self.bar.elapsed().as_millis().max(1);
        let per_second = u128::from(progress.lines) * 1_000 / millis;
        self.bar.set_message(format!("{per_second} lines/s"));
        self.bar.set_position(self.read.iter().map(ReadBytes::get).sum());
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// As shells report a process that SIGINT has ended.
const INTERRUPTED: i32 = 130;

/// Runs `work` and calls `stop` when a signal to stop arrives meanwhile.
///
/// # Errors
/// When signals cannot be listened to.
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
                    // Ends also when the sender is dropped: `work` has panicked.
                    _ = is_done => {}
                    () = interrupted => {}
                }
            });
        });
        let result = work();
        // The listener waits for it, or has gone with the process.
        let _ = done.send(());
        Ok(result)
    })
}
