//! Counts the threads that checks of rule files start. Alone in its process, because it counts the process's threads.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use engine::{Defaults, ValueHashing};
use ratelimitd_rules::{CalendarOptions, CalendarYears, Change, LoadOptions, Reloader, RuleDirectory};

const OPTIONS: LoadOptions = LoadOptions {
    merge_domains: false,
    defaults: Defaults::ENVOY_RATELIMIT,
    upgrades: Vec::new(),
    calendars: CalendarOptions::new(CalendarYears { first: 2020, last: 2031 }),
    has_home: false,
    hashing: ValueHashing::NONE,
    directory: RuleDirectory::YamlFiles,
};

const RULES: &str =
    "domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unit: minute, requests_per_unit: 5 }\n";

/// The number of threads that this process has started, including the one started here: threads are numbered in the
/// order of their start, and finished ones keep their number.
fn threads_started() -> u64 {
    let id = thread::spawn(|| thread::current().id()).join().expect("a thread");
    let digits: String = format!("{id:?}").chars().filter(char::is_ascii_digit).collect();
    digits.parse().expect("the number of a thread")
}

#[test]
fn checks_without_a_change_start_no_thread() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rules.yaml");
    fs::write(&path, RULES).expect("a file");
    let (mut reloader, loaded) = Reloader::start(std::slice::from_ref(&path), OPTIONS);
    loaded.expect("good rules");

    #[expect(
        clippy::disallowed_methods,
        reason = "the time of the first check, from which the others are counted"
    )]
    let start = Instant::now();
    let first = reloader.check_files(start);
    assert!(matches!(first, Change::Unchanged), "the first check compares the content: {first:?}");
    let before = threads_started();
    for check in 1..=200 {
        let change = reloader.check_files(start + check * Duration::from_millis(250));
        assert!(matches!(change, Change::Unchanged), "{change:?}");
    }
    // Counting starts one. The main thread of the test harness gets its number when it first waits.
    let started = threads_started() - before;
    assert!(started <= 2, "{started} threads for 200 checks");
}
