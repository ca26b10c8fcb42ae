//! Counts decisions by limit, by minute and by key.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{Calendar, Limit, LimitSpec, SpaceSaving};

use super::agreement::AgreementTally;
use super::counters::{Decided, Decisions};
use super::key_table::{KeyTable, key_hash};
use super::minutes::MinuteCounts;
use super::options::RuleSets;
use super::planned::{Counter, Observation};
use super::positions::Histogram;
use super::sweep::Sweep;

/// Keys per limit whose denials are counted once not every key has a slot.
const HEAVY_KEYS: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Row {
    /// Period of the candidate limit, or of the current one if only the current rules have the limit.
    pub period_s: u64,
    pub calendar: Option<Arc<Calendar>>,
    pub asked: u64,
    pub units: u64,
    pub good_asked: u64,
    pub good_over: u64,
    pub asked_by_minute: MinuteCounts,
    pub over: MinuteCounts,
    /// Counts of the current limit with the same label.
    pub in_force_asked: u64,
    pub in_force_over: MinuteCounts,
    pub variants: Vec<VariantCounts>,
    /// Requests by the units of their key in the window of the limit's period, including their own: those above a value
    /// would be over a limit of that value.
    pub positions: Histogram,
    pub good_positions: Histogram,
    /// `true` if another limit denied a request that was not over this one.
    pub has_other_denials: bool,
    /// `true` if a request cost other than one unit.
    pub has_costs: bool,
    pub heavy: SpaceSaving<HEAVY_KEYS>,
    /// `true` if the limit, which may be unlimited, applied to a request.
    pub is_met: bool,
    /// `true` if a counter of the limit got part of its requests.
    pub is_thinned: bool,
}

/// One limit as one algorithm.
#[derive(Debug, Default)]
pub(super) struct VariantCounts {
    pub asked: u64,
    pub over: MinuteCounts,
}

/// Counts over all limits.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub requests: u64,
    pub denied: u64,
    pub shadow_denied: u64,
    pub without_limit: u64,
    pub good: u64,
    pub good_denied: u64,
    /// First and last time.
    pub span_us: Option<(u64, u64)>,
    /// `[current rules deny][candidate rules deny]`.
    pub compared: [[MinuteCounts; 2]; 2],
    pub good_only_judged: u64,
}

/// All counts of a pass.
#[derive(Debug)]
pub(super) struct Tally {
    /// By id of the candidate limit; then a row for overrides; then limits that only the current rules have.
    pub rows: Vec<Row>,
    pub keys: KeyTable,
    pub sums: Sums,
    /// If requested.
    pub sweep: Option<Sweep>,
    /// If the log has decisions.
    pub agreement: Option<AgreementTally>,
    /// The row of each current limit.
    in_force_rows: Vec<usize>,
}

/// A label and how many earlier limits have it: the limits of one rule without names share a label.
type LabelUse<'r> = (&'r str, usize);

fn label_uses(limits: &[Arc<Limit>]) -> impl Iterator<Item = LabelUse<'_>> {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    limits.iter().map(move |limit| {
        let before = uses.entry(&limit.label).or_default();
        *before += 1;
        (&*limit.label, *before - 1)
    })
}

impl Tally {
    pub fn new(rules: &RuleSets, sweeps: bool) -> Self {
        let variants = || rules.variants.iter().map(|_| VariantCounts::default()).collect();
        let judged = rules.judged.limits();
        let mut rows: Vec<Row> =
            judged.iter().map(|limit| Row { variants: variants(), ..Row::of_limit(&limit.spec) }).collect();
        // Overrides have different periods, so their keys have no window of their own.
        rows.push(Row { period_s: 60, variants: variants(), ..Row::default() });
        let mut in_force_rows = Vec::new();
        if let Some(in_force) = &rules.in_force {
            let by_label: HashMap<LabelUse<'_>, usize> =
                label_uses(judged).enumerate().map(|(row, label)| (label, row)).collect();
            for (limit, label) in in_force.limits().iter().zip(label_uses(in_force.limits())) {
                in_force_rows.push(by_label.get(&label).copied().unwrap_or_else(|| {
                    rows.push(Row::of_limit(&limit.spec));
                    rows.len() - 1
                }));
            }
            // The row of overrides.
            in_force_rows.push(judged.len());
        }
        let mut tally = Self {
            rows,
            keys: KeyTable::new(),
            sums: Sums::default(),
            sweep: None,
            agreement: None,
            in_force_rows,
        };
        tally.sweep = sweeps.then(|| Sweep::new(rules, |row| tally.limit_in_force(rules, row)));
        tally
    }

