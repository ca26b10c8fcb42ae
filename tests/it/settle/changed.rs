//! Settles while the customer has another plan than at the estimates, on memory here and on Redis in `redis::settle`.

use ::base::clock::SystemClock;
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{Charges, Outcomes};

use super::{Story, T0, hits, settle};

const ALGORITHMS: [(&str, &str); 5] = [
    ("fixed", "unit: hour, algorithm: fixed_window"),
    ("sliding", "unit: hour, algorithm: sliding_window"),
    ("log", "unit: hour, algorithm: sliding_log"),
    ("calendar", "unit: day, algorithm: fixed_window, calendar: UTC"),
    ("gcra", "unit: hour, algorithm: gcra"),
];

fn rules() -> String {
    let rule = |(key, limit): (&str, &str)| {
        format!(
            "  - key: {key}\n    descriptors:\n      - key: plan\n        tier: true\n        rate_limit: {{ {limit}, \
             requests_per_unit: 1000, settle: true, tiers: {{ low: 100, high: 10000 }} }}\n"
        )
    };
    format!("domain: d\ndescriptors:\n{}", ALGORITHMS.map(rule).concat())
}

/// Plays for each algorithm: the estimates of one plan are settled with another plan.
pub(crate) fn check_changed_numbers(mut decide: impl FnMut(&Charges, u64) -> Outcomes) {
    let mut story = Story::new(&rules(), &mut decide);
    // Estimates with their units and real costs, the plan at the settles, the plan in the end and what it has left; in
    // GCRA, which keeps the used share, too.
    let table = [
        (100, 10, 9, "normal", "normal", 100, 100),
        (100, 10, 9, "low", "normal", 100, 100),
        (100, 10, 9, "high", "normal", 100, 100),
        (2, 500, 250, "high", "high", 9_500, 5_000),
        (2, 500, 0, "low", "low", 100, 100),
    ];
    for (case, (estimates, units, actual, at_settle, afterwards, left, left_of_gcra)) in
        table.into_iter().enumerate()
    {
        for (algorithm, _) in ALGORITHMS {
            let entries = |plan: &str| format!("{algorithm}=customer {case},plan={plan}");
            let mut estimate = |_| story.play(T0, vec![hits(&entries("normal"), units)]).1.expect("it fits");
            let receipts: Vec<_> = (0..estimates).map(&mut estimate).collect();
            for receipt in receipts {
                story.play(T0, vec![settle(&entries(at_settle), &receipt, actual)]);
            }
            let (decision, _) = story.play(T0, vec![hits(&entries(afterwards), 0)]);
            let remaining = decision.limit_results().next().expect("a limit").outcome.report.remaining;
            let expected = if algorithm == "gcra" { left_of_gcra } else { left };
            assert_eq!(remaining, expected, "{algorithm}, settled as {at_settle}, then {afterwards}");
        }
    }
}

#[test]
fn a_receipt_gives_back_in_memory_what_its_estimate_took() {
    let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
    check_changed_numbers(|charges, now_us| store.decide_at(charges, now_us));
}
