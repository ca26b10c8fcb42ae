//! Instructions that the worker executes for one decision, counted by Valgrind's callgrind. CPU time depends on the
//! machine and its load; instructions hardly do, so a test can have a bound on them.
//!
//! The other threads work by the second, whatever the number of decisions, such as the sampler of the console. Under
//! callgrind a second has few decisions, so their instructions are counted apart, for a second.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::load::{self, Pace};
use crate::processes::{Process, Redis};
use crate::scenario::{Scenario, Store};
use crate::servers::Program;

/// What is counted.
struct Row {
    /// The name in the file of the bounds.
    name: &'static str,
    store: Store,
    limit: u32,
    unit: &'static str,
    keys: usize,
    /// Other options of the limit.
    options: &'static str,
    is_denied: bool,
}

/// Every request is admitted, except for two rows that deny nearly every one: with keys that are known, and with a key
/// that nobody had before, which only a limit of 0 denies.
const ROWS: [Row; 9] = [
    Row { name: "no rules", store: Store::None, ..ADMITTED },
    Row { name: "memory", store: Store::Memory, ..ADMITTED },
    Row { name: "Redis", store: Store::Redis, ..ADMITTED },
    // Each key is too rare for a lease, also during the warm-up.
    Row {
        name: "Redis, lease, cold keys",
        store: Store::Redis,
        keys: 200_000,
        options: ", lease: auto",
        ..ADMITTED
    },
    Row { name: "Redis, lease, one key", store: Store::Redis, keys: 1, options: ", lease: auto", ..ADMITTED },
    Row { name: "memory, denied, 40 keys", limit: 1, unit: "day", keys: 40, is_denied: true, ..ADMITTED },
    Row {
        name: "memory, denied, new keys",
        limit: 0,
        unit: "day",
        keys: 200_000,
        is_denied: true,
        ..ADMITTED
    },
    Row { name: "memory, ledger", options: ", ledger: true", ..ADMITTED },
    Row { name: "memory, notify below the share", options: ", notify: [0.8]", ..ADMITTED },
];

const ADMITTED: Row = Row {
    name: "memory",
    store: Store::Memory,
    limit: 1_000_000,
    unit: "second",
    keys: 1_000,
    options: "",
    is_denied: false,
};

const IN_FLIGHT: usize = 64;
/// By how much a number may be above its bound, in percent. Two runs differ by less than 1 %.
const MOST_PERCENT_ABOVE: u64 = 3;
/// Opens connections, makes keys and fills caches, so that these are not counted.
const WARM_UP: Duration = Duration::from_secs(3);

const PATIENCE: Duration = Duration::from_secs(30);

/// The numbers that were counted when this file last changed.
const BOUNDS: &str = include_str!("instructions.csv");

