//! Checks limits with `scope: global`, once the upgrades are applied. What cannot be lent would cost each request a
//! call to another region.

use engine::algorithm::Kernel;
use engine::{Lease, Limit, Quantity, Scope};

use super::problem::{Problem, ProblemCollector};
use super::read::{LimitDraft, NodeDraft};

/// Shortest period of a window. Processes borrow for at most an eighth of it.
const LEAST_PERIOD_US: u64 = 10_000_000;
/// If the burst refills sooner, it shortens the default of `store.redis.home.lease_horizon`, 5 s: processes
/// borrow for at most a sixteenth of this time.
const LEAST_REFILL_US: u64 = 80_000_000;

/// Checks the limits of these nodes and of all below.
pub(super) fn check_level(nodes: &[NodeDraft], has_home: bool, problems: &mut ProblemCollector) {
    for node in nodes {
        let of_all =
            |draft: &&LimitDraft| draft.limit.spec.scope == Scope::Global && draft.limit.spec.is_counted();
        for draft in node.limits.iter().filter(of_all) {
            let location = draft.location.clone();
            if let Some(reason) = refusal(draft, has_home) {
                problems.push(Problem::error(location, format!("scope: global {reason}")));
            } else if let Some(reason) = concern(&draft.limit) {
                problems.push(Problem::warning(location, format!("scope: global {reason}")));
            }
        }
        check_level(&node.nodes, has_home, problems);
    }
}

fn refusal(LimitDraft { limit, written, .. }: &LimitDraft, has_home: bool) -> Option<String> {
    let spec = &limit.spec;
    let needs = |what: &str| Some(format!("needs {what}"));
    if let Some(obstacle) = spec.lease_obstacle() {
        return Some(format!("does not work here: {obstacle}"));
    }
    if spec.lease == Lease::Off {
        return needs("lease: auto, which is its default");
    }
    if spec.count {
        return Some("does not work with count: what is unlimited is counted in each region".to_owned());
    }
    if !is_gcra(limit) && spec.period.us() < LEAST_PERIOD_US {
        return needs("a period of at least 10 seconds, because units are taken for an eighth of it");
    }
    if !written.on_store_failure {
        return needs("on_store_failure, which decides while home does not answer");
    }
    if !has_home {
        return needs("the settings store.kind: redis and store.redis.home.url");
    }
    None
}

fn is_gcra(limit: &Limit) -> bool {
    matches!(limit.quantity, Quantity::Limited(Kernel::Gcra(_)))
}

fn concern(limit: &Limit) -> Option<String> {
    let Quantity::Limited(Kernel::Gcra(kernel)) = limit.quantity else { return None };
    let refill_us = kernel.drain(kernel.burst).whole_us;
    (refill_us < LEAST_REFILL_US).then(|| {
        format!(
            "takes units for a sixteenth of the time in which the burst refills, here {} ms; for 5 s and few calls \
             to home, raise burst",
            refill_us / 16_000
        )
    })
}
