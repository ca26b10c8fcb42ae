//! The CPU time of a process.

use std::time::Duration;

use crate::processes::Process;

/// CPU time used so far by all threads of the process, from the scheduler's own account (nanoseconds).
pub fn time(process: &Process) -> Duration {
    let tasks =
        std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("the process runs, on Linux");
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(of_task).sum())
}
