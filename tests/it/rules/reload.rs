//! Rule files that change while they are in use, on a real file system. No test waits: each check of the files is a
//! call.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::clock::monotonic;
use engine::RuleSet;
use rules::{Change, LoadOptions, LoadedRules, Problems, Reloader};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{keys, request};
use crate::support::process::Ratelimitd;
use crate::support::{http, wait};

const OPTIONS: LoadOptions = super::REFERENCE;

fn text(domain: &str, limit: u64) -> String {
    format!(
        "domain: {domain}\ndescriptors:\n  - key: a\n    rate_limit: {{ unit: minute, requests_per_unit: {limit} }}\n"
    )
}

/// A directory with rules, and its reloader.
struct Watched {
    directory: TempDir,
    reloader: Reloader,
    rules: RuleSet,
    /// The time of the last check.
    now: Instant,
}

impl Watched {
    /// A directory with `rules.yaml`, in which domain `d` has a limit of 5.
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("rules.yaml"), text("d", 5)).expect("a file");
        Self::on(directory)
    }

    fn on(directory: TempDir) -> Self {
        let paths = [directory.path().to_path_buf()];
        let (reloader, loaded) = Reloader::start(&paths, OPTIONS);
        let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
        Self { directory, reloader, rules: loaded.rules, now: monotonic() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
    }

    /// Checks the files a quarter of a second after the last check.
    fn check_once(&mut self) -> Change<Result<LoadedRules, Problems>> {
        self.now += Duration::from_millis(250);
        self.reloader.check_files(self.now)
    }

    /// Checks until the files are settled.
    fn check(&mut self) -> Change<Result<LoadedRules, Problems>> {
        loop {
            match self.check_once() {
                Change::Unsettled { .. } => {}
                change => return change,
            }
        }
    }

    fn loaded(&mut self) -> LoadedRules {
        self.load().unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn problems(&mut self) -> Problems {
        self.load().expect_err("rules with errors")
    }

    fn load(&mut self) -> Result<LoadedRules, Problems> {
        match self.check() {
            Change::Loaded(result) => result,
            other => panic!("{other:?}"),
        }
    }

    fn assert_unchanged(&mut self) {
        for _ in 0..3 {
            let change = self.check();
            assert!(matches!(change, Change::Unchanged), "{change:?}");
        }
    }

    /// The limit of domain `d` after a change.
    fn new_limit(&mut self) -> u64 {
        self.loaded().rules.limits()[0].spec.requests_per_unit
    }
}

#[test]
fn files_without_changes_are_not_loaded_again() {
    let mut watched = Watched::start();
    watched.assert_unchanged();
    // The same text with another time stamp is not a change.
    watched.write("rules.yaml", &text("d", 5));
    watched.assert_unchanged();
}

#[test]
fn a_file_written_in_place_is_loaded() {
    let mut watched = Watched::start();
    watched.write("rules.yaml", &text("d", 6));
    assert_eq!(watched.new_limit(), 6);
    watched.assert_unchanged();
    // The same length, right after the write above.
    watched.write("rules.yaml", &text("d", 7));
    assert_eq!(watched.new_limit(), 7);
}

#[test]
fn a_write_right_after_the_start_is_detected() {
    // Both writes may fall into one tick of the file system's clock.
    for _ in 0..20 {
        let mut watched = Watched::start();
        watched.write("rules.yaml", &text("d", 6));
        assert_eq!(watched.new_limit(), 6);
    }
}

#[test]
fn a_file_replaced_by_a_rename_is_loaded() {
    let mut watched = Watched::start();
    watched.write(".rules.yaml.new", &text("d", 6));
    watched.assert_unchanged();
    fs::rename(watched.path(".rules.yaml.new"), watched.path("rules.yaml")).expect("a rename");
    assert_eq!(watched.new_limit(), 6);
}

#[test]
fn added_and_removed_files_are_detected() {
    let mut watched = Watched::start();
    fs::create_dir(watched.path("more")).expect("a directory");
    watched.assert_unchanged();
    watched.write("more/other.yml", &text("other", 1));
    let domains =
        |loaded: &LoadedRules| loaded.specs.iter().map(|spec| spec.domain.clone()).collect::<Vec<_>>();
    assert_eq!(domains(&watched.loaded()), ["other", "d"]);
    fs::remove_file(watched.path("rules.yaml")).expect("a removal");
    assert_eq!(domains(&watched.loaded()), ["other"]);
    fs::remove_dir_all(watched.path("more")).expect("a removal");
    let problems = watched.problems().to_string();
    assert!(problems.ends_with("no rule files (*.yaml, *.yml) in this directory"), "{problems}");
}

/// Swaps `..data` as the kubelet does: a new directory, a link to it under another name, a rename over the old link.
fn swap(volume: &Path, version: &str, text: &str) {
    fs::create_dir(volume.join(version)).expect("a directory");
    fs::write(volume.join(version).join("rules.yaml"), text).expect("a file");
    symlink(version, volume.join("..data_tmp")).expect("a link");
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).expect("a rename");
}

