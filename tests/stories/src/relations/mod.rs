//! What must not change the answers of a story. Each relation changes a story, plays both, and compares. None needs
//! to know what the answers are.

mod clocks;
mod edits;
mod frame;
mod order;
mod split;

use std::collections::HashSet;
use std::fmt::Debug;

use crate::answer::Answer;
use crate::play::{Played, Unplayable};
use crate::random::Random;
use crate::story::{Call, Row, RowFile, Step, Story};

/// Plays a story on unused counters.
pub type Play<'p> = &'p mut dyn FnMut(&Story) -> Result<Vec<Played>, Unplayable>;

/// A relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Takes a and b of one counter in one call are one take of a + b, whatever stands between them.
    SplitTakes,
    /// A settle in a call is the same settle in a call of its own.
    SettlesAlone,
    /// Limits of 0, blocks, and other numbers under which nothing is taken are as if they had never been.
    NeutralEdit,
    /// An estimate that is settled with 0 leaves what was before it, whatever the number was at the settle.
    ReturnedEstimate,
    /// What a reservation gives back is at most what it took, whatever the number was at the charge.
    BoundedReserve,
    /// The clocks of the processes do not matter: all answers are by the clock of the store.
    TwoClocks,
    /// A row for one limit changes no number of another one.
    Frame,
    /// The order of the descriptors does not matter.
    Permutation,
}

/// Why a relation is not kept.
#[derive(Clone, Debug)]
pub enum Broken {
    /// The answers differ: what and how.
    Differs(String),
    Unplayable(String),
}

impl From<Unplayable> for Broken {
    fn from(Unplayable(reason): Unplayable) -> Self {
        Self::Unplayable(reason)
    }
}

/// Whether the relation had something to change in the story.
pub type Checked = Result<bool, Broken>;

impl Relation {
    pub const ALL: [Self; 8] = [
        Self::SplitTakes,
        Self::SettlesAlone,
        Self::NeutralEdit,
        Self::ReturnedEstimate,
        Self::BoundedReserve,
        Self::TwoClocks,
        Self::Frame,
        Self::Permutation,
    ];

    /// Checks the relation in one story.
    ///
    /// # Errors
    /// [`Broken`] if it is not kept, or if the story cannot be played.
    pub fn check(self, story: &Story, play: Play<'_>) -> Checked {
        match self {
            Self::SplitTakes => split::takes(story, play),
            Self::SettlesAlone => split::settles(story, play),
            Self::NeutralEdit => edits::neutral_edit(story, play),
            Self::ReturnedEstimate => edits::returned_estimate(story, play),
            Self::BoundedReserve => edits::bounded_reserve(story, play),
            Self::TwoClocks => clocks::two_clocks(story, play),
            Self::Frame => frame::frame(story, play),
            Self::Permutation => order::permutation(story, play),
        }
    }
}

/// Ids of calls that a relation adds are this and above.
const ADDED: u32 = 1_000_000;

fn random_of(story: &Story) -> Random {
    Random::with_seed(story.seed ^ 0x5EED)
}

/// The answers of the calls of the story itself, not those of added calls.
fn own(played: &[Played]) -> impl Iterator<Item = &Answer> {
    played.iter().map(|played| &played.answer).filter(|answer| answer.id < ADDED)
}

fn same<T: PartialEq + Debug>(what: &str, before: &T, after: &T) -> Result<(), Broken> {
    if before == after {
        return Ok(());
    }
    Err(Broken::Differs(format!("{what}\n  {before:?}\n  {after:?}")))
}

/// That all answers are the same, except those of `changed` calls.
fn same_answers(before: &[Played], after: &[Played], changed: &HashSet<u32>) -> Result<(), Broken> {
    let rest = |played: &[Played]| -> Vec<Answer> {
        own(played).filter(|answer| !changed.contains(&answer.id)).cloned().collect()
    };
    for (before, after) in rest(before).iter().zip(&rest(after)) {
        same(&format!("the answer to call {}", before.id), before, after)?;
    }
    same("the number of answers", &rest(before).len(), &rest(after).len())
}

fn call_mut(step: &mut Step) -> Option<&mut Call> {
    if let Step::Call(call) = step { Some(call) } else { None }
}

fn calls(story: &Story) -> impl Iterator<Item = &Call> {
    story.steps.iter().filter_map(|step| if let Step::Call(call) = step { Some(call) } else { None })
}

/// The rules and the rows in force after the first `count` steps.
fn in_force(story: &Story, count: usize) -> (Step, Step) {
    let mut in_force = (Step::Rules(story.rules.clone()), Step::Rows(Vec::new()));
    for step in &story.steps[..count] {
        match step {
            Step::Rules(_) => in_force.0 = step.clone(),
            Step::Rows(_) => in_force.1 = step.clone(),
            Step::Clock(_) | Step::Skew { .. } | Step::Call(_) => {}
        }
    }
    in_force
}

/// Rows of one file, each for the first entry of one of `asks`.
fn rows_for(entries: &[Vec<(String, String)>], row: &Row) -> Step {
    let rows = entries.iter().filter_map(|entries| {
        let (key, value) = entries.first().filter(|(_, value)| !value.is_empty())?.clone();
        Some(Row { domain: "*".to_owned(), key, value, ..row.clone() })
    });
    Step::Rows(vec![RowFile { name: "z.yaml".to_owned(), rows: rows.collect() }])
}
