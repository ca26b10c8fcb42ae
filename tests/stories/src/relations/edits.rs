//! Rules and rows that change for a moment: what is used stays as it was.

use std::collections::HashSet;

use super::{ADDED, Broken, Checked, Play, Random, calls, in_force, random_of, rows_for, same, same_answers};
use crate::play::Played;
use crate::story::{Ask, Call, Limit, Returned, Row, RuleFile, Step, Story};

/// Adds steps in the middle of a story, and plays both.
fn with_steps(story: &Story, at: usize, steps: Vec<Step>, play: Play<'_>) -> Result<Vec<Played>, Broken> {
    let mut story = story.clone();
    story.steps.splice(at..at, steps);
    Ok(play(&story)?)
}

fn place(story: &Story, random: &mut Random) -> usize {
    usize::try_from(random.below(story.steps.len() as u64 + 1)).unwrap_or_default()
}

/// Some descriptors of the story without receipts and limits of their own.
fn some_asks(story: &Story, random: &mut Random) -> Vec<Ask> {
    let in_domain = calls(story).filter(|call| call.domain == "d");
    let asks: Vec<_> = in_domain.flat_map(|call| &call.descriptors).filter(|ask| has_row(ask)).collect();
    if asks.is_empty() {
        return Vec::new();
    }
    let mut some = || Ask { limit: None, receipt: None, ..random.pick(&asks).clone() };
    vec![some(), some()]
}

/// Whether a row can name the first entry: it needs a value.
fn has_row(ask: &Ask) -> bool {
    ask.entries.first().is_some_and(|(_, value)| !value.is_empty())
}

fn call(id: u32, ask: Ask) -> Step {
    Step::Call(Call { id: ADDED + id, domain: "d".to_owned(), descriptors: vec![ask], ..Call::default() })
}

/// The rules with another number in each limit.
fn with_numbers(rules: &Step, number: impl Fn(&mut Limit)) -> Step {
    let Step::Rules(files) = rules else { return rules.clone() };
    let mut files: Vec<RuleFile> = files.clone();
    for node in files.iter_mut().flat_map(|file| &mut file.descriptors) {
        node.each_mut(&mut |node| node.limits_mut().filter(|limit| !limit.unlimited).for_each(&number));
    }
    Step::Rules(files)
}

fn to_zero(limit: &mut Limit) {
    limit.requests_per_unit = Some(0);
    limit.tiers.clear();
    (limit.burst, limit.reserve) = (None, None);
}

pub(super) fn neutral_edit(story: &Story, play: Play<'_>) -> Checked {
    let mut random = random_of(story);
    let at = place(story, &mut random);
    let (rules, rows) = in_force(story, at);
    let asks = some_asks(story, &mut random);
    let entries: Vec<_> = asks.iter().map(|ask| ask.entries.clone()).collect();
    let peeks = asks.iter().map(|ask| Ask { hits: Some(0), refund: false, ..ask.clone() }).collect();
    let (edit, asks) = match random.below(4) {
        0 => (vec![rows_for(&entries, &Row { limit: Some(0), ..Row::default() })], asks),
        1 => (vec![rows_for(&entries, &Row { block: true, ..Row::default() })], asks),
        // Two limits of one rule that are both 0 would be the same limit.
        2 if !story.line().contains("\"rate_limits\"") => {
            (vec![Step::Rows(Vec::new()), with_numbers(&rules, to_zero)], asks)
        }
        // With `reserve` a check takes units.
        _ if story.line().contains("\"reserve\"") => return Ok(false),
        _ => (vec![rows_for(&entries, &Row { multiplier: Some(10.0), ..Row::default() })], peeks),
    };
    let made = (0..).zip(asks).map(|(id, ask)| call(id, ask));
    let steps = edit.into_iter().chain(made).chain([rules, rows]).collect();
    let (before, after) = (play(story)?, with_steps(story, at, steps, play)?);
    same_answers(&before, &after, &HashSet::new())?;
    Ok(true)
}

