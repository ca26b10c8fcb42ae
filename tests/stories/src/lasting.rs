//! Stories for a store whose clock nobody can set, as that of a Redis Cluster: its servers have their own time. All
//! periods are long, so the answers do not change while a story is played, except in the times that they tell.

use crate::answer::{Answer, Numbers};
use crate::model::answers;
use crate::play::Played;
use crate::story::{Node, RuleFile, Step, Story};

const SECOND_US: i64 = 1_000_000;

/// The story at this time, with months in place of each period, and without steps of the store's clock. In every second
/// one `shard_by` spreads the counters over more slots.
#[must_use]
pub fn lasting(story: &Story, now_us: u64) -> Story {
    let mut story = story.clone();
    let later_us = now_us.saturating_sub(story.start_us);
    story.start_us = now_us;
    let is_spread = story.seed % 2 == 1;
    lengthen(&mut story.rules, is_spread);
    story.steps.retain(|step| !matches!(step, Step::Clock(_)));
    for step in &mut story.steps {
        match step {
            Step::Rules(files) => lengthen(files, is_spread),
            Step::Rows(files) => {
                let rows = files.iter_mut().flat_map(|file| &mut file.rows);
                let times = rows.flat_map(|row| row.from.iter_mut().chain(&mut row.until));
                times.for_each(|time_us| *time_us += later_us);
            }
            Step::Call(call) => {
                for limit in call.descriptors.iter_mut().filter_map(|ask| ask.limit.as_mut()) {
                    limit.unit_multiplier = Some(months(&limit.unit));
                    limit.unit = "month".to_owned();
                }
            }
            Step::Clock(_) | Step::Skew { .. } => {}
        }
    }
    story
}

fn lengthen(files: &mut [RuleFile], is_spread: bool) {
    if is_spread {
        files.iter_mut().for_each(|file| file.shard_by = Some("descriptor".to_owned()));
    }
    let mut lengthen = |node: &mut Node| {
        for limit in node.limits_mut().filter(|limit| limit.calendar.is_none()) {
            if let Some(unit) = &mut limit.unit {
                limit.unit_multiplier = Some(months(unit));
                *unit = "month".to_owned();
            }
        }
    };
    files.iter_mut().flat_map(|file| &mut file.descriptors).for_each(|node| node.each_mut(&mut lengthen));
}

/// Different units stay different: two limits of one rule must not become equal.
fn months(unit: &str) -> u32 {
    match unit.to_lowercase().as_str() {
        "second" => 2,
        "minute" => 3,
        "hour" => 4,
        "day" => 5,
        "week" => 6,
        "month" => 8,
        _ => 12,
    }
}

/// Whether a second before each step changes nothing. It does where a window ends soon, or where a bucket gives back
/// several units in a second.
#[must_use]
pub fn lasts(story: &Story) -> bool {
    let mut slow = story.clone();
    slow.steps = story.steps.iter().flat_map(|step| [Step::Clock(SECOND_US), step.clone()]).collect();
    let timeless = |story| answers(story).into_iter().map(timeless).collect::<Vec<_>>();
    timeless(story) == timeless(&slow)
}

/// The answer without the times that it tells. A wait that never ends stays one.
#[must_use]
pub fn timeless(answer: Answer) -> Answer {
    let numbers = |numbers: Numbers| Numbers {
        retry_after_us: numbers.retry_after_us.map(|_| 0),
        reset_after_us: 0,
        next_after_us: 0,
        delay_us: 0,
        until_reset_us: 0,
        ..numbers
    };
    Answer {
        retry_after_us: answer.retry_after_us.map(|_| 0),
        charges: answer.charges.into_iter().map(numbers).collect(),
        ..answer
    }
}

/// What was played, without the times.
#[must_use]
pub fn timeless_played(played: Vec<Played>) -> Vec<Played> {
    let of_one = |played: Played| Played { answer: timeless(played.answer), ..played };
    played.into_iter().map(of_one).collect()
}
