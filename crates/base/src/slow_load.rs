//! Says in the log that a load takes long, while it does: files with many thousands of rules or rows, or a file system
//! that hangs while files are read, otherwise look like a change that nobody has noticed.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::text::escaped;

const SLOW: Duration = Duration::from_secs(10);
/// Names of files in the line.
const MOST_NAMES: usize = 3;

/// Does the work of a load of these files, or directories.
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
        // Without a thread nothing is told, and the work is done.
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
        // The work ends when it has been told.
        let result =
            told_after(Duration::ZERO, move || tell.send(()).expect("the work waits"), || told.recv());
        assert_eq!(result, Ok(()));
        let quick = told_after(Duration::from_secs(3_600), || panic!("nothing is slow"), || 7);
        assert_eq!(quick, 7);
    }
}
