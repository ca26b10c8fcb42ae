//! A row for one limit, beside the other limits.

use super::{Checked, Play, calls, own, random_of, rows_for, same};
use crate::answer::Answer;
use crate::story::{Node, Returned, Row, RuleFile, Step, Story};

/// All rules are in shadow mode here: a limit that denies keeps the others from recording.
pub(super) fn frame(story: &Story, play: Play<'_>) -> Checked {
    let mut random = random_of(story);
    let (mut plain, mut names) = (story.clone(), Vec::new());
    shadow(&mut plain.rules, &mut names);
    for step in &mut plain.steps {
        match step {
            Step::Rules(files) => shadow(files, &mut names),
            Step::Rows(files) => {
                for row in files.iter_mut().flat_map(|file| &mut file.rows) {
                    (row.block, row.exempt, row.shadow_mode) = (false, row.exempt || row.block, None);
                }
                files.iter_mut().for_each(|file| file.rows.retain(|row| !row.is_without_effect()));
            }
            Step::Call(call) => {
                call.descriptors.iter_mut().for_each(|ask| ask.limit = None);
                // An exempt limit gives no receipt.
                call.descriptors.retain(|ask| !matches!(ask.receipt, Some(Returned::Of(_))));
            }
            Step::Clock(_) | Step::Skew { .. } => {}
        }
    }
    let entries: Vec<_> =
        calls(story).flat_map(|call| &call.descriptors).map(|ask| ask.entries.clone()).collect();
    if names.is_empty() || entries.is_empty() {
        return Ok(false);
    }
    let name = random.pick(&names);
    let row = match random.below(4) {
        0 => Row { tier: Some(random.pick(&["pro", "low", "suspended"]).to_owned()), ..Row::default() },
        1 => Row { limit: Some(random.between(0, 20)), ..Row::default() },
        2 => Row { exempt: true, ..Row::default() },
        _ => Row { multiplier: Some(random.pick(&[0.1, 0.5, 2.0, 10.0])), ..Row::default() },
    };
    let Step::Rows(added) = rows_for(&entries, &Row { limit_name: Some(name.clone()), ..row }) else {
        return Ok(false);
    };
    let mut with_row = plain.clone();
    with_row.steps.insert(0, Step::Rows(Vec::new()));
    for step in &mut with_row.steps {
        if let Step::Rows(files) = step {
            files.extend(added.iter().cloned());
        }
    }
    let others = |answer: &Answer| -> Vec<_> {
        answer.charges.iter().filter(|numbers| numbers.label != name).cloned().collect()
    };
    let (before, after) = (play(&plain)?, play(&with_row)?);
    for (before, after) in own(&before).zip(own(&after)) {
        same(&format!("call {}, limits other than {name}", before.id), &others(before), &others(after))?;
    }
    Ok(true)
}

fn shadow(files: &mut [RuleFile], names: &mut Vec<String>) {
    let mut to_shadow = |node: &mut Node| {
        node.shadow_mode = true;
        names.extend(node.limits().filter_map(|limit| limit.name.clone()));
    };
    for node in files.iter_mut().flat_map(|file| &mut file.descriptors) {
        node.each_mut(&mut to_shadow);
    }
}

impl Row {
    fn is_without_effect(&self) -> bool {
        let numbers = self.limit.is_none() && self.multiplier.is_none();
        self.tier.is_none() && numbers && !self.block && !self.exempt && self.shadow_mode.is_none()
    }
}
