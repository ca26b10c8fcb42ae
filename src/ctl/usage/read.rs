//! Reads ledger files, each line once, and finds what is missing.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base::clock::{Clock as _, SystemClock};
use engine::Booking;
use ratelimitd::ledger::{Line, QUARTER_S};
use simulate::log::Input;

/// Far more than the longest line.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Lines of a file that are named because they cannot be read.
const MOST_UNREAD: u64 = 100;
/// Lines whose numbers share a set of bits.
const CHUNK: u64 = 1 << 16;

#[derive(Default)]
pub(super) struct LedgerReader {
    /// Lines, each counted once.
    pub(super) lines: u64,
    processes: BTreeMap<String, Process>,
    problems: Vec<String>,
}

/// What was read of a process.
#[derive(Default)]
struct Process {
    seen: HashMap<u64, Box<[u64]>>,
    lines: u64,
    first: Option<u64>,
    last: u64,
    interval_s: u64,
    has_end: bool,
    /// When it last wrote, as far as known; seconds since the epoch.
    wrote_s: u64,
}

impl Process {
    /// Returns `true` the first time.
    fn see(&mut self, seq: u64) -> bool {
        let bits = self.seen.entry(seq / CHUNK).or_insert_with(|| vec![0; (CHUNK / 64) as usize].into());
        // Below the number of words.
        let (word, bit) = ((seq % CHUNK / 64) as usize, 1 << (seq % 64));
        let is_new = bits[word] & bit == 0;
        bits[word] |= bit;
        if is_new {
            self.lines += 1;
            self.first = Some(self.first.map_or(seq, |first| first.min(seq)));
            self.last = self.last.max(seq);
        }
        is_new
    }

    fn missing(&self) -> u64 {
        (self.last - self.first.unwrap_or(self.last) + 1).saturating_sub(self.lines)
    }

    /// `true` if the process ended without its last line.
    fn has_vanished(&self, now_s: u64) -> bool {
        !self.has_end && self.wrote_s.saturating_add(2 * self.interval()) < now_s
    }

    /// Seconds between two writes: the longest, if the first line is missing.
    fn interval(&self) -> u64 {
        if self.interval_s > 0 { self.interval_s } else { QUARTER_S }
    }
}

impl LedgerReader {
    /// Reads a file, all files in a directory, or standard input. Calls `add` with each line that contains sums, once.
    pub(super) fn read(&mut self, path: &Path, mut add: impl FnMut(&Line<'_>)) {
        let found = if path.is_dir() { files_of(path) } else { Ok(vec![path.to_owned()]) };
        match found {
            Ok(files) => {
                for file in files {
                    if let Err(error) = self.read_file(&file, &mut add) {
                        self.problems.push(format!("{}: {error}", file.display()));
                    }
                }
            }
            Err(error) => self.problems.push(format!("{}: {error}", path.display())),
        }
    }

    /// Seconds between two writes; the longest if processes differ.
    pub(super) fn interval_s(&self) -> u64 {
        self.processes.values().map(Process::interval).max().unwrap_or(QUARTER_S)
    }

    pub(super) fn processes(&self) -> usize {
        self.processes.len()
    }

    /// What is missing, one line each.
    pub(super) fn problems(&self) -> Vec<String> {
        let (mut problems, now_s) = (self.problems.clone(), SystemClock.now_us() / 1_000_000);
        for (name, process) in &self.processes {
            let missing = process.missing();
            if missing > 0 {
                problems.push(format!("{missing} lines of {name} are missing"));
            }
            if process.has_vanished(now_s) {
                let wrote = UNIX_EPOCH + std::time::Duration::from_secs(process.wrote_s);
                problems.push(format!(
                    "{name} ended without its last line: up to {} s after {} are missing",
                    process.interval(),
                    humantime::format_rfc3339_seconds(wrote)
                ));
            }
        }
        problems
    }

    fn read_file(&mut self, path: &Path, add: &mut impl FnMut(&Line<'_>)) -> io::Result<()> {
        let input = Input::open(path, &std::sync::Arc::default()).map_err(|error| error.cause)?;
        let modified_s = fs::metadata(path).and_then(|found| found.modified()).map_or(0, seconds);
        let mut stream = BufReader::with_capacity(1 << 16, input.stream);
        let (mut text, mut number, mut unread) = (Vec::new(), 0, 0_u64);
        loop {
            text.clear();
            if stream.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut text)? == 0 {
                if unread > MOST_UNREAD {
                    let further = unread - MOST_UNREAD;
                    self.problems.push(format!("{}: and {further} more such lines", path.display()));
                }
                return Ok(());
            }
            number += 1;
            let line = serde_json::from_slice::<Line<'_>>(&text);
            let Some(line) = line.ok().filter(|_| text.ends_with(b"\n")) else {
                let what = if text.ends_with(b"\n") { "no line of a ledger" } else { "cut off" };
                unread += 1;
                if unread <= MOST_UNREAD {
                    self.problems.push(format!("{}:{number}: {what}", path.display()));
                }
                continue;
            };
            if self.add_line(&line, modified_s) && line.sums() != Booking::default() {
                add(&line);
            }
        }
    }

    /// Returns `true` if the line is new.
    fn add_line(&mut self, line: &Line<'_>, modified_s: u64) -> bool {
        if !self.processes.contains_key(&*line.process) {
            self.processes.insert(line.process.to_string(), Process::default());
        }
        let Some(process) = self.processes.get_mut(&*line.process) else { return false };
        process.interval_s = line.begin.as_ref().map_or(process.interval_s, |begin| begin.interval_s);
        process.has_end |= line.end;
        // Standard input lacks a time. A line is written after its quarter began.
        process.wrote_s = process.wrote_s.max(modified_s).max(line.at);
        let is_new = process.see(line.seq);
        self.lines += u64::from(is_new);
        is_new
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The files of a ledger in a directory, in the order of their names, which begin with their time.
fn files_of(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path()));
    let mut files = paths.collect::<io::Result<Vec<_>>>()?;
    files.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("usage-") && (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz"))
    });
    files.sort_unstable();
    Ok(files)
}
