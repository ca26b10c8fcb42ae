//! Workers that share the queue of examples/callers/rules.yaml, on a virtual clock: each requests a job, waits for its
//! turn, does the job in no time, and takes the next one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::path::Path;

use engine::{
    Caller, Defaults, Descriptor, Entry, Plan, Request, RetryAfter, RuleSet, ValueHashing, Verdict,
};
use ratelimitd_simulate::replay::{MemoryReplay, ReplayStore};
use rules::{CalendarOptions, CalendarYears, LoadOptions, RuleDirectory, load};

const OPTIONS: LoadOptions = LoadOptions {
    merge_domains: false,
    defaults: Defaults::ENVOY_RATELIMIT,
    hashing: ValueHashing::NONE,
    directory: RuleDirectory::YamlFiles,
    upgrades: Vec::new(),
    calendars: CalendarOptions::new(CalendarYears { first: 2020, last: 2031 }),
    has_home: false,
};

const START_US: u64 = 1_700_000_040_000_000;
const WORKERS: usize = 40;
const JOBS_EACH: usize = 4;
const JOBS: usize = WORKERS * JOBS_EACH;

fn example(burst: &str) -> RuleSet {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/callers/rules.yaml");
    let text = fs::read_to_string(path).expect("the rules of the callers");
    assert_eq!(text.matches("burst: 100 ").count(), 1, "the burst of the queue");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.yaml");
    fs::write(&file, text.replace("burst: 100 ", &format!("burst: {burst} "))).expect("a rule file");
    load(&[file], OPTIONS).expect("good rules").rules
}

/// How often the workers request all their jobs, and when each job starts.
fn work(rules: &RuleSet) -> (usize, Vec<u64>) {
    let entry = Entry { key: "third_party_queue".to_owned(), value: "maps".to_owned() };
    let descriptors = vec![Descriptor { entries: vec![entry], ..Descriptor::default() }];
    let domain = "callers".to_owned();
    let request = Request { domain, hits_addend: 0, descriptors, caller: Caller::default() };
    let mut store = MemoryReplay::new();
    // The time of each worker's next request, and its remaining jobs.
    let mut asking: BinaryHeap<_> =
        (0..WORKERS).map(|worker| Reverse((START_US, worker, JOBS_EACH))).collect();
    let (mut asks, mut starts) = (0, Vec::new());
    while let Some(Reverse((now_us, worker, jobs))) = asking.pop() {
        asks += 1;
        let plan = Plan::new(rules, &request, now_us).expect("a plan");
        let outcomes = store.decide(&[(now_us, &plan.charges)]).expect("memory decides").remove(0);
        let outcome = outcomes.by_charge[0];
        if outcome.verdict == Verdict::Fits {
            let turn_us = now_us + outcome.report.delay_us;
            starts.push(turn_us);
            if jobs > 1 {
                asking.push(Reverse((turn_us, worker, jobs - 1)));
            }
        } else {
            let RetryAfter::In(us) = outcome.report.retry_after else { panic!("one unit fits later") };
            asking.push(Reverse((now_us + us, worker, jobs)));
        }
    }
    starts.sort_unstable();
    (asks, starts)
}

#[test]
fn each_worker_of_the_queue_asks_once_for_a_job() {
    let (asks, starts) = work(&example("100"));
    assert_eq!(asks, JOBS);
    // Five jobs a second, evenly spaced, from the first one on.
    let expected: Vec<_> = (0..JOBS as u64).map(|job| START_US + job * 200_000).collect();
    assert_eq!(starts, expected);
}

#[test]
fn a_burst_above_the_number_of_workers_is_enough() {
    // The job that has just begun occupies a slot, too.
    let (enough, too_few) = (work(&example("41")).0, work(&example("20")).0);
    assert_eq!(enough, JOBS);
    assert!(too_few > 2 * JOBS, "{too_few} asks");
}
