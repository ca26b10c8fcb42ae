//! Describes the instances' state in sentences.

use base::with_commas;
use ratelimitd::console::{ConsoleExceptions, KeyException, RowsOfKind, SECONDS, clock, rate_text};
use rules::utc_text;

use super::view::{KeyLine, RuleLine, View};

const DAY_S: u64 = 86_400;
/// Denials older than this started before the series.
const LONG_AGO_S: u64 = SECONDS as u64 - 30;

/// What happens, in one or a few sentences.
pub(super) fn sentence(view: &View) -> String {
    let rates = &view.per_second;
    let mut text = if rates.requests == 0.0 {
        "No requests.".to_owned()
    } else if rates.denied == 0.0 {
        format!("{} requests/s, none denied.", per_second(rates.requests))
    } else {
        let since = match view.denied_since {
            Some(since) if is_long_ago(since, view.end) => ", for more than 15 min".to_owned(),
            Some(since) => format!(", since {}", clock(since)),
            None => String::new(),
        };
        let share = share_text(rates.denied, rates.requests);
        let (denied, requests) = (per_second(rates.denied), per_second(rates.requests));
        format!("{denied} of {requests} requests/s denied ({share}){since}.{}", blamed(view))
    };
    if rates.failed > 0.0 {
        text += &format!(" {} requests/s got no decision.", per_second(rates.failed));
    }
    if let Some(redis) = view.redis {
        text += &match redis.answering {
            0 => " Redis does not answer.".to_owned(),
            answering if answering == redis.instances => " Redis answers.".to_owned(),
            answering => format!(" Redis answers {answering} of {} instances.", redis.instances),
        };
    }
    text
}

/// The most denied rule, and its key if one has more than half of the denials.
fn blamed(view: &View) -> String {
    let enforced = || view.rules.iter().filter(|rule| rule.is_enforced());
    let all: f64 = enforced().map(|rule| rule.denied).sum();
    let Some(rule) = enforced().max_by(|a, b| a.denied.total_cmp(&b.denied)).filter(|rule| rule.denied > 0.0)
    else {
        return String::new();
    };
    let share = share_text(rule.denied, all);
    let keys = view.keys.iter().filter(|key| key.name == rule.name);
    let most = keys.max_by(|a, b| a.denied.total_cmp(&b.denied));
    let key = match most.filter(|key| key.denied * 2.0 > rule.denied) {
        Some(key) => {
            format!("{} of these are of one key, {}", share_text(key.denied, rule.denied), key_text(key))
        }
        None => "no single key has half of these".to_owned(),
    };
    format!(" {share} of the denials are by {}; {key}.", rule_text(rule))
}

/// A rule's label, with its domain unless the label starts with it, and its kind if it denies nothing.
pub(super) fn rule_text(rule: &RuleLine) -> String {
    let name = &rule.name;
    let mut text = name.rule.clone();
    let has_domain = name.rule.strip_prefix(&name.domain).is_some_and(|rest| rest.starts_with('.'));
    if !has_domain && name.domain != name.rule {
        text += &format!(" ({})", name.domain);
    }
    if !rule.is_enforced() {
        text += ", shadow";
    }
    text
}

/// A key's rule, and what distinguishes the key's rows: the limit, and an exception.
pub(super) fn rule_of_key_text(rule: &RuleLine, key: &KeyLine, end: u64) -> String {
    let mut text = rule_text(rule);
    if let Some(limit) = &key.of_limit {
        text += &format!(", {limit}");
    }
    if let Some(KeyException { kind, row, until }) = &key.exception {
        text += match kind.as_str() {
            "block" => ", blocked",
            "exempt" => ", exempt",
            "shadow_mode" => ", shadow mode",
            _ => ", limit changed",
        };
        text += &until.map(|until| format!(" until {}", until_text(until, end))).unwrap_or_default();
        text += &row.as_ref().map(|row| format!(" ({row})")).unwrap_or_default();
    }
    text
}

/// How many exceptions block and exempt; `None` if none does.
pub(super) fn exceptions_text(exceptions: &ConsoleExceptions) -> Option<String> {
    let of_kind = |RowsOfKind { rows, requests_15m }, one: &str, many: &str, done: &str| {
        let rows =
            if rows == 1 { format!("1 row {one}") } else { format!("{} rows {many}", with_commas(rows)) };
        format!("{rows}: {} requests {done} in 15 min.", with_commas(requests_15m))
    };
    let ConsoleExceptions { block, exempt } = *exceptions;
    let texts = [
        (block != RowsOfKind::default()).then(|| of_kind(block, "blocks", "block", "denied")),
        (exempt != RowsOfKind::default()).then(|| of_kind(exempt, "exempts", "exempt", "admitted")),
    ];
    let texts: Vec<_> = texts.into_iter().flatten().collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

pub(super) fn key_text(key: &KeyLine) -> String {
    let entries = key.entries.iter().map(|(name, value)| format!("{name}={value}"));
    entries.collect::<Vec<_>>().join(" ")
}

/// A share in percent, with two significant digits. Rates over different periods can exceed the whole: at most 100 %.
pub(super) fn share_text(part: f64, whole: f64) -> String {
    let percent = if whole > 0.0 { (part / whole * 100.0).min(100.0) } else { 0.0 };
    match percent {
        0.0 => "0 %".to_owned(),
        ..1.0 => format!("{percent:.2} %"),
        ..10.0 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// `true` if denials started before the last 15 minutes, or too close to their start to tell.
pub(super) fn is_long_ago(since: u64, end: u64) -> bool {
    end.saturating_sub(since) > LONG_AGO_S
}

/// A rate without its unit.
pub(super) fn per_second(rate: f64) -> String {
    if rate == 0.0 { "0".to_owned() } else { rate_text(rate) }
}

/// A future time: time of day, or the date if it is more than a day away.
fn until_text(seconds: u64, end: u64) -> String {
    if seconds.saturating_sub(end) < DAY_S {
        return clock(seconds);
    }
    utc_text(seconds.saturating_mul(1_000_000)).get(..10).unwrap_or_default().to_owned()
}
