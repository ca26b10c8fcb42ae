//! What two decisions of the same requests are compared by.

use engine::algorithm::Attempt;
use engine::{Charges, CounterSnapshot, DecidedBy, Outcomes, Report, RetryAfter, Verdict};

/// The observable part of outcomes. Expired counters with different states are equal.
pub(super) fn observable(charges: &Charges, outcomes: &Outcomes) -> Vec<(Verdict, Report, RetryAfter)> {
    let each = charges.values().zip(&outcomes.by_charge);
    each.map(|(charge, outcome)| {
        let DecidedBy::Store(CounterSnapshot { now_us, reading }) = outcome.decided_by else {
            panic!("not from a store")
        };
        let retry_after = charge.kernel.wait(&reading, Attempt { now_us, cost: charge.cost });
        (outcome.verdict, outcome.report, retry_after)
    })
    .collect()
}