#[test]
fn a_config_map_swap_is_loaded() {
    let directory = tempfile::tempdir().expect("a directory");
    swap(directory.path(), "..2026_01_01_00_00_00.1", &text("d", 5));
    symlink("..data/rules.yaml", directory.path().join("rules.yaml")).expect("a link");
    let mut watched = Watched::on(directory);
    assert_eq!(watched.rules.limits()[0].spec.requests_per_unit, 5);
    swap(watched.directory.path(), "..2026_01_01_00_00_01.2", &text("d", 6));
    assert_eq!(watched.new_limit(), 6);
    fs::remove_dir_all(watched.path("..2026_01_01_00_00_00.1")).expect("a removal");
    watched.assert_unchanged();
}

#[test]
fn errors_are_reported_once_and_end_with_valid_files() {
    let mut watched = Watched::start();
    watched.write("rules.yaml", "domain: d\ndescriptors: [{ key: a, rate_limit: { unit: eon } }]\n");
    let problems = watched.problems();
    assert!(problems.to_string().contains("rules.yaml:2: invalid rate limit unit 'eon'"), "{problems}");
    watched.assert_unchanged();
    // Other errors are reported again.
    watched.write("rules.yaml", "domain: d\ndescriptors: [{");
    watched.problems();
    watched.assert_unchanged();

    // The files in force again are loaded again.
    watched.write("rules.yaml", &text("d", 5));
    let loaded = watched.loaded();
    let domains: Vec<_> = loaded.documents.iter().map(|domain| domain.name.as_str()).collect();
    assert_eq!((loaded.files, loaded.rules.rules().len(), domains.as_slice()), (1, 1, &["d"][..]));
}

#[test]
fn a_new_file_that_is_not_read_is_a_warning_of_the_next_load() {
    let mut watched = Watched::start();
    watched.write("more.YAML", &text("more", 1));
    let loaded = watched.loaded();
    assert_eq!(loaded.files, 1);
    let warnings = loaded.warnings.to_string();
    assert!(
        warnings.ends_with("more.YAML: warning: not read, because its name does not end in .yaml or .yml")
    );
    watched.assert_unchanged();
}

/// A file of 40 rules. Most of its beginnings are valid too, but have fewer rules.
fn forty_rules() -> String {
    let rule =
        |name| format!("  - key: k{name}\n    rate_limit: {{ unit: minute, requests_per_unit: 1000 }}\n");
    "domain: d\ndescriptors:\n".to_owned() + &(0..40).map(rule).collect::<String>()
}

#[test]
fn a_file_that_is_still_being_written_is_not_loaded_however_long_it_takes() {
    let mut watched = Watched::start();
    let whole = forty_rules();
    let start = watched.now;
    let mut reported_after = Vec::new();
    // A check after every byte: ten minutes in all.
    for end in 1..whole.len() {
        watched.write("rules.yaml", &whole[..end]);
        match watched.check_once() {
            Change::Unsettled { is_overdue: false } => {}
            Change::Unsettled { is_overdue: true } => reported_after.push(watched.now - start),
            other => panic!("{end} bytes: {other:?}"),
        }
    }
    assert!(watched.now - start > Duration::from_secs(600));
    assert_eq!(
        reported_after,
        [Duration::from_millis(5_250)],
        "the first check came after a quarter of a second"
    );
    watched.write("rules.yaml", &whole);
    assert_eq!(watched.loaded().rules.rules().len(), 40);
}

