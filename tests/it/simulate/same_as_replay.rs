//! A simulation decides as `replay` does, whatever the number of threads.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::simulate::log::Input;
use ::simulate::pass::{PassOptions, RuleSets, Sample, simulate};
use ::simulate::replay::{LimitCount, MemoryReplay, Summary, replay};
use ::simulate::report::Report;
use engine::RuleSet;
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::NamedTempFile;

use crate::cli::replay::{KEYS, T0, line, rules, rules_of};
use crate::support::properties;

const TWO_LIMITS: &str = "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { unit: minute, requests_per_unit: 40, algorithm: sliding_window }
      - { name: s, unit: second, requests_per_unit: 3, algorithm: gcra }
";

fn simulated(rules: &RuleSet, log: &str, threads: usize) -> Report {
    let mut file = NamedTempFile::new().expect("a temporary file");
    std::io::Write::write_all(&mut file, log.as_bytes()).expect("room");
    let mut input = Input::open(file.path(), &Arc::default()).expect("readable");
    // The report has the name.
    "log".clone_into(&mut input.name);
    let options = PassOptions {
        format: None,
        reorder_us: 60_000_000,
        threads: NonZeroUsize::new(threads).expect("not zero"),
        sample: Sample::ALL,
        show_keys: true,
        what_if: false,
        recommend: None,
        command_line: Vec::new(),
        digests: Vec::new(),
    };
    let rules = RuleSets { judged: rules.clone(), in_force: Some(rules.clone()), variants: Vec::new() };
    simulate(&rules, None, vec![input], &options, &AtomicBool::new(false), &mut |_| {}).expect("a report")
}

fn replayed(rules: &RuleSet, log: &str) -> Summary {
    replay(rules, &mut MemoryReplay::new(), (log.as_bytes(), &mut Vec::new()), |_| {})
        .expect("every line is decided")
}

/// The counts of `replay` are in the report, and no others.
fn assert_same(report: &Report, summary: &Summary) {
    assert_eq!((report.totals.requests, report.totals.denied), (summary.requests, summary.over_limit));
    // The limits of one rule without names of their own have one label.
    let mut found: BTreeMap<Arc<str>, LimitCount> = BTreeMap::new();
    for rule in &report.limits {
        let count = found.entry(rule.rule.as_str().into()).or_default();
        (count.decided, count.over_limit) = (count.decided + rule.asked, count.over_limit + rule.over);
    }
    assert_eq!(found, summary.limits);
    for rule in &report.limits {
        assert_eq!(rule.timeline.asked.iter().sum::<u64>(), rule.asked);
        assert_eq!(rule.timeline.over.iter().sum::<u64>(), rule.over);
        assert_eq!(rule.top_denied.iter().map(|key| key.over).sum::<u64>(), rule.over, "few keys are denied");
        assert_eq!(rule.in_force.as_ref().map(|in_force| in_force.over), Some(rule.over), "the same rules");
    }
    let comparison = report.comparison.as_ref().expect("rules in force");
    assert_eq!((comparison.only_in_force_denies, comparison.only_judged_denies), (0, 0));
    assert_eq!((comparison.keys_newly_over, comparison.keys_freed), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..properties::config(file!()) })]

    #[test]
    fn the_report_has_the_counts_of_replay_and_does_not_depend_on_threads(
        requests in vec((0..3_000_000_u64, vec((0..KEYS.len(), 0..4_u64, any::<bool>()), 1..3)), 1..400),
    ) {
        let (rules, mut t_us, mut log) = (rules(), T0, String::new());
        for (step_us, descriptors) in &requests {
            t_us += step_us;
            let descriptors: Vec<_> = descriptors
                .iter()
                .map(|(key, hits, refund)| (KEYS[*key], *hits, *refund && *hits == 1))
                .collect();
            writeln!(log, "{}", line(t_us, &descriptors)).expect("room");
        }
        let one = simulated(&rules, &log, 1);
        assert_same(&one, &replayed(&rules, &log));
        prop_assert_eq!(simulated(&rules, &log, 3), one);
    }
}

#[test]
fn a_log_of_many_blocks_gives_the_same_report_with_any_number_of_threads() {
    let (rules, mut log) = (rules_of(TWO_LIMITS), String::new());
    let mut t_us = T0;
    let mut random = 1_u64;
    for _ in 0..30_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        t_us += (random >> 33) % 20_000;
        let user = (random >> 20) % 300 * ((random >> 50) % 7);
        writeln!(
            log,
            "{{\"t_us\":{t_us},\"domain\":\"d\",\"descriptors\":[{{\"entries\":[{{\"key\":\"user\",\"value\":\"{user}\"}}]}}]}}"
        )
        .expect("room");
    }
    assert!(log.len() > 2 << 20, "several blocks for each thread");
    let one = simulated(&rules, &log, 1);
    let summary = replayed(&rules, &log);
    assert_eq!((one.totals.requests, one.totals.denied), (30_000, summary.over_limit));
    assert!(summary.over_limit > 100);
    for threads in [2, 5] {
        assert_eq!(simulated(&rules, &log, threads), one, "{threads} threads");
    }
}
