//! The first signal to stop ends the reading: the report is then of what was read. The second one ends the process.

use std::io;
use std::thread;

use tokio::sync::oneshot;

use crate::cli::stop_signals::StopSignals;

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
