use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, ManualClock};
use engine::{BookedCharge, Booking, BookingMode};
use flate2::read::GzDecoder;
use proptest::collection::vec;
use proptest::prelude::*;

use super::cells::Booked;
use super::writer::LedgerWriter;
use super::{Ledger, LedgerOptions, LedgerOutput, LimitLabels, Line, WorkerLedger};

/// 2026-11-30, 23:50 UTC.
const T0: u64 = 1_796_082_600_000_000;
const MINUTE_US: u64 = 60_000_000;
const DAY_US: u64 = 1_440 * MINUTE_US;

/// A process with two workers.
struct Process {
    ledger: Arc<Ledger>,
    workers: [WorkerLedger; 2],
    writer: LedgerWriter,
    limits: [Arc<LimitLabels>; 2],
}

fn options(directory: &Path) -> LedgerOptions {
    LedgerOptions {
        output: LedgerOutput::Directory(directory.to_owned()),
        interval: Duration::from_secs(60),
        max_keys: 1_000,
        keep: None,
        max_bytes: 1 << 40,
    }
}

impl Process {
    fn start(clock: &Arc<ManualClock>, options: LedgerOptions) -> Self {
        let ledger = Arc::new(Ledger::new(Arc::clone(clock) as Arc<dyn Clock>, options.max_keys));
        let limit = |rule: &str| Arc::new(LimitLabels { domain: "d".into(), rule: rule.into() });
        let writer = LedgerWriter::new(Arc::clone(&ledger), options, Box::new(|_| ()));
        let mut process = Self {
            workers: [ledger.worker(), ledger.worker()],
            limits: [limit("a"), limit("b")],
            writer,
            ledger,
        };
        process.writer.write(false);
        process
    }

    fn book(&self, worker: usize, limit: usize, key: &str, units: u64, at_us: u64) {
        let charge = BookedCharge { ok: true, units, ..BookedCharge::default() };
        let key = format!("{{d|k={key}}}#fw:60/60000000");
        let mode = BookingMode::Enforced;
        let booked = Booked { limit: &self.limits[limit], key: &key, mode, charge, number: 10 };
        self.workers[worker].add(&booked, Some(at_us));
    }

    fn name(&self) -> String {
        self.writer.process.clone()
    }
}

fn text_of(file: &Path) -> String {
    let bytes = fs::read(file).expect("a readable file");
    let mut text = String::new();
    if file.extension().is_some_and(|end| end == "gz") {
        GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("a whole file");
        return text;
    }
    String::from_utf8(bytes).expect("UTF-8")
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    files.sort_unstable();
    files
}

/// The lines of the files, each once, by process and number.
fn lines(texts: &[String]) -> BTreeMap<(String, u64), Line<'_>> {
    let mut lines = BTreeMap::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        let line: Line<'_> = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let known = lines.insert((line.process.to_string(), line.seq), line.clone());
        assert!(known.is_none_or(|known| known == line), "two lines with one number");
    }
    lines
}

/// Σ units by limit, quarter and process.
type Totals = HashMap<(String, String, u64), u64>;

fn totals(lines: &BTreeMap<(String, u64), Line<'_>>) -> Totals {
    let mut totals = Totals::new();
    for line in lines.values().filter(|line| line.units > 0) {
        let place = (line.process.to_string(), line.rule.to_string(), line.at);
        *totals.entry(place).or_default() += line.units;
    }
    totals
}

#[derive(Clone, Debug)]
enum Step {
    Book {
        process: usize,
        worker: usize,
        limit: usize,
        key: u8,
        units: u64,
    },
    Write {
        process: usize,
    },
    /// The directory is away, or there again.
    Disk {
        is_there: bool,
    },
    /// SIGKILL, and a new process.
    Crash {
        process: usize,
    },
    Wait {
        minutes: u64,
    },
}

