//! Which core runs what. A saturated core delays every process on it by whole time slices, and on a machine of two
//! cores the load generator would delay the service: a figure would be the scheduler's.

use std::fs;
use std::io;

use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::processes::Process;

/// The nice value of the generator's threads that measure, and of Redis in front of those that only load.
const FIRST: i32 = -15;

/// Runs this process, and what it starts from now on, on all cores but the first.
///
/// # Errors
/// If the machine has one core, or the right to do it is missing.
pub fn leave_first_core() -> io::Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    if cores < 2 {
        return Err(io::Error::other("the machine has one core"));
    }
    let mut others = CpuSet::new();
    (1..cores).for_each(|core| others.set(core));
    Ok(sched_setaffinity(None, &others)?)
}

/// Runs every thread of a process on the first core.
///
/// # Errors
/// As [`leave_first_core`].
pub fn give_first_core(process: &Process) -> io::Result<()> {
    let mut first = CpuSet::new();
    first.set(0);
    for task in fs::read_dir(format!("/proc/{}/task", process.id()))? {
        let id = task?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        sched_setaffinity(id, &first)?;
    }
    Ok(())
}

/// Runs a process before all others of its core.
///
/// # Errors
/// If the right to do it is missing.
pub fn run_first(process: &Process) -> io::Result<()> {
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    Ok(setpriority_process(id, FIRST)?)
}

/// Runs this thread, and those that it starts from now on, before all others of their core.
///
/// # Errors
/// As [`run_first`].
pub fn run_this_thread_first() -> io::Result<()> {
    Ok(setpriority_process(None, FIRST)?)
}
