//! Limits with `settle`: receipts, and what a settle books. A story plays requests of one tenant at given times, on any
//! counters.

use engine::{
    Attached, Caller, Charges, Code, Decision, Descriptor, Enforcement, Outcomes, Plan, PlannedAt, Request,
    RuleSet, Verdict,
};

use crate::rules;

mod behaviour;
mod changed;
mod doors;
mod known_answers;
mod one_call;

pub(crate) use changed::check_changed_numbers;
pub(crate) use known_answers::{ALGORITHMS, check_known_answers};
pub(crate) use one_call::{check_one_call, check_recorded_calls};

/// A minute boundary.
pub(crate) const T0: u64 = 1_700_000_040_000_000;

/// Decides requests by rules, and numbers their receipts.
pub(crate) struct Story<D> {
    rules: RuleSet,
    /// Decides charges at a time.
    decide: D,
    nonce: u64,
}

impl<D: FnMut(&Charges, u64) -> Outcomes> Story<D> {
    pub(crate) fn new(text: &str, decide: D) -> Self {
        Self { rules: rules::rules(text), decide, nonce: 0 }
    }

    /// Replaces the rules and keeps the counters.
    pub(crate) fn change_rules(&mut self, text: &str) {
        self.rules = rules::rules(text);
    }

    /// Decides a request. Returns the receipt as its caller gets it.
    pub(crate) fn play(&mut self, now_us: u64, descriptors: Vec<Descriptor>) -> (Decision, Option<String>) {
        self.play_at(PlannedAt { now_us, slot_id: self.nonce + 1 }, descriptors)
    }

    /// [`Story::play`], with an id for its slots.
    pub(crate) fn play_at(
        &mut self,
        at: PlannedAt,
        descriptors: Vec<Descriptor>,
    ) -> (Decision, Option<String>) {
        let (domain, caller) = ("d".to_owned(), Caller::default());
        let request = Request { domain, hits_addend: 0, descriptors, caller };
        let plan = Plan::new(&self.rules, &request, at).expect("a plan");
        let outcomes = Outcomes::decided_in_parts(&plan.charges, |charges| (self.decide)(charges, at.now_us));
        let decision = Decision::merge(plan, outcomes, Enforcement::Enforce);
        self.nonce += 1;
        let receipt = decision.receipt(|| self.nonce).map(|receipt| receipt.to_string());
        (decision, receipt)
    }
}

/// A descriptor written as `key=value,key=value`, with these hits.
pub(crate) fn hits(entries: &str, hits: u64) -> Descriptor {
    Descriptor { hits: Some(hits), ..rules::descriptor(entries) }
}

/// A descriptor that returns a receipt with the real cost.
pub(crate) fn settle(entries: &str, receipt: &str, actual: u64) -> Descriptor {
    let attached = Some(Box::new(Attached::Receipt(receipt.parse())));
    Descriptor { attached, ..hits(entries, actual) }
}

/// The first limit of a decision as text: `OK remaining/reset`, `OVER remaining/reset r<retry>`, in seconds.
pub(crate) fn summary(decision: &Decision) -> String {
    let result = decision.limit_results().next().expect("a limit");
    let report = result.outcome.report;
    let code = if decision.overall == Code::Ok { "OK" } else { "OVER" };
    let mut text = format!("{code} {}/{}", report.remaining, seconds(report.reset_after_us));
    if result.outcome.verdict == Verdict::Over {
        text += &format!(" r{}", seconds(report.retry_after.us().expect("a wait")));
    }
    text
}

/// Seconds with at most four decimals.
fn seconds(us: u64) -> String {
    let text = format!("{:.4}", us as f64 / 1e6);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