#[test]
fn files_that_keep_changing_are_reported_once_until_they_settle() {
    let mut watched = Watched::start();
    for spell in 1..3 {
        let mut reported = 0;
        for limit in 1..100 {
            // Every write changes the length: the times of two writes may be equal.
            watched.write("rules.yaml", &(text("d", spell * limit) + &"#".repeat(limit as usize)));
            match watched.check_once() {
                Change::Unsettled { is_overdue } => reported += u32::from(is_overdue),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(reported, 1);
        assert_eq!(watched.new_limit(), spell * 99);
        watched.assert_unchanged();
    }
}

#[test]
fn errors_in_the_first_files_are_returned() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("rules.yaml"), "domain: ''\n").expect("a file");
    let (_, loaded) = Reloader::start(&[directory.path().to_path_buf()], OPTIONS);
    let problems = loaded.expect_err("bad rules");
    assert!(problems.to_string().ends_with("rules.yaml:1: config file cannot have empty domain"));
}

#[test]
fn limits_keep_their_counters_unless_their_kind_or_period_changes() {
    let directory = tempfile::tempdir().expect("a directory");
    let rules = |second: &str| {
        format!(
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {{ unit: minute, requests_per_unit: 5 }}\n  \
             - key: b\n    rate_limit: {{ unit: minute, {second} }}\n"
        )
    };
    fs::write(directory.path().join("rules.yaml"), rules("requests_per_unit: 5")).expect("a file");
    let mut watched = Watched::on(directory);
    let asked = request("d", &["a=1", "b=1"]);
    let before = keys(&watched.rules, &asked);
    // Each change, and the end of the second key.
    let table = [
        ("requests_per_unit: 6", "#fw:60000000"),
        ("requests_per_unit: 5000000000", "#fw:60000000"),
        ("requests_per_unit: 5, name: b, on_store_failure: allow, charging: prepaid", "#fw:60000000"),
        ("requests_per_unit: 5, unit_multiplier: 2", "#fw:120000000"),
        ("requests_per_unit: 5, algorithm: gcra", "#gc:60000000"),
        ("requests_per_unit: 6, algorithm: gcra, burst: 2", "#gc:60000000"),
        ("requests_per_unit: 6, algorithm: leaky_bucket, mode: queue", "#gc:60000000"),
        ("requests_per_unit: 6, algorithm: sliding_log", "#sl:60000000"),
        ("requests_per_unit: 7, algorithm: sliding_window", "#sw:60000000"),
        // What is left in such a bucket depends on its numbers.
        ("requests_per_unit: 7, burst: 9, algorithm: token_bucket, refill: interval", "#ib:7/60000000/9"),
        ("requests_per_unit: 5", "#fw:60000000"),
    ];
    for (changed, end) in table {
        watched.write("rules.yaml", &rules(changed));
        let after = keys(&watched.loaded().rules, &asked);
        assert_eq!(after[0], before[0], "{changed}");
        assert_eq!(after[1], format!("{{d|b=1}}{end}"), "{changed}");
    }
}

#[tokio::test]
async fn polled_files_are_loaded_once_they_have_changed_and_are_settled() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rules.yaml");
    fs::write(&path, text("d", 5)).expect("a file");
    let (mut reloader, loaded) = Reloader::start(std::slice::from_ref(&path), OPTIONS);
    loaded.expect("rules");
    fs::write(&path, text("d", 6)).expect("a file");
    let changed = base::check_until(move || match reloader.check_files(monotonic()) {
        Change::Loaded(result) => Some(result),
        Change::Unchanged | Change::Unsettled { .. } => None,
    });
    let rules = changed.await.expect("good rules").rules;
    assert_eq!(rules.limits()[0].spec.requests_per_unit, 6);
}

#[test]
fn the_page_of_the_rules_shows_a_change_that_is_not_read_yet() {
    let service = Ratelimitd::start(&text("d", 1));
    let state = || {
        let page = http::get(service.admin_port(), "/rules", &[]).expect("an answer").body;
        let page: Value = serde_json::from_str(&page).expect("JSON");
        ["in_force", "unread_change", "generation"].map(|field| page[field].clone())
    };
    assert_eq!(state(), [json!(true), json!(false), json!(1)]);
    let mut limit = 1;
    wait::expect("the change on the page", || {
        // The service never finds the same file twice.
        limit += 1;
        let padding = "#".repeat(limit as usize);
        std::fs::write(service.rules().join("rules.yaml"), text("d", limit) + &padding).expect("a rule file");
        state() == [json!(false), json!(true), json!(1)]
    });
    wait::expect("the change in force", || state() == [json!(true), json!(false), json!(2)]);
}