/// Another number, and the way back.
fn other_number(
    story: &Story,
    at: usize,
    entries: &[(String, String)],
    random: &mut Random,
) -> (Vec<Step>, Vec<Step>) {
    let (rules, rows) = in_force(story, at);
    let row = match random.below(3) {
        0 => Row { tier: Some(random.pick(&["pro", "low"]).to_owned()), ..Row::default() },
        _ => Row { multiplier: Some(random.pick(&[0.1, 0.5, 2.0, 10.0])), ..Row::default() },
    };
    let edit = match random.below(4) {
        0 => with_numbers(&rules, |limit| {
            limit.requests_per_unit = limit.requests_per_unit.map(|number| (2 * number).min(10_000));
        }),
        _ => rows_for(&[entries.to_vec()], &row),
    };
    (vec![edit], vec![rules, rows])
}

pub(super) fn returned_estimate(story: &Story, play: Play<'_>) -> Checked {
    let mut random = random_of(story);
    let at = place(story, &mut random);
    let Some(ask) = some_asks(story, &mut random).into_iter().next() else { return Ok(false) };
    let estimate = Ask { hits: Some(random.between(1, 8)), refund: false, ..ask };
    let (edit, back) = other_number(story, at, &estimate.entries, &mut random);
    let settle = Ask { hits: Some(0), receipt: Some(Returned::Of(ADDED)), ..estimate.clone() };
    let steps = [vec![call(0, estimate)], edit, vec![call(1, settle)], back].concat();
    let (before, after) = (play(story)?, with_steps(story, at, steps, play)?);
    let added = |id: u32| after.iter().find(|played| played.answer.id == ADDED + id);
    let (Some(estimate), Some(settle)) = (added(0), added(1)) else { return Ok(false) };
    let is_exact =
        before.iter().chain(&after).all(|played| played.facts.iter().all(|fact| is_whole(&fact.kernel)));
    if !is_exact || !is_returned(estimate, settle) {
        return Ok(false);
    }
    same_answers(&before, &after, &HashSet::new())?;
    Ok(true)
}

/// Whether all that the estimate took was settled on its counters.
fn is_returned(estimate: &Played, settle: &Played) -> bool {
    let is_taken = estimate.answer.charges.iter().all(|numbers| !numbers.is_over) && !estimate.answer.is_over;
    let is_plain = estimate.facts.iter().all(|fact| fact.has_settle && !fact.has_reserve);
    let keys = |played: &Played| played.facts.iter().map(|fact| fact.key.clone()).collect::<Vec<_>>();
    is_taken && is_plain && keys(estimate) == keys(settle)
}

/// Whether a unit drains in whole microseconds, so that another number rounds nothing: `gc:PERIOD/LIMIT/BURST`.
fn is_whole(kernel: &str) -> bool {
    let Some(numbers) = kernel.strip_prefix("gc:") else { return true };
    let mut numbers = numbers.split('/').map(|number| number.parse::<u64>().unwrap_or(1));
    matches!((numbers.next(), numbers.next()), (Some(period), Some(limit)) if period % limit == 0)
}

pub(super) fn bounded_reserve(story: &Story, play: Play<'_>) -> Checked {
    if !story.line().contains("\"reserve\"") {
        return Ok(false);
    }
    let mut random = random_of(story);
    let at = place(story, &mut random);
    let Some(ask) = some_asks(story, &mut random).into_iter().next() else { return Ok(false) };
    let (edit, back) = other_number(story, at, &ask.entries, &mut random);
    let look = Ask { hits: Some(0), refund: true, ..ask.clone() };
    let check = Ask { hits: Some(0), refund: false, ..ask.clone() };
    let charge = Ask { hits: Some(random.between(1, 6)), refund: false, ..ask };
    let steps =
        [vec![call(0, look.clone()), call(1, check)], edit, vec![call(2, charge)], back, vec![call(3, look)]];
    let played = with_steps(story, at, steps.concat(), play)?;
    let added = |id: u32| played.iter().find(|played| played.answer.id == ADDED + id);
    let (Some(before), Some(check), Some(after)) = (added(0), added(1), added(3)) else { return Ok(false) };
    let is_reserved = check.facts.iter().all(|fact| fact.has_reserve);
    let is_taken = check.answer.charges.iter().all(|numbers| !numbers.is_over) && !check.answer.is_over;
    if !is_reserved || !is_taken || check.facts.is_empty() {
        return Ok(false);
    }
    for (before, after) in before.answer.charges.iter().zip(&after.answer.charges) {
        let most = after.remaining.min(before.remaining);
        same("what is left before a check, and after its charge (at most that)", &most, &after.remaining)?;
    }
    Ok(true)
}
