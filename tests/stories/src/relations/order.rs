//! The order of the descriptors of a call.

use std::collections::{HashMap, HashSet};

use super::{Checked, Play, call_mut, same, same_answers};
use crate::answer::Answer;
use crate::play::{Fact, Played};
use crate::story::Story;

pub(super) fn permutation(story: &Story, play: Play<'_>) -> Checked {
    let before = play(story)?;
    let by_id: HashMap<u32, &Played> = before.iter().map(|played| (played.answer.id, played)).collect();
    let (mut changed, mut turned) = (HashSet::new(), story.clone());
    for call in turned.steps.iter_mut().filter_map(call_mut).filter(|call| call.descriptors.len() > 1) {
        if by_id.get(&call.id).is_some_and(|played| is_without_turns(&played.facts)) {
            call.descriptors.reverse();
            changed.insert(call.id);
        }
    }
    let after = play(&turned)?;
    for played in after.iter().filter(|played| changed.contains(&played.answer.id)) {
        let Some(before) = by_id.get(&played.answer.id) else { continue };
        let (mut turned, answer) = (without_order(played), without_order(before));
        turned.statuses.reverse();
        same(&format!("the answer to call {}, descriptors in reverse", answer.id), &answer, &turned)?;
    }
    same_answers(&before, &after, &changed)?;
    Ok(!changed.is_empty())
}

/// The answer with its charges in one order. All limits of 0 that stand for one counter are one charge, which has the
/// label of the first of them: the statuses have the labels of all.
fn without_order(played: &Played) -> Answer {
    let mut answer = played.answer.clone();
    for (numbers, fact) in answer.charges.iter_mut().zip(&played.facts) {
        if fact.kind == "blocked" {
            numbers.label.clear();
        }
    }
    answer.charges.sort();
    answer
}

/// Whether no two charges are told in turn: postpaid ones of one counter, settles of one counter, and limits with
/// other numbers on one counter, of which the second gets its numbers into its key. The charges of a limit with
/// `reserve` are apart unless a check is among them.
fn is_without_turns(facts: &[Fact]) -> bool {
    let is_alone = |index: usize| {
        let fact = &facts[index];
        let mut others = facts[..index].iter().filter(|other| other.is_settle == fact.is_settle);
        let is_booked = fact.has_reserve;
        !is_booked
            && !others.any(|other| other.key.starts_with(&fact.key) || fact.key.starts_with(&other.key))
    };
    (0..facts.len()).all(is_alone)
}
