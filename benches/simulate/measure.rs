//! What a process costs.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One run of a program.
pub struct Run {
    pub seconds: f64,
    /// The time of all threads, in the program and in the kernel.
    pub cpu_seconds: f64,
    /// The most memory that the process had at a time.
    pub peak_kib: u64,
}

/// Runs a program to its end.
pub fn measured(command: &mut Command) -> Run {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let mut run = Run { seconds: 0.0, cpu_seconds: 0.0, peak_kib: 0 };
    // A process that has ended and is not waited for keeps its times, but not its memory.
    let mut has_ended = false;
    while !has_ended {
        (has_ended, run.cpu_seconds) = cpu(&child);
        run.peak_kib = peak_kib(&child).max(run.peak_kib);
        if !has_ended {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    run.seconds = start.elapsed().as_secs_f64();
    let status = child.wait().expect("it has ended");
    assert!(status.success(), "{command:?} ended with {status}");
    run
}

/// Whether the process has ended, and the seconds of CPU that it has used.
fn cpu(child: &Child) -> (bool, f64) {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it is not waited for yet");
    // The name, in parentheses, may have spaces.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().collect();
    let ticks = |field: usize| fields[field].parse::<f64>().expect("a number");
    // user and system time in ticks of 10 ms.
    (fields[0] == "Z", (ticks(11) + ticks(12)) / 100.0)
}

fn peak_kib(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0)
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
