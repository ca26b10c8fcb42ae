//! How the numbers came about, and how far they can be trusted.

use serde::Serialize;

/// What was read, and what was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Method {
    /// The version of the program that made the report.
    pub program_version: String,
    /// As given, without the name of the program.
    pub command_line: Vec<String>,
    pub inputs: Vec<InputReport>,
    /// The rule files, the map and the rule files of `--compare`.
    pub digests: Vec<FileDigest>,
    /// Lines read, without blank ones and headers.
    pub lines: u64,
    /// Lines excluded by the map's `keep`.
    pub not_kept: u64,
    /// Lines without a descriptor: a field of each was missing.
    pub without_descriptor: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// The first ten of these.
    pub unreadable_lines: Vec<UnreadableLine>,
    pub reordering: Reordering,
    /// The smallest step between times in the log: 1,000,000 if all are whole seconds, 1,000 or 1.
    pub clock_resolution_us: u64,
    #[serde(rename = "sampling")]
    pub key_sampling: KeySampling,
    pub sample: RequestSample,
    /// Counters evicted because memory was full: after that, limits admit too much. 0 in an exact report.
    pub evictions: u64,
    /// With the map's `was_limited`: compares the log with the decisions of the current rules (`--compare`), or else of
    /// the candidate rules. `None` if no request was decided.
    pub agreement: Option<Agreement>,
}

/// One file of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InputReport {
    /// As given; `-` for standard input.
    pub name: String,
    /// The format of its lines: given, or recognized.
    pub format: String,
    /// `true` if `format` was recognized from the first lines.
    pub is_recognized: bool,
    /// Bytes read, as stored in the file.
    pub bytes: u64,
    /// Why the file could not be read to its end, such as a truncated compressed file.
    pub cut: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileDigest {
    /// `rules`, `compare` or `map`.
    pub role: String,
    pub name: String,
    /// 64 hexadecimal digits.
    pub sha256: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnreadableLine {
    pub input: String,
    /// From 1.
    pub line: u64,
    pub reason: String,
}

/// Sorting by time: a log has requests in the order in which they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reordering {
    /// `--reorder`.
    pub window_us: u64,
    /// Requests that came later than the window allows. They were decided at the time of the previous request.
    pub late: u64,
    /// How late the latest of them was.
    pub most_late_us: u64,
    /// `true` if the window held more requests than fit into memory, so that it was shortened at times.
    pub was_shortened: bool,
}

/// `--sample`: the requests that were decided. All other numbers of the report cover only these; they are not scaled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestSample {
    /// The requests of one key in this many were decided; 1: all. The key is the first entry of the first descriptor.
    pub one_in: u32,
    /// Requests of other keys.
    pub left_out: u64,
}

impl Default for RequestSample {
    fn default() -> Self {
        Self { one_in: 1, left_out: 0 }
    }
}

/// Which keys the statistics cover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeySampling {
    /// Statistics of keys cover a sample of one in 2^`level` keys: 0 = exact. Counts of keys are then estimates, for
    /// all limits together with a relative standard error of `key_error_ppm`, for one limit with a larger one.
    pub level: u32,
    pub key_error_ppm: u64,
    /// Keys in the tables.
    pub kept_keys: u64,
}

/// Compares simulated denials with those in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Whose decisions are compared with the log: those of the current rules, `compare`, if given; else those of the
    /// candidate, `rules`.
    pub of: String,
    /// For a person: the denials first, then the share of all decisions.
    pub summary: String,
    pub both_admit: u64,
    pub both_deny: u64,
    /// Denied in the log, admitted in the simulation.
    pub only_recorded: u64,
    /// Denied in the simulation, admitted in the log.
    pub only_simulated: u64,
    /// Share of the log's denials that the simulation reproduces; `None` if the log has none.
    pub reproduced_ppm: Option<u64>,
    /// Requests on which both agree, of all.
    pub agreement_ppm: u64,
    /// Differences that vanish if the request's time is moved by at most this much, because the log does not have the
    /// exact time of the decision. Includes the differences that follow from them: a later request of the same key
    /// lacks the unit. A shift counts only up to a tenth of the time in which the limit frees a unit, because a larger
    /// one would explain any difference. In ascending order; each includes the differences of smaller shifts.
    pub by_shift: Vec<ShiftCount>,
}

/// Differences between simulation and log that a shift in time explains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShiftCount {
    /// Requests are moved by at most this time.
    pub shift_us: u64,
    /// Differences that vanish.
    pub vanished: u64,
    /// Requests on which both then agree, of all.
    pub agreement_ppm: u64,
}

impl Agreement {
    /// Requests that are decided differently.
    pub fn differences(&self) -> u64 {
        self.only_recorded + self.only_simulated
    }

    /// `true` if it matters how many differences a shift explains: a log without denials has nothing to explain.
    pub fn has_differences_to_explain(&self) -> bool {
        self.reproduced_ppm.is_some() && self.differences() > 0
    }

    /// Differences that no shift explains.
    pub fn unexplained(&self) -> u64 {
        self.differences() - self.by_shift.last().map_or(0, |largest| largest.vanished)
    }
}

/// A bound of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BoundCheck {
    /// The option with its value, such as `--max-denied 0.5%`.
    pub bound: String,
    /// `true` if every rule is within it.
    pub is_kept: bool,
    /// One sentence for each rule that exceeds it, with its numbers.
    pub broken_by: Vec<String>,
}
