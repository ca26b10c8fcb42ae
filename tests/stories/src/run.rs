//! Runs a check on many stories: a fixed number in each run of the tests, many at night.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::generate::story;
use crate::relations::{Broken, Checked};
use crate::shrink::shrink;
use crate::story::Story;

/// The number of stories that the environment asks for (`STORIES`), or the usual one.
#[must_use]
pub fn budget(usual: u64) -> u64 {
    number_of("STORIES").unwrap_or(usual)
}

#[expect(clippy::disallowed_methods, reason = "a test has no settings")]
fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Checks `count` random stories, from the seed in `STORIES_FROM` or from 0.
///
/// # Errors
/// The first story that fails, as small as it can be made, with its seed and the reason.
pub fn check_stories(count: u64, check: &mut dyn FnMut(&Story) -> Checked) -> Result<u64, String> {
    let mut checked = 0;
    let first = number_of("STORIES_FROM").unwrap_or(0);
    for seed in first..first + count {
        match outcome(&story(seed), check) {
            Ok(had_something) => checked += u64::from(had_something),
            Err(Broken::Unplayable(reason)) => {
                return Err(format!("story {seed} cannot be played: {reason}"));
            }
            Err(Broken::Differs(_)) => {
                let smallest = shrink(&story(seed), &mut |smaller| {
                    matches!(outcome(smaller, check), Err(Broken::Differs(_)))
                });
                return Err(report(&format!("story {seed}"), &smallest, check));
            }
        }
    }
    Ok(checked)
}

/// Checks known stories, lines of JSON. Returns those that fail, each with its line and the reason.
pub fn check_known(lines: &str, check: &mut dyn FnMut(&Story) -> Checked) -> Vec<String> {
    let numbered = (1..).zip(lines.lines()).filter(|(_, line)| !line.is_empty());
    let failure = |(number, line): (u32, &str)| match serde_json::from_str(line) {
        Ok(story) => outcome(&story, check).err().map(|_| report(&format!("line {number}"), &story, check)),
        Err(error) => Some(format!("line {number}: {error}")),
    };
    numbered.filter_map(failure).collect()
}

fn report(name: &str, story: &Story, check: &mut dyn FnMut(&Story) -> Checked) -> String {
    let reason =
        outcome(story, check).map_or_else(|broken| broken.to_string(), |_| "it passes now".to_owned());
    format!("{name}: {reason}\n{}", story.line())
}

/// A panic of the code under test breaks a relation, too.
fn outcome(story: &Story, check: &mut dyn FnMut(&Story) -> Checked) -> Checked {
    catch_unwind(AssertUnwindSafe(|| check(story))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Broken::Differs(format!("a panic: {}", text.unwrap_or_default())))
    })
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Differs(what) => f.write_str(what),
            Self::Unplayable(reason) => write!(f, "it cannot be played: {reason}"),
        }
    }
}
