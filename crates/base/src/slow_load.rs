//! Logs a slow load while it is still running. Thousands of rules or exceptions, or a hanging file system, would
//! otherwise look like a change that went unnoticed.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::text::escaped;

const SLOW: Duration = Duration::from_secs(10);
const MOST_NAMES: usize = 3;

/// Runs `load` on these files or directories, and logs if it is slow.
pub fn told_if_slow<T>(paths: &[impl AsRef<Path> + Sync], load: impl FnOnce() -> T) -> T {
    let tell = || {
        let shown = paths.iter().take(MOST_NAMES).map(|path| path.as_ref().display().to_string());
        let files = escaped(shown.collect::<Vec<_>>().join(", "));
        let more = paths.len().saturating_sub(MOST_NAMES);
        tracing::warn!(files, more, "load running for more than 10 s; keeping current contents");
    };
    told_after(SLOW, tell, load)
}

/// Calls `tell` once if `work` takes longer than `after`.
fn told_after<T>(after: Duration, tell: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let watch = move || {
            if is_done.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                tell();
            }
        };
        // If the thread cannot start, `work` still runs and nothing is logged.
        let _watcher = thread::Builder::new().name("slow-load".to_owned()).spawn_scoped(scope, watch);
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_work_is_told_while_it_is_done_and_quick_work_is_not() {
        let (tell, told) = channel();
        // The work ends once it has been reported.
        let result =
            told_after(Duration::ZERO, move || tell.send(()).expect("the work waits"), || told.recv());
        assert_eq!(result, Ok(()));
        let quick = told_after(Duration::from_secs(3_600), || panic!("nothing is slow"), || 7);
        assert_eq!(quick, 7);
    }
}
