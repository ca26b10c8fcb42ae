//! Calls in parts: takes that are split, and settles in calls of their own.

use std::collections::{HashMap, HashSet};

use super::{ADDED, Broken, Checked, Play, call_mut, random_of, same, same_answers};
use crate::play::Played;
use crate::story::{Ask, Call, Returned, Step, Story};

pub(super) fn takes(story: &Story, play: Play<'_>) -> Checked {
    let whole = play(story)?;
    let by_id: HashMap<u32, &Played> = whole.iter().map(|played| (played.answer.id, played)).collect();
    let mut random = random_of(story);
    let (mut changed, mut story) = (HashSet::new(), story.clone());
    for call in story.steps.iter_mut().filter_map(call_mut) {
        if !by_id.get(&call.id).is_some_and(|played| may_split(call, played)) {
            continue;
        }
        let mut halves = Vec::new();
        for ask in call.descriptors.iter_mut().filter(|ask| ask.receipt.is_none() && !ask.refund) {
            let Some(hits) = ask.hits.filter(|hits| (2..1_000_000).contains(hits)) else { continue };
            let first = random.between(1, hits - 1);
            ask.hits = Some(first);
            halves.push(Ask { hits: Some(hits - first), ..ask.clone() });
        }
        if !halves.is_empty() {
            changed.insert(call.id);
            call.descriptors.extend(halves);
        }
    }
    let split = play(&story)?;
    let of_id: HashMap<u32, &Played> = split.iter().map(|played| (played.answer.id, played)).collect();
    for id in &changed {
        let (Some(whole), Some(split)) = (by_id.get(id), of_id.get(id)) else { continue };
        let what = |what: &str| format!("{what} of call {id} with split takes");
        same(&what("code"), &whole.answer.is_over, &split.answer.is_over)?;
        same(&what("wait"), &whole.answer.retry_after_us, &split.answer.retry_after_us)?;
        if whole.facts.iter().all(|fact| fact.is_prepaid || fact.is_settle) {
            same(&what("numbers"), &whole.answer.charges, &split.answer.charges)?;
        }
    }
    same_answers(&whole, &split, &changed)?;
    Ok(!changed.is_empty())
}

/// A reserve books each charge by itself, a quota descriptor is a group by itself, and postpaid charges are told in
/// turn: refunds and checks among them see a part.
fn may_split(call: &Call, played: &Played) -> bool {
    let takes_only =
        call.descriptors.iter().all(|ask| ask.receipt.is_some() || !ask.refund && ask.hits != Some(0));
    let mut charges = played.facts.iter().filter(|fact| !fact.is_settle);
    charges.all(|fact| {
        !fact.has_reserve && (fact.is_prepaid || takes_only && !fact.is_quota && !fact.has_settle)
    })
}

pub(super) fn settles(story: &Story, play: Play<'_>) -> Checked {
    if has_replaces(story) {
        // A limit that a settle meets can replace one that another descriptor meets.
        return Ok(false);
    }
    let (mut changed, mut apart) = (HashSet::new(), story.clone());
    apart.steps.clear();
    for step in &story.steps {
        match step {
            Step::Call(call) if may_be_apart(call) => {
                changed.insert(call.id);
                apart.steps.extend(apart_calls(call).map(Step::Call));
            }
            _ => apart.steps.push(step.clone()),
        }
    }
    let (together, apart) = (play(story)?, play(&apart)?);
    for played in together.iter().filter(|played| changed.contains(&played.answer.id)) {
        compare_settles(played, &apart)?;
    }
    same_answers(&together, &apart, &changed)?;
    Ok(!changed.is_empty())
}

fn has_replaces(story: &Story) -> bool {
    story.line().contains("\"replaces\"")
}

/// Two settles with one receipt are one settle, with the larger cost.
fn may_be_apart(call: &Call) -> bool {
    let receipts: Vec<_> = call.descriptors.iter().filter_map(|ask| ask.receipt.as_ref()).collect();
    let is_readable =
        |receipt: &Returned| !matches!(receipt, Returned::Text(text) if text.starts_with("junk"));
    let readable: Vec<_> = receipts.iter().filter(|receipt| is_readable(receipt)).collect();
    let is_repeated = (1..readable.len()).any(|index| readable[..index].contains(&readable[index]));
    !receipts.is_empty() && call.descriptors.len() > 1 && !is_repeated
}

fn apart_calls(call: &Call) -> impl Iterator<Item = Call> {
    let (settles, others): (Vec<_>, Vec<_>) =
        call.descriptors.iter().cloned().partition(|ask| ask.receipt.is_some());
    let alone = |(index, ask): (u32, Ask)| Call {
        id: ADDED + call.id * 100 + index,
        descriptors: vec![ask],
        ..call.clone()
    };
    let settles: Vec<_> = (0..).zip(settles).map(alone).collect();
    let others = Some(others).filter(|others| !others.is_empty());
    settles.into_iter().chain(others.map(|descriptors| Call { descriptors, ..call.clone() }))
}

fn compare_settles(together: &Played, apart: &[Played]) -> Result<(), Broken> {
    let id = together.answer.id;
    let is_part = |played: &&Played| {
        played.answer.id == id || played.answer.id.checked_sub(ADDED).is_some_and(|added| added / 100 == id)
    };
    let parts: Vec<_> = apart.iter().filter(is_part).collect();
    let settles = |played: &Played| -> Vec<_> {
        let charges = played.answer.charges.iter().zip(&played.facts);
        charges.filter(|(_, fact)| fact.is_settle).map(|(numbers, _)| numbers.clone()).collect()
    };
    let others = |played: &Played| -> Vec<_> {
        let charges = played.answer.charges.iter().zip(&played.facts);
        charges.filter(|(_, fact)| !fact.is_settle).map(|(numbers, _)| numbers.clone()).collect()
    };
    let alone: Vec<_> = parts.iter().flat_map(|played| settles(played)).collect();
    same(&format!("the settles of call {id}, together and alone"), &settles(together), &alone)?;
    let rest: Vec<_> = parts.iter().flat_map(|played| others(played)).collect();
    same(
        &format!("the other charges of call {id}, beside settles and without them"),
        &others(together),
        &rest,
    )
}