/// Prints a row for each of [`ROWS`] whose name contains `only`, and fails if one has no bound, or takes more than its
/// bound allows.
pub fn run(program: Program<'_>, duration: Duration, only: Option<&str>) -> ExitCode {
    println!("| counters in | instructions per decision | bound | | of the other threads, per second |");
    println!("|---|--:|--:|---|--:|");
    let mut fits = true;
    for row in ROWS.into_iter().filter(|row| only.is_none_or(|only| row.name.contains(only))) {
        let name = row.name;
        let Instructions { per_decision: counted, others_per_second: others } =
            count(program, &row, duration);
        let Some(bound) = bound(name) else {
            println!(
                "| {name} | {counted} | | no bound: add it to benches/served/instructions.csv | {others} |"
            );
            fits = false;
            continue;
        };
        let too_many = counted * 100 > bound * (100 + MOST_PERCENT_ABOVE);
        let verdict = if too_many {
            "more than 3 % above"
        } else if counted * (100 + MOST_PERCENT_ABOVE) < bound * 100 {
            "below: the bound in benches/served/instructions.csv can follow"
        } else {
            ""
        };
        println!("| {name} | {counted} | {bound} | {verdict} | {others} |");
        fits &= !too_many;
    }
    if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The name of a row may have commas; its number is after the last one.
fn bound(name: &str) -> Option<u64> {
    let mut rows = BOUNDS.lines().filter_map(|line| line.rsplit_once(','));
    let (_, bound) = rows.find(|row| row.0 == name)?;
    Some(bound.parse().expect("a bound is a number"))
}

struct Instructions {
    per_decision: u64,
    others_per_second: u64,
}

/// One worker, one rule with `gcra`, [`IN_FLIGHT`] calls in flight on four connections.
fn count(program: Program<'_>, row: &Row, duration: Duration) -> Instructions {
    let Row { store, limit, unit, keys, options, .. } = *row;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = directory.path().join("callgrind");
    let wrapped = under_callgrind(&directory, program.0, &output);
    let redis = (store == Store::Redis).then(Redis::start);
    let pace = Pace::Closed { in_flight: IN_FLIGHT };
    let scenario = Scenario { pace, limit, unit, keys, options, ..Scenario::DEFAULT };
    let ledger = tempfile::tempdir().expect("a temporary directory");
    let path = if options.contains("ledger") { ledger.path().to_str().expect("UTF-8") } else { "" };
    let settings = [
        ("RATELIMITD__LEDGER__PATH", path),
        ("RATELIMITD__SERVER__WORKERS", "1"),
        ("RATELIMITD__SERVER__DRAIN", "0s"),
        ("RATELIMITD__STORE__REDIS__TIMEOUT", "5s"),
    ];
    let redis_port = redis.as_ref().map(|redis| redis.port);
    let mut service = Program(&wrapped).serve(&scenario.rule_file(), redis_port, &settings);
    let domain = if store == Store::None { "without rules" } else { "bench" };
    load::generate(&scenario.load(vec![service.address], domain, WARM_UP));
    instrument(service.process.id(), "on");
    let start = Instant::now();
    let tally = load::generate(&scenario.load(vec![service.address], domain, duration));
    instrument(service.process.id(), "off");
    let took = start.elapsed();
    assert_eq!((tally.failed, tally.broken), (0, 0), "calls without a decision");
    let has_expected =
        if row.is_denied { tally.over_limit * 100 >= tally.answered * 99 } else { tally.over_limit == 0 };
    assert!(has_expected, "{}: {} of {} calls were denied", row.name, tally.over_limit, tally.answered);
    stop(&mut service.process);
    let mut by_thread = totals(&directory);
    let worker = by_thread.pop().expect("a thread has answered");
    let others_per_second =
        by_thread.iter().sum::<u64>() * 1_000 / u64::try_from(took.as_millis()).expect("seconds");
    Instructions { per_decision: worker / tally.answered, others_per_second }
}

/// A program that runs the service under callgrind, with counting off.
fn under_callgrind(directory: &TempDir, program: &Path, output: &Path) -> PathBuf {
    let path = directory.path().join("ratelimitd-under-callgrind");
    let (program, output) = (program.display(), output.display());
    let text = format!(
        "#!/bin/sh\nexec valgrind --tool=callgrind --instr-atstart=no --separate-threads=yes --callgrind-out-file='{output}' '{program}' \"$@\"\n"
    );
    fs::write(&path, text).expect("room for a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the owner can set permissions");
    path
}

fn instrument(process: u32, state: &str) {
    let mut command = Command::new("callgrind_control");
    command.args(["-i", state, &process.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().unwrap_or_else(|error| panic!("cannot run callgrind_control: {error}"));
    assert!(status.success(), "callgrind_control -i {state}: {status}");
}

/// Ends the process so that callgrind writes its file.
fn stop(process: &mut Process) {
    let sent = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "the service accepts no signal");
    let give_up = Instant::now() + PATIENCE;
    while process.runs() {
        assert!(Instant::now() < give_up, "the service does not end within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The sums of the threads that callgrind writes when the process ends, each to a file; the largest is the last.
fn totals(directory: &TempDir) -> Vec<u64> {
    let files =
        fs::read_dir(directory).expect("the directory exists").map(|file| file.expect("a file").path());
    let texts = files
        .map(|file| fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())));
    let mut totals: Vec<u64> = texts.filter_map(|text| total(&text)).collect();
    totals.sort_unstable();
    totals
}

fn total(text: &str) -> Option<u64> {
    let total = text.lines().filter_map(|line| line.strip_prefix("totals: ")).next_back()?;
    Some(total.trim().parse().expect("callgrind writes a number"))
}