const MOST_STEPS: usize = 200;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let booking = (0..2_usize, 0..2_usize, 0..2_usize, any::<u8>(), 1..1_000_u64);
    let booking = booking.prop_map(|(process, worker, limit, key, units)| Step::Book {
        process,
        worker,
        limit,
        key,
        units,
    });
    let step = prop_oneof![
        8 => booking,
        2 => (0..2_usize).prop_map(|process| Step::Write { process }),
        1 => any::<bool>().prop_map(|is_there| Step::Disk { is_there }),
        1 => (0..2_usize).prop_map(|process| Step::Crash { process }),
        1 => (0..600_u64).prop_map(|minutes| Step::Wait { minutes }),
    ];
    vec(step, 0..MOST_STEPS)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Two processes share a directory that is away at times, and crash. What a process booked until its last write
    /// that succeeded is in its lines, nothing else, however often a line is read; and no number is missing.
    #[test]
    fn the_lines_have_the_sums_that_were_booked_until_the_last_write(steps in steps(), max_keys in 1..MOST_STEPS) {
        let top = tempfile::tempdir().expect("a directory");
        let (directory, away) = (top.path().join("usage"), top.path().join("away"));
        fs::create_dir(&directory).expect("a directory");
        let clock = Arc::new(ManualClock::at(T0));
        let start = |clock: &Arc<ManualClock>| {
            clock.set(clock.now_us() + 1_000_000);
            Process::start(clock, LedgerOptions { max_keys, ..options(&directory) })
        };
        let mut processes = [start(&clock), start(&clock)];
        let (mut waiting, mut written) = ([Totals::new(), Totals::new()], Totals::new());
        for step in steps {
            match step {
                Step::Book { process, worker, limit, key, units } => {
                    let running = &processes[process];
                    running.book(worker, limit, &key.to_string(), units, clock.now_us());
                    let at = clock.now_us() / 1_000_000 / 900 * 900;
                    let place = (running.name(), running.limits[limit].rule.to_string(), at);
                    *waiting[process].entry(place).or_default() += units;
                }
                Step::Write { process } => {
                    processes[process].writer.write(false);
                    prop_assert_eq!(processes[process].ledger.stats().difference, 0);
                    if directory.exists() {
                        waiting[process].drain().for_each(|(place, units)| *written.entry(place).or_default() += units);
                    }
                }
                Step::Disk { is_there } if is_there != directory.exists() => {
                    let (from, to) = if is_there { (&away, &directory) } else { (&directory, &away) };
                    fs::rename(from, to).expect("a free name");
                }
                Step::Disk { .. } => {}
                Step::Crash { process } => {
                    waiting[process].clear();
                    processes[process] = start(&clock);
                }
                Step::Wait { minutes } => clock.set(clock.now_us() + minutes * MINUTE_US),
            }
        }
        if away.exists() {
            fs::rename(&away, &directory).expect("a free name");
        }
        for (process, waiting) in processes.iter_mut().zip(&mut waiting) {
            process.writer.write(true);
            prop_assert_eq!(process.ledger.stats().difference, 0);
            waiting.drain().for_each(|(place, units)| *written.entry(place).or_default() += units);
        }
        let mut texts: Vec<_> = files(&directory).iter().map(|file| text_of(file)).collect();
        texts.extend(texts.clone());
        let lines = lines(&texts);
        // Beyond twice `max_keys` waiting sums, units move to an earlier quarter of their limit.
        let by_limit = |totals: Totals| {
            let of_limit = |(process, rule, _): (String, String, u64)| (process, rule);
            let mut sums = HashMap::<_, u64>::new();
            totals.into_iter().for_each(|(place, units)| *sums.entry(of_limit(place)).or_default() += units);
            sums
        };
        if 2 * max_keys > MOST_STEPS {
            prop_assert_eq!(&totals(&lines), &written);
        }
        prop_assert_eq!(by_limit(totals(&lines)), by_limit(written));
        for process in processes {
            let own: Vec<_> = lines.values().filter(|line| line.process == process.name()).collect();
            prop_assert!(own.iter().enumerate().all(|(number, line)| line.seq == number as u64), "a gap");
            prop_assert!(own.last().is_some_and(|line| line.end));
        }
    }
}

#[test]
fn units_of_more_keys_are_written_without_their_keys() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(ManualClock::at(T0));
    let mut process = Process::start(&clock, LedgerOptions { max_keys: 100, ..options(directory.path()) });
    for key in 0..60_000 {
        process.book(key % 2, 0, &key.to_string(), 1, T0);
    }
    process.writer.write(true);
    let texts: Vec<_> = files(directory.path()).iter().map(|file| text_of(file)).collect();
    let lines = lines(&texts);
    let sum = |is_wanted: fn(&Line<'_>) -> bool| {
        lines.values().filter(|line| is_wanted(line)).map(|line| line.units).sum::<u64>()
    };
    let (keyed, rest) = (sum(|line| !line.unattributed), sum(|line| line.unattributed));
    // The sum without a key may fill a key's place.
    assert!((99..=100).contains(&keyed) && keyed + rest == 60_000, "{keyed} {rest}");
    assert_eq!(lines.values().filter(|line| line.unattributed).count(), 1);
    assert_eq!(process.ledger.stats().unattributed_units, rest);
    assert_eq!(process.ledger.stats().difference, 0);
}