    /// The current limit with the label of a candidate.
    pub fn limit_in_force<'r>(&self, rules: &'r RuleSets, row: usize) -> Option<&'r Limit> {
        let limits = rules.in_force.as_ref()?.limits();
        let position = self.in_force_rows.iter().position(|found| *found == row)?;
        limits.get(position).map(|limit| &**limit)
    }

    /// `true` if the limit applied to a request. An unlimited one is only counted.
    pub fn has_report(&self, index: usize, limit: &Limit) -> bool {
        self.rows[index].asked > 0 && !limit.spec.unlimited
    }

    /// Counts the decisions about one request.
    pub fn count(&mut self, seen: Observation, decisions: &Decisions<'_>) {
        let judged = &decisions.judged;
        for limit in &judged.plan.unlimited {
            self.rows[*limit].is_met = true;
        }
        let mut is_quietly_over = false;
        for counter in &judged.plan.counters {
            is_quietly_over |= counter.never_denies && judged.is_over(counter.charge);
            self.count_judged(seen, judged, counter);
        }
        self.sums.without_limit += u64::from(!judged.plan.has_limit());
        self.sums.shadow_denied += u64::from(is_quietly_over && !judged.is_denied);
        self.sums.count(seen, decisions);
        if let Some(in_force) = &decisions.in_force {
            for counter in &in_force.plan.counters {
                if let Some(row) = self.in_force_rows.get(counter.limit).copied() {
                    self.count_in_force(seen, row, in_force, counter);
                }
            }
        }
        for (variant, decided) in decisions.variants.iter().enumerate() {
            self.count_variant(seen, variant, decided);
        }
    }

    fn count_judged(&mut self, seen: Observation, judged: &Decided<'_>, counter: &Counter) {
        let (plan, index) = (judged.plan, counter.limit);
        let key = plan.key(counter);
        let (is_over, units) =
            (judged.is_over(counter.charge), plan.charges.charge(counter.charge).cost.taken());
        let row = &mut self.rows[index];
        row.is_met = true;
        row.is_thinned |= counter.is_thinned;
        row.asked += 1;
        row.units += units;
        row.good_asked += u64::from(seen.is_good);
        row.asked_by_minute.count(seen.t_us);
        row.has_other_denials |= judged.is_denied && !is_over;
        row.has_costs |= units != 1;
        if is_over {
            row.good_over += u64::from(seen.is_good);
            row.over.count(seen.t_us);
            row.heavy.count(key, || ());
        }
        let hash = key_hash(index, key);
        let over_at = match &mut self.sweep {
            Some(sweep) if counter.has_rule_number => sweep.count(hash, plan, counter, seen),
            _ => 0,
        };
        let Some(statistics) = self.keys.entry(index, hash) else { return };
        statistics.over_at |= over_at;
        statistics.has_rule_number |= counter.has_rule_number;
        statistics.asked = statistics.asked.saturating_add(1);
        statistics.units += units;
        statistics.count_verdict(is_over, seen.is_good, seen.t_us, key);
        if units > 0 {
            let position = statistics.peaks.add(seen.t_us, row.window(seen.t_us), units);
            if !counter.has_rule_number {
                return;
            }
            let weight = self.keys.weight();
            row.positions.add(position, weight);
            if seen.is_good {
                row.good_positions.add(position, weight);
            }
        }
    }

    fn count_in_force(&mut self, seen: Observation, index: usize, in_force: &Decided<'_>, counter: &Counter) {
        let row = &mut self.rows[index];
        row.in_force_asked += 1;
        if in_force.is_over(counter.charge) {
            row.in_force_over.count(seen.t_us);
            let key = in_force.plan.key(counter);
            if let Some(statistics) = self.keys.entry(index, key_hash(index, key)) {
                statistics.denials_mut(key).in_force_over += 1;
            }
        }
    }

    fn count_variant(&mut self, seen: Observation, variant: usize, decided: &Decided<'_>) {
        for counter in &decided.plan.counters {
            let index = counter.limit;
            let Some(counts) = self.rows.get_mut(index).and_then(|row| row.variants.get_mut(variant)) else {
                continue;
            };
            counts.asked += 1;
            if decided.is_over(counter.charge) {
                counts.over.count(seen.t_us);
                let key = decided.plan.key(counter);
                if let Some(statistics) = self.keys.entry(index, key_hash(index, key)) {
                    statistics.denials_mut(key).over_by_variant[variant] += 1;
                }
            }
        }
    }
}

impl Row {
    fn of_limit(limit: &LimitSpec) -> Self {
        Self { period_s: limit.period.seconds(), calendar: limit.calendar.clone(), ..Self::default() }
    }

    /// The number of the limit's window at a time: in a calendar, its start in seconds since the epoch.
    fn window(&self, t_us: u64) -> u64 {
        match &self.calendar {
            Some(calendar) => calendar.window(t_us).0 / 1_000_000,
            None => t_us / 1_000_000 / self.period_s.max(1),
        }
    }
}

impl Sums {
    fn count(&mut self, seen: Observation, decisions: &Decisions<'_>) {
        let is_denied = decisions.judged.is_denied;
        self.requests += 1;
        self.denied += u64::from(is_denied);
        self.good += u64::from(seen.is_good);
        self.good_denied += u64::from(seen.is_good && is_denied);
        let (first_us, _) = self.span_us.unwrap_or((seen.t_us, seen.t_us));
        self.span_us = Some((first_us, seen.t_us));
        let Some(in_force) = &decisions.in_force else { return };
        let in_force_denies = in_force.is_denied;
        self.compared[usize::from(in_force_denies)][usize::from(is_denied)].count(seen.t_us);
        self.good_only_judged += u64::from(seen.is_good && is_denied && !in_force_denies);
    }
}
