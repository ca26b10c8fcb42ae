//! Known answers: which shares are reported after each step, on memory here and on Redis in `redis::notify`.

use std::sync::Arc;

use ::base::clock::{Clock, ManualClock};
use ::store::memory::{MemoryOptions, MemoryStore};
use ::store::redis::RedisStore;
use engine::{Charges, Outcomes, Store};
use futures_util::FutureExt as _;
use ratelimitd::notify::{Notifier, NotifierParts};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::ledger::known_answers::{Story, T0};
use crate::ledger::{lines, options, write};

const MONTH: &str = "unit: month, algorithm: fixed_window, calendar: UTC";
const MINUTE: &str = "unit: minute, algorithm: gcra, burst: 10";

/// Number, fields of the limit, its shares and its number, what happens, and what is reported after each step, with
/// semicolons between the steps. The steps are those of `ledger::known_answers`. A reported share is followed by its
/// limit's number if that is not 10, and its mode.
const ROWS: &[(&str, &str, &str, &str, &str)] = &[
    ("1", MONTH, "0.8, 1; 10", "take 7, take 1, take 1, take 1, take 1", "; 0.8; ; 1; "),
    ("2", MONTH, "0.8, 1; 10", "take 10", "0.8 1"),
    ("3", MONTH, "0.8, 1; 10", "take 8, refund 3, take 3", "0.8; ; "),
    ("4", MONTH, "0.8, 1; 10", "take 8, midnight, take 8", "0.8; ; 0.8"),
    ("5", MONTH, "0.8, 1; 10", "take 8, limit 20, take 7, take 1", "0.8; ; ; 0.8/20"),
    ("6", MONTH, "0.5; 1", "take 1", "0.5/1"),
    ("7", MINUTE, "0.8, 1; 10", "take 8, wait 2, take 8", "0.8; ; 0.8"),
    ("7 at once", MINUTE, "0.8, 1; 10", "take 8, take 1, take 1", "0.8; ; 1"),
    ("7 half", MINUTE, "0.8; 10", "take 8, refund 8, take 8", "0.8; ; "),
    ("8", MONTH, "0.8, 1; 10 on_over: announce", "take 1 x12, take 1", "0.8 soft 1 soft; "),
    ("9 shadow", MONTH, "0.8, 1; 10 shadow", "take 9, take 9", "; "),
    ("9 local", MONTH, "0.8; 10 on_store_failure: local", "down, take 9, up, take 7, take 1", "; ; ; ; 0.8"),
    ("9 allow", MONTH, "0.8; 10 on_store_failure: allow", "down, take 9, up, take 1", "; ; ; "),
    ("9 zero", MONTH, "0.8; 0", "take 1, take 1", "; "),
    ("10 postpaid", MONTH, "0.8, 1; 10 charging: postpaid", "take 7, take 30", "; 0.8 1"),
    ("11 settled", MONTH, "0.8; 10 settle: true", "take 3 A, settle A 9", "; 0.8"),
    ("12 beside", MONTH, "0.8; 10", "beside 9, take 1", "; "),
    ("13 block", MONTH, "0.8; 10", "block, take 9", "; "),
    ("14 check", MONTH, "0.8; 10", "take 7, check, take 1, check", "; ; 0.8; "),
    ("15 cached", MONTH, "1; 10", "cached, take 10, take 1, take 1", "; 1; ; "),
    (
        "16 eight",
        MONTH,
        "0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8; 10",
        "take 3, take 5",
        "0.1 0.2 0.3; 0.4 0.5 0.6 0.7 0.8",
    ),
];

fn rule_text(period: &str, limit: &str) -> String {
    let (shares, number) = limit.split_once("; ").expect("shares and a number");
    let (number, fields) = number.split_once(' ').unwrap_or((number, ""));
    let (shadow, fields) = if fields == "shadow" { ("shadow_mode: true, ", "") } else { ("", fields) };
    let fields = if fields.is_empty() { String::new() } else { format!(", {fields}") };
    let limit = format!("{period}, requests_per_unit: {number}, notify: [{shares}]{fields}");
    let denying = "{ key: closed, rate_limit: { unit: day, requests_per_unit: 0 } }";
    format!(
        "domain: d\ndescriptors:\n  - {{ key: k, {shadow}rate_limit: {{ name: l, {limit} }} }}\n  - {denying}\n"
    )
}

/// Plays each row of the table on its own counter. `age` lets the marks in Redis age by some microseconds.
pub(crate) fn check_known_answers(
    runtime: &Runtime,
    redis: Option<&RedisStore>,
    mut decide: impl FnMut(&Charges, u64) -> Outcomes + Send,
    age: impl Fn(u64),
) {
    let mut problems = Vec::new();
    for (number, period, limit, steps, expected) in ROWS {
        let value = number.replace(' ', "-");
        let (mut story, ledger) = Story::new(&rule_text(period, limit), steps, value, &mut decide);
        let parts = NotifierParts {
            webhook: None,
            redis: redis.cloned(),
            ledger: Some(Arc::clone(&ledger)),
            clock: Arc::clone(&story.clock) as Arc<dyn Clock>,
            mask: Box::new(str::to_owned),
            process: "it".to_owned(),
            stats: Arc::default(),
        };
        let (notices, mut notifier) = runtime.block_on(async { Notifier::new(parts) });
        // Two workers: what one of them queues, the other one does not know.
        let workers = [notices.worker(), notices.worker()];
        let stop = CancellationToken::new();
        stop.cancel();
        let mut told = Vec::new();
        for (index, step) in steps.split(", ").enumerate() {
            let before_us = story.clock.now_us();
            story.limiter.notices = workers[index % 2].clone();
            story.step(step);
            age(story.clock.now_us() - before_us);
            runtime.block_on(notifier.run(&stop));
            let directory = tempfile::tempdir().expect("a directory");
            write(&ledger, options(directory.path()));
            let lines = lines(directory.path());
            let shares = lines.iter().filter_map(|line| Some((line, line.reached?))).map(|(line, share)| {
                assert_eq!((&*line.domain, &*line.rule, line.entries.len()), ("d", "l", 1));
                let of = if line.of == 10 { String::new() } else { format!("/{}", line.of) };
                let mode = if line.mode.is_empty() { String::new() } else { format!(" {}", line.mode) };
                format!("{share}{of}{mode}")
            });
            told.push(shares.collect::<Vec<_>>().join(" "));
        }
        let told = told.join("; ");
        if told != *expected {
            problems.push(format!("row {number}: {told:?}, not {expected:?}"));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn memory_gives_the_known_answers() {
    let clock = Arc::new(ManualClock::at(T0));
    let memory = MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock));
    let runtime = Runtime::new().expect("a runtime");
    let decide = |charges: &Charges, now_us| {
        clock.set(now_us);
        memory.decide(charges).now_or_never().expect("memory answers at once").expect("memory always answers")
    };
    check_known_answers(&runtime, None, decide, |_| ());
}
