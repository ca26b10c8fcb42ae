//! What processes use of the cores.

use std::ops::Sub;
use std::path::Path;
use std::time::Duration;

/// What processes have used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// The time of all threads on a core, from the scheduler's own account (nanoseconds).
    pub cpu: Duration,
    /// How often a thread gave up its core, to wait (voluntary) or because another was to run (involuntary).
    pub switches: u64,
}

impl Usage {
    /// What the processes with these identifiers have used together.
    pub fn now(processes: impl IntoIterator<Item = u32>) -> Self {
        let mut all = Self::default();
        for process in processes {
            let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
            let tasks = tasks.unwrap_or_else(|error| panic!("process {process}: {error}"));
            for task in tasks.filter_map(Result::ok) {
                // A thread may end meanwhile.
                if let Some(of_task) = Self::of_task(&task.path()) {
                    all.cpu += of_task.cpu;
                    all.switches += of_task.switches;
                }
            }
        }
        all
    }

    fn of_task(task: &Path) -> Option<Self> {
        let account = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let cpu = Duration::from_nanos(account.split_whitespace().next()?.parse().ok()?);
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let lines = status.lines().filter_map(|line| line.split_once(":\t"));
        let switches = lines.filter(|(name, _)| name.ends_with("voluntary_ctxt_switches"));
        Some(Self { cpu, switches: switches.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum() })
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        // A thread that ended meanwhile takes its account with it.
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            switches: self.switches.saturating_sub(before.switches),
        }
    }
}

/// A field of a process's status that counts its memory, in megabytes.
pub fn memory_mb(process: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    let line =
        status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).expect("the field");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1_000
}
