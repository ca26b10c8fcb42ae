//! The threads that watching rule files starts. Alone in its process: it counts the threads of the process.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use engine::{Defaults, ValueHashing};
use ratelimitd_rules::{Change, DirectoryOptions, LoadOptions, Reloader, watch};

const OPTIONS: LoadOptions = LoadOptions {
    merge_domains: false,
    defaults: Defaults::ENVOY_RATELIMIT,
    upgrades: Vec::new(),
    hashing: ValueHashing::NONE,
    directory: DirectoryOptions::YAML_FILES,
};

const RULES: &str =
    "domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unit: minute, requests_per_unit: 5 }\n";

/// The number of threads that this process has started so far, with the one that this function starts: threads are
/// numbered in the order of their start, also those that have ended.
fn threads_started() -> u64 {
    let id = thread::spawn(|| thread::current().id()).join().expect("a thread");
    let digits: String = format!("{id:?}").chars().filter(char::is_ascii_digit).collect();
    digits.parse().expect("the number of a thread")
}

#[test]
fn polls_without_a_change_start_no_thread() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rules.yaml");
    fs::write(&path, RULES).expect("a file");
    let before = threads_started();
    let (reloader, loaded) = Reloader::start(std::slice::from_ref(&path), OPTIONS);
    loaded.expect("good rules");
    assert_eq!(threads_started() - before, 2, "to load takes one thread, and counting another");

    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().max_blocking_threads(1).build().expect("a runtime");
    let before = threads_started();
    let polls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&polls);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let mut stop = Some(stop);
    let on_check = move |change| {
        assert!(matches!(change, Change::Unchanged), "{change:?}");
        if counted.fetch_add(1, Ordering::Relaxed) == 200 {
            stop.take().map(|stop: tokio::sync::oneshot::Sender<()>| stop.send(()));
        }
    };
    runtime.block_on(watch(reloader, Duration::from_millis(1), on_check, async {
        stopped.await.expect("the signal to stop");
    }));
    assert!(polls.load(Ordering::Relaxed) > 200);
    let started = threads_started() - before - 1;
    assert!(started <= 1, "{started} threads for 200 polls; the runtime has one for work that blocks");
}
