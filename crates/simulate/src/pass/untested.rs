//! Explains why the log does not test some of the candidate rules.

use engine::{Node, Rule, RuleId, RuleSet};

use crate::report::Method;
use map::{Map, SentDescriptors};

/// Rules that are named one by one.
const MOST: usize = 20;

/// The map, and its descriptors that the lines of the log had.
#[derive(Clone, Copy)]
pub(super) struct Mapped<'a> {
    pub map: Option<&'a Map>,
    pub sent: SentDescriptors,
}

/// One sentence for all rules if no line of the log became a request.
pub(super) fn without_requests(method: &Method, mapped: Mapped<'_>) -> String {
    let lines = method.lines;
    let reason = if lines == 0 {
        "the log has no lines".to_owned()
    } else if method.not_kept == lines {
        format!("the map's `keep` leaves out all {lines} lines")
    } else if method.without_descriptor > 0
        && let Some(map) = mapped.map
    {
        map.why_nothing_sent()
    } else {
        format!("none of {lines} lines became a request")
    };
    format!("no rule is tested: {reason}")
}

/// A sentence for each rule of `untested`, which applied to no request; one for all rules of a domain that the map does
/// not send.
pub(super) fn of_rules(rules: &RuleSet, untested: &[&Rule], mapped: Mapped<'_>) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    let mut named = 0;
    for rule in untested {
        let sentence = match mapped.map.filter(|map| map.domain() != &*rule.domain) {
            Some(map) => format!(
                "no rule of the domain {} is tested: the map sends the domain {}",
                rule.domain,
                map.domain()
            ),
            None if named == MOST => {
                sentences.push("further rules are not tested".to_owned());
                break;
            }
            None => {
                named += 1;
                sentence(rules, rule, mapped)
            }
        };
        if sentences.last() != Some(&sentence) {
            sentences.push(sentence);
        }
    }
    sentences
}

fn sentence(rules: &RuleSet, rule: &Rule, mapped: Mapped<'_>) -> String {
    let why = || {
        let root = &rules.domain(&rule.domain)?.root;
        let mut keys = Vec::new();
        find_keys(root, rule.id, &mut keys).then(|| mapped.map?.why_unsent(&keys, mapped.sent))?
    };
    let why = why().unwrap_or_else(|| "no request matched it".to_owned());
    format!("{} is not tested: {why}", rule.path)
}

/// Appends the keys from below `node` down to a rule. Returns `true` if the rule is there.
fn find_keys<'n>(node: &'n Node, rule: RuleId, keys: &mut Vec<&'n str>) -> bool {
    node.rule.as_ref().is_some_and(|found| found.id == rule)
        || node.children().any(|child| {
            keys.push(&child.key);
            let is_below = find_keys(child, rule, keys);
            if !is_below {
                keys.pop();
            }
            is_below
        })
}
