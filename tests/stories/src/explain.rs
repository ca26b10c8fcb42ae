//! What `explain` says applies to a request is exactly what the request is charged.

use std::collections::BTreeSet;

use crate::play::Played;

/// How the explanation of a request and its charges differ; `None` if they do not.
#[must_use]
pub fn difference(played: &Played) -> Option<String> {
    let Played { answer, facts, explained } = played;
    let shown: BTreeSet<&str> = explained.text.lines().filter_map(shown_key).collect();
    // A limit of 0 has no counter, and its explanation no key.
    let with_counter = facts.iter().filter(|fact| fact.kind != "blocked");
    let charged: BTreeSet<&str> = with_counter.map(|fact| fact.key.as_str()).collect();
    let decided = answer.statuses.iter().flatten().count();
    let unlimited = answer.statuses.iter().flatten().filter(|status| status.remaining.is_none()).count();
    let says_unlimited = explained.text.lines().filter(|line| says_unlimited(line)).count();
    if shown == charged && explained.matched == decided && unlimited <= says_unlimited {
        return None;
    }
    let matched = explained.matched;
    let difference = format!(
        "the charges are {charged:?}, and {decided} descriptors have a limit, not {matched}: {}",
        explained.text
    );
    Some(difference)
}

fn shown_key(line: &str) -> Option<&str> {
    let (key, _) = line.strip_prefix("    store key         ")?.split_once(" (in Redis after ")?;
    Some(key)
}

fn says_unlimited(line: &str) -> bool {
    let admits = line.strip_prefix("    admits            ").unwrap_or_default();
    admits.starts_with("unlimited") || admits.starts_with("everything")
}
