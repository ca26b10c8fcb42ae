//! The rule sets of a simulation.

use engine::RuleSet;

use crate::variants::Variant;

/// The rule sets that decide every request.
#[derive(Clone, Debug)]
pub struct RuleSets {
    /// The judged rules.
    pub judged: RuleSet,
    /// The rules in force.
    pub in_force: Option<RuleSet>,
    /// The judged rules with every limit as another algorithm.
    pub variants: Vec<Variant>,
}

impl RuleSets {
    /// The judged rules, the rules in force, the variants.
    pub(super) fn all(&self) -> impl Iterator<Item = &RuleSet> {
        let variants = self.variants.iter().map(|variant| &variant.rules);
        [&self.judged].into_iter().chain(&self.in_force).chain(variants)
    }
}
