//! The same limits as other algorithms.

use std::sync::Arc;

use engine::{
    Algorithm, Charging, CompileError, Defaults, DomainSpec, Limit, LimitSpec, LiveRows, NodeSpec, Pacing,
    Refill, RuleSet, ValueHashing,
};

/// A rule set in which every limit has one algorithm.
#[derive(Clone, Debug)]
pub struct Variant {
    pub algorithm: Algorithm,
    /// What an unused counter admits at one instant, as a divisor of the limit: 1 for all of it, 10 for a tenth.
    pub burst_divisor: u32,
    pub rules: RuleSet,
}

impl Variant {
    /// The label of a limit in this variant. Two variants of one limit may have the same burst but different counts,
    /// because the other limits' counts differ.
    pub fn label(&self, limit: &LimitSpec) -> String {
        let part = match (self.algorithm.has_burst(), self.burst_divisor) {
            (false, _) => return self.algorithm.into_str().to_owned(),
            (true, 1) => "the limit",
            (true, _) => "a tenth",
        };
        format!("{} burst {} ({part})", self.algorithm.into_str(), limit.capacity())
    }
}

/// The label of a limit as the rule file has it.
pub fn own_label(limit: &LimitSpec) -> String {
    let burst =
        if limit.algorithm.has_burst() { format!(" burst {}", limit.capacity()) } else { String::new() };
    let charging = if limit.charging == Charging::Postpaid { " postpaid" } else { "" };
    let calendar = limit.calendar.as_ref().map(|calendar| format!(" {calendar}")).unwrap_or_default();
    format!("{}{calendar}{burst}{charging} (as configured)", limit.algorithm.into_str())
}

pub(crate) const MAX_VARIANTS: usize = 5;

/// Fixed window, sliding window, sliding log, and GCRA with a burst of the limit and of a tenth of it.
const VARIANTS: [(Algorithm, u32); MAX_VARIANTS] = [
    (Algorithm::FixedWindow, 1),
    (Algorithm::SlidingWindow, 1),
    (Algorithm::SlidingLog, 1),
    (Algorithm::Gcra, 1),
    (Algorithm::Gcra, 10),
];

/// Compiles `specs`, the specs of `judged`, with each limit as every algorithm. Limits keep their ids. Limits that
/// differ in `judged` do not share a counter, even if they are equal as another algorithm. A limit that cannot have an
/// algorithm, because its log would be too long, stays unchanged.
///
/// # Errors
/// [`CompileError`] if `specs` are not the specs of a rule set.
pub fn variants(
    specs: &[DomainSpec],
    judged: &RuleSet,
    defaults: Defaults,
    hashing: ValueHashing,
) -> Result<Vec<Variant>, CompileError> {
    let variant = |(algorithm, burst_divisor)| {
        let mut specs = specs.to_vec();
        for domain in &mut specs {
            domain.descriptors.iter_mut().for_each(|node| change_limits(node, algorithm, burst_divisor));
        }
        let mut rules = RuleSet::compile(&specs, defaults, hashing)?.sharing_counters_as(judged);
        if let Some(exceptions) = judged.exceptions() {
            rules = rules.with_exceptions(Arc::clone(exceptions), &LiveRows::default());
        }
        Ok(Variant { algorithm, burst_divisor, rules })
    };
    VARIANTS.into_iter().map(variant).collect()
}

fn change_limits(node: &mut NodeSpec, algorithm: Algorithm, burst_divisor: u32) {
    for limit in node.rule.iter_mut().flat_map(|rule| &mut rule.limits) {
        let unchanged = &limit.spec;
        if unchanged.unlimited || unchanged.algorithm == Algorithm::Concurrency {
            continue;
        }
        let burst = unchanged.requests_per_unit / u64::from(burst_divisor);
        let burst = u32::try_from(burst).unwrap_or(u32::MAX);
        let spec = LimitSpec {
            algorithm,
            burst: algorithm.has_burst().then(|| burst.max(1)),
            calendar: unchanged.calendar.clone().filter(|_| algorithm == Algorithm::FixedWindow),
            refill: Refill::default(),
            pacing: Pacing::default(),
            // Postpaid is for windows: a denied hit of a bucket would be a debt that no other algorithm has.
            charging: Charging::Prepaid,
            ..unchanged.clone()
        };
        if let Ok(changed) = Limit::new(spec) {
            *limit = changed;
        }
    }
    node.descriptors.iter_mut().for_each(|below| change_limits(below, algorithm, burst_divisor));
}