#[test]
fn a_day_is_a_file_and_a_finished_one_is_compressed() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(ManualClock::at(T0));
    let mut process = Process::start(&clock, options(directory.path()));
    process.book(0, 0, "x", 1, T0);
    process.writer.write(false);
    clock.set(T0 + 15 * MINUTE_US);
    process.book(0, 0, "x", 2, T0 + 15 * MINUTE_US);
    // Stands for a full disk.
    let partial = format!("usage-20261130T235000Z-{}.jsonl.gz.partial", process.name());
    let partial = directory.path().join(partial);
    fs::create_dir(&partial).expect("a directory");
    process.writer.write(false);
    assert!(files(directory.path()).iter().all(|file| file.extension().is_some_and(|end| end != "gz")));
    fs::remove_dir(&partial).expect("an empty directory");
    process.writer.write(false);
    let found = files(directory.path());
    let names: Vec<_> =
        found.iter().map(|file| file.file_name().and_then(|name| name.to_str()).expect("UTF-8")).collect();
    let name = process.name();
    assert_eq!(
        names,
        [format!("usage-20261130T235000Z-{name}.jsonl.gz"), format!("usage-20261201T000500Z-{name}.jsonl")]
    );
    let texts: Vec<_> = found.iter().map(|file| text_of(file)).collect();
    assert!(
        texts.iter().all(|text| text.lines().next().is_some_and(|line| line.contains("\"begin\""))),
        "{texts:?}"
    );
    assert_eq!(lines(&texts).values().map(|line| line.units).sum::<u64>(), 3);
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&found[1]).expect("a file"));
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn old_files_go_by_age_and_the_oldest_by_size() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(ManualClock::at(T0));
    let old = |name: &str, days: u64, bytes: usize| {
        let path = directory.path().join(name);
        fs::write(&path, vec![b'x'; bytes]).expect("room");
        let time = std::time::UNIX_EPOCH + Duration::from_micros(T0 - days * DAY_US);
        fs::File::options()
            .append(true)
            .open(&path)
            .and_then(|file| file.set_modified(time))
            .expect("its time");
    };
    old("usage-1-a.jsonl.gz", 40, 10);
    old("usage-2-a.jsonl.gz", 20, 600);
    old("usage-3-b.jsonl", 10, 600);
    old("usage-4-b.jsonl", 1, 600);
    old("notes.txt", 400, 10);
    let keep = Some(Duration::from_secs(35 * 86_400));
    let process =
        Process::start(&clock, LedgerOptions { keep, max_bytes: 1_500, ..options(directory.path()) });
    let names: Vec<_> = files(directory.path())
        .into_iter()
        .filter_map(|file| Some(file.file_name()?.to_str()?.to_owned()))
        .collect();
    let own = format!("usage-20261130T235000Z-{}.jsonl", process.name());
    assert_eq!(names, ["notes.txt", own.as_str(), "usage-3-b.jsonl", "usage-4-b.jsonl"]);
}

#[test]
fn a_removed_file_is_begun_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(ManualClock::at(T0));
    let mut process = Process::start(&clock, options(directory.path()));
    files(directory.path()).iter().for_each(|file| fs::remove_file(file).expect("a file"));
    process.book(0, 0, "x", 1, T0);
    process.writer.write(true);
    let texts: Vec<_> = files(directory.path()).iter().map(|file| text_of(file)).collect();
    let seqs: Vec<_> = lines(&texts)
        .into_values()
        .map(|line| (line.seq, line.begin.is_some(), line.units, line.end))
        .collect();
    assert_eq!(seqs, [(1, true, 0, false), (2, false, 1, false), (3, false, 0, true)]);
}

#[test]
fn a_line_reads_as_documented() {
    let line = Line {
        process: "rl-1.mh4k2p1c".into(),
        seq: 7,
        at: 1_795_701_600,
        domain: "api".into(),
        rule: "monthly".into(),
        entries: vec!["customer=ac\"me".into()],
        of: 10_000,
        ..Line::default()
    };
    let sums = Booking { ok: 120, over: 3, units: 131, back: 11, refused: 3, ..Booking::default() };
    let mut text = Vec::new();
    line.with_sums(sums, BookingMode::Soft).append_to(&mut text);
    let expected = r#"{"process":"rl-1.mh4k2p1c","seq":7,"at":1795701600,"domain":"api","rule":"monthly","entries":["customer=ac\"me"],"of":10000,"ok":120,"over":3,"units":131,"back":11,"refused":3,"mode":"soft"}"#;
    assert_eq!(String::from_utf8_lossy(&text), format!("{expected}\n"));
    assert_eq!(serde_json::from_slice::<Line<'_>>(&text).expect("a line").sums(), sums);
}
