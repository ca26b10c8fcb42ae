//! What is sampled of the process, and when it counts as flat.

use std::fmt;
use std::fs;

/// The quantities at one time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Since the start of the run.
    pub second: u64,
    resident_kib: u64,
    descriptors: u64,
    threads: u64,
}

impl Sample {
    /// Reads the quantities of a process from /proc.
    pub fn take(process: u32, second: u64) -> Self {
        let status =
            fs::read_to_string(format!("/proc/{process}/status")).expect("Linux, and the process runs");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a known field");
            line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
        };
        let descriptors =
            fs::read_dir(format!("/proc/{process}/fd")).expect("the process runs").count() as u64;
        Self { second, resident_kib: field("VmRSS:"), descriptors, threads: field("Threads:") }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Quantity {
    Resident,
    Descriptors,
    Threads,
}

/// A quantity at the start and at the end of a run: the medians of its second and of its last quarter.
pub struct Trend {
    before: u64,
    after: u64,
    /// What a flat quantity may grow, besides [`GROWTH_PERCENT`].
    allowance: u64,
}

/// What a flat quantity may grow between the two quarters. Half an hour of a leak of one request in a hundred is more.
const GROWTH_PERCENT: u64 = 5;

impl Quantity {
    pub const ALL: [Self; 3] = [Self::Resident, Self::Descriptors, Self::Threads];

    pub fn name(self) -> &'static str {
        match self {
            Self::Resident => "resident memory, KiB",
            Self::Descriptors => "file descriptors",
            Self::Threads => "threads",
        }
    }

    pub fn of(self, sample: &Sample) -> u64 {
        match self {
            Self::Resident => sample.resident_kib,
            Self::Descriptors => sample.descriptors,
            Self::Threads => sample.threads,
        }
    }

    pub fn trend(self, samples: &[Sample]) -> Trend {
        let quarter = samples.len() / 4;
        let median = |samples: &[Sample]| {
            let mut values: Vec<u64> = samples.iter().map(|sample| self.of(sample)).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        let allowance = match self {
            Self::Resident => 512,
            Self::Descriptors | Self::Threads => 1,
        };
        let (before, after) = (&samples[quarter..2 * quarter], &samples[samples.len() - quarter..]);
        Trend { before: median(before), after: median(after), allowance }
    }
}

impl Trend {
    pub fn is_flat(&self) -> bool {
        self.after <= self.before + self.before * GROWTH_PERCENT / 100 + self.allowance
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "median {} in the second quarter, {} in the last", self.before, self.after)
    }
}
