//! Random changes of rules.

use super::Plot;
use crate::story::{Limit, Node, RuleFile};

impl Plot {
    /// The rules with some changes: of numbers mostly, also of tiers, modes and algorithms.
    pub(super) fn changed_rules(&mut self, rules: &[RuleFile]) -> Vec<RuleFile> {
        let mut rules = rules.to_vec();
        for node in rules.iter_mut().flat_map(|file| &mut file.descriptors) {
            node.each_mut(&mut |node| self.change_node(node));
        }
        rules
    }

    fn change_node(&mut self, node: &mut Node) {
        if self.random.chance(8) {
            node.shadow_mode = !node.shadow_mode;
        }
        if self.random.chance(2) && !node.tier {
            node.shard_by = Some("domain".to_owned());
        }
        let is_alone = node.limits().count() == 1;
        for limit in node.limits_mut().filter(|limit| !limit.unlimited) {
            self.change_limit(limit, is_alone);
        }
    }

    fn change_limit(&mut self, limit: &mut Limit, is_alone: bool) {
        match self.random.below(10) {
            0..3 if is_alone => self.change_number(limit),
            3 => limit.tiers.clear(),
            4 if limit.reserve.is_none() => {
                limit.settle = !limit.settle && limit.mode.as_deref() != Some("queue")
            }
            5 if is_alone && limit.calendar.is_none() && !limit.has_burst() => {
                limit.algorithm = Some(self.random.pick(&["sliding_window", "fixed_window"]).to_owned());
                limit.requests_per_unit = limit.requests_per_unit.map(|number| number.min(10_000));
            }
            _ => {}
        }
    }

    fn change_number(&mut self, limit: &mut Limit) {
        let number = self.random.pick(&[0, 1, 2, 5, 10, 20, 40]);
        // A bucket refills within ten years, also at one unit per year.
        let most = u32::try_from(9 * number).unwrap_or(u32::MAX);
        limit.burst = limit.burst.map(|burst| burst.min(most)).filter(|_| number > 1);
        limit.requests_per_unit = Some(number);
        if limit.reserve.is_some_and(|reserve| reserve > limit.burst.map_or(number, u64::from)) {
            limit.reserve = None;
        }
    }
}
