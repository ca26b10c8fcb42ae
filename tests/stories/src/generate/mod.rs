//! Random stories. A seed is a story: rules with every key of rule files, calls with several descriptors, receipts,
//! exceptions, changed rules, and clocks that step.

mod calls;
mod edits;
mod limits;
mod nodes;

use crate::random::Random;
use crate::story::{Row, RowFile, RuleFile, Step, Story};

/// A minute boundary in 2023, microseconds since the epoch.
const START_US: u64 = 1_700_000_040_000_000;
const SECOND_US: u64 = 1_000_000;
const DAY_US: u64 = 86_400 * SECOND_US;
const MAX_STEPS: u64 = 28;

/// Units of time with their lengths: weight, name, microseconds.
const UNITS: [(u64, (&str, u64)); 8] = [
    (20, ("second", SECOND_US)),
    (5, ("SECOND", SECOND_US)),
    (30, ("minute", 60 * SECOND_US)),
    (10, ("Hour", 3_600 * SECOND_US)),
    (12, ("day", DAY_US)),
    (8, ("week", 7 * DAY_US)),
    (12, ("month", 30 * DAY_US)),
    (4, ("year", 365 * DAY_US)),
];

/// What the limits, the calls and the clock of one story have in common.
struct Plot {
    random: Random,
    /// The usual period of its limits.
    unit: &'static str,
    period_us: u64,
    /// The number of limits with a name.
    names: u64,
    /// Entries that calls repeat, so that their counters are used up.
    pool: Vec<Vec<(String, String)>>,
    /// The calls before, newest last: id and entries of a descriptor.
    called: Vec<(u32, Vec<(String, String)>)>,
}

/// The story of a seed.
#[must_use]
pub fn story(seed: u64) -> Story {
    let mut random = Random::with_seed(seed);
    let (unit, period_us) = random.weighted(&UNITS);
    let mut plot = Plot { random, unit, period_us, names: 0, pool: Vec::new(), called: Vec::new() };
    let start_us = START_US + plot.random.below(3 * period_us.min(DAY_US));
    let rules = plot.rule_files();
    let mut story = Story { seed, start_us, rules, steps: Vec::new() };
    for id in 0..plot.random.between(4, MAX_STEPS) {
        let step = match plot.random.below(100) {
            0..56 => Step::Call(plot.call(u32::try_from(id).unwrap_or_default())),
            56..80 => Step::Clock(plot.clock_step()),
            80..84 => plot.skew(),
            84..94 => Step::Rows(plot.row_files()),
            _ => Step::Rules(plot.changed_rules(last_rules(&story))),
        };
        story.steps.push(step);
    }
    story
}

/// The rules in force at the end of a story.
fn last_rules(story: &Story) -> &[RuleFile] {
    let changes = story.steps.iter().rev().filter_map(|step| match step {
        Step::Rules(rules) => Some(rules),
        Step::Clock(_) | Step::Skew { .. } | Step::Rows(_) | Step::Call(_) => None,
    });
    changes.chain([&story.rules]).next().map_or(&[], Vec::as_slice)
}

impl Plot {
    fn clock_step(&mut self) -> i64 {
        let period_us = self.period_us;
        let us = match self.random.below(100) {
            0..25 => self.random.below(period_us / 100 + 1),
            25..65 => self.random.below(period_us),
            65..78 => period_us / 10 * self.random.between(1, 10),
            78..84 => period_us,
            84..88 => self.random.below(3 * period_us),
            88..92 => 1,
            // A store knows three boundaries of a calendar: the length of a window further ahead is not among them.
            92..97 => return -self.random.below(period_us / 4 + 1).cast_signed(),
            _ if period_us < DAY_US => return -self.random.below(2 * period_us).cast_signed(),
            _ => 0,
        };
        us.cast_signed()
    }

    /// An error of a process's clock below half of the shortest window of a calendar with this unit.
    fn skew(&mut self) -> Step {
        let most_us = (self.period_us / 5 * 2).cast_signed();
        let by_us = self.random.below(self.period_us / 5 * 4 + 1).cast_signed() - most_us;
        Step::Skew { process: self.random.pick(&[0, 1]), by_us }
    }

    fn row_files(&mut self) -> Vec<RowFile> {
        if self.random.chance(20) {
            return Vec::new();
        }
        let mut files: Vec<RowFile> = Vec::new();
        for name in ["a.csv", "b.yaml", "c.yaml"] {
            let count = self.random.weighted(&[(4, 0), (4, 1), (2, 2), (1, 3)]);
            let rows = (0..count).map(|_| self.row(name.ends_with("csv"))).collect::<Vec<_>>();
            if !rows.is_empty() {
                files.push(RowFile { name: name.to_owned(), rows });
            }
        }
        files
    }

    fn row(&mut self, is_csv: bool) -> Row {
        let entries = self.random.pick(&self.pool);
        let (key, value) = self.random.pick(&entries);
        let domain = self.random.pick(&["d", "d", "*", "e"]).to_owned();
        let tier = Some(self.random.pick(&limits::TIERS).to_owned());
        // A row has a value.
        let value = if value.is_empty() { "v1".to_owned() } else { value };
        let row = Row { domain, key, value, ..Row::default() };
        if is_csv {
            return Row { tier, ..row };
        }
        let mut row = match self.random.below(10) {
            0..3 => Row { tier, ..row },
            3..5 => Row { limit: Some(self.random.pick(&[0, 1, 2, 5, 10, 20])), ..row },
            5..8 => Row { multiplier: Some(self.random.pick(&[2.0, 0.5, 0.1, 10.0, 0.3])), ..row },
            8 => Row { block: true, ..row },
            _ => Row { exempt: true, ..row },
        };
        if !row.block && !row.exempt {
            row.shadow_mode = self.random.chance(20).then(|| self.random.chance(50));
            let mut time =
                || self.random.chance(15).then(|| START_US + self.random.below(20 * self.period_us));
            (row.from, row.until) = (time(), time());
        }
        if self.random.chance(35) {
            row.limit_name = Some(format!("limit{}", self.random.between(1, self.names.max(1))));
        }
        if self.random.chance(10) {
            row.path = Some(self.random.pick(&["*tenant*", "tenant", "*.plan", "user*"]).to_owned());
        }
        row
    }
}
