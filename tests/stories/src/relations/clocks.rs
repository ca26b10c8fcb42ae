//! Processes with clocks that are wrong.

use std::collections::HashSet;

use super::{Checked, Play, random_of, same_answers};
use crate::story::{Limit, RuleFile, Step, Story};

const DAY_US: i64 = 86_400_000_000;

/// All windows of a calendar are equally long in the stories of this relation. Where they are not, only a clock that
/// is wrong by less than half a window changes nothing.
pub(super) fn two_clocks(story: &Story, play: Play<'_>) -> Checked {
    let mut right = story.clone();
    right.steps.retain(|step| !matches!(step, Step::Skew { .. }));
    let mut calendars = 0;
    even_windows(&mut right.rules, &mut calendars);
    for step in &mut right.steps {
        match step {
            Step::Rules(files) => even_windows(files, &mut calendars),
            // The clock of the process decides when a row starts and ends.
            Step::Rows(files) => {
                let rows = files.iter_mut().flat_map(|file| &mut file.rows);
                rows.for_each(|row| (row.from, row.until) = (None, None));
            }
            Step::Clock(_) | Step::Skew { .. } | Step::Call(_) => {}
        }
    }
    if calendars == 0 {
        return Ok(false);
    }
    let (mut random, mut wrong) = (random_of(story), right.clone());
    wrong.steps.clear();
    for step in &right.steps {
        if matches!(step, Step::Call(_)) && random.chance(40) {
            let days = random.pick(&[1, 2, 8, 40, 400]);
            let by_us =
                random.below(2 * days * DAY_US.unsigned_abs()).cast_signed() - days.cast_signed() * DAY_US;
            wrong.steps.push(Step::Skew { process: random.pick(&[0, 1]), by_us });
        }
        wrong.steps.push(step.clone());
    }
    same_answers(&play(&right)?, &play(&wrong)?, &HashSet::new())?;
    Ok(true)
}

fn even_windows(files: &mut [RuleFile], calendars: &mut u32) {
    let mut make_even = |limit: &mut Limit| {
        if limit.calendar.is_some() {
            *calendars += 1;
            limit.calendar = Some("UTC".to_owned());
            if limit.unit.as_deref() != Some("week") {
                (limit.unit, limit.starts) = (Some("day".to_owned()), None);
            }
        }
    };
    for node in files.iter_mut().flat_map(|file| &mut file.descriptors) {
        node.each_mut(&mut |node| {
            // Two limits of one rule could become equal.
            if node.limits().any(|limit| limit.calendar.is_some()) {
                node.rate_limits.truncate(1);
            }
            node.limits_mut().for_each(&mut make_even);
        });
    }
}
