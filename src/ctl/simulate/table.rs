//! The report on a terminal: a table of the limits, what must not be overlooked, and the verdict.

use std::io::{self, IsTerminal};
use std::time::Duration;

use base::{escaped_lines, is_hostile, readable_duration};
use simulate::report::{Agreement, LimitReport, Method, Recommendation, Report, percent};

const RED: &str = "\x1b[31m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
/// Keys shown per limit; the page and the JSON have more.
const SHOWN_KEYS: usize = 10;
const KEY_CHARACTERS: usize = 120;
/// No request is that long.
const DAY_US: u64 = 86_400_000_000;

/// Returns the table, the notes and the verdict, coloured if standard output is a terminal.
pub(super) fn table(report: &Report, shows_keys: bool) -> String {
    rendered(report, shows_keys, io::stdout().is_terminal())
}

fn rendered(report: &Report, shows_keys: bool, is_coloured: bool) -> String {
    let paint = |style: &str, text: &str| {
        if is_coloured {
            format!("{style}{}{PLAIN}", escaped_lines(text))
        } else {
            escaped_lines(text).into_owned()
        }
    };
    let mut text = String::new();
    if report.partial {
        text += &paint(RED, "Interrupted: this is the report of the lines read until then.");
        text += "\n\n";
    }
    if !report.limits.is_empty() {
        let rows = rows(report);
        for (index, line) in aligned(&rows, &[0, 1]).iter().enumerate() {
            let is_over = index > 0 && report.limits.get(index - 1).is_some_and(|rule| rule.over > 0);
            let style = if index == 0 { Some(BOLD) } else { is_over.then_some(RED) };
            text += &style.map_or_else(|| escaped_lines(line).into_owned(), |style| paint(style, line));
            text.push('\n');
        }
        text.push('\n');
    }
    if shows_keys {
        report.limits.iter().for_each(|rule| text += &escaped_lines(&keys_over(rule)));
    }
    for note in notes(report) {
        text += &escaped_lines(&note);
        text.push('\n');
    }
    text += &paint(BOLD, &report.verdict);
    text.push('\n');
    text
}

/// The most denied keys of one limit.
fn keys_over(rule: &LimitReport) -> String {
    if rule.top_denied.is_empty() {
        return String::new();
    }
    let mut rows = vec![vec!["over".to_owned(), "asked".to_owned(), format!("key of {}", rule.rule)]];
    rows.extend(rule.top_denied.iter().take(SHOWN_KEYS).map(|key| {
        let at_most = if key.error == 0 { "" } else { "<=" };
        let asked = key.asked.map_or_else(|| "-".to_owned(), |asked| asked.to_string());
        vec![format!("{at_most}{}", key.over), asked, shown_key(&key.key)]
    }));
    let mut lines = aligned(&rows, &[2]);
    let more = rule.keys_over.saturating_sub(SHOWN_KEYS as u64);
    lines.extend((more > 0).then(|| format!("and {more} more keys")));
    lines.join("\n") + "\n\n"
}

/// Formats a key on one line of a terminal: a client may have sent control characters, or a key as long as a log line.
fn shown_key(key: &str) -> String {
    let visible = |c: char| if is_hostile(c) { char::REPLACEMENT_CHARACTER } else { c };
    let cut = if key.chars().nth(KEY_CHARACTERS).is_some() { "..." } else { "" };
    key.chars().take(KEY_CHARACTERS).map(visible).collect::<String>() + cut
}

/// A column's name, and its cell in a limit's row.
type Column = (&'static str, fn(&LimitReport) -> String);

/// The header, and one row per limit.
fn rows(report: &Report) -> Vec<Vec<String>> {
    let has = |find: fn(&LimitReport) -> bool| report.limits.iter().any(find);
    let mut columns: Vec<Column> = vec![
        ("rule", |rule| rule.rule.clone()),
        ("limit", limit),
        ("asked", |rule| rule.asked.to_string()),
        ("over", |rule| rule.over.to_string()),
        ("over %", |rule| percent(rule.over_share_ppm)),
    ];
    if has(|rule| rule.in_force.is_some()) {
        columns.push(("old over %", |rule| {
            let in_force = rule.in_force.as_ref();
            in_force.map_or_else(|| "-".to_owned(), |in_force| percent(in_force.over_share_ppm))
        }));
    }
    columns.push(("keys", |rule| rule.keys.to_string()));
    columns.push(("keys over", |rule| rule.keys_over.to_string()));
    if has(|rule| rule.good_over.is_some()) {
        columns.push(("good over", |rule| rule.good_over.unwrap_or(0).to_string()));
    }
    if has(|rule| rule.recommendation.is_some()) {
        columns
            .push(("recommended", |rule| rule.recommendation.as_ref().map_or_else(String::new, recommended)));
    }
    let header = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let row = |rule| columns.iter().map(|(_, cell)| cell(rule)).collect();
    [header].into_iter().chain(report.limits.iter().map(row)).collect()
}

fn limit(rule: &LimitReport) -> String {
    let shadow = if rule.shadow { " shadow" } else { "" };
    let announces = if rule.announces { " announces" } else { "" };
    let reserve = rule.reserve.map(|units| format!(" reserve {units}")).unwrap_or_default();
    if rule.algorithm.is_empty() {
        return "of requests".to_owned();
    }
    format!("{}/{} {}{reserve}{announces}{shadow}", rule.limit, period(rule), rule.algorithm)
}

fn recommended(found: &Recommendation) -> String {
    match found.no_recommendation {
        Some(_) => "none".to_owned(),
        None => found.limit.to_string(),
    }
}

/// Pads cells to the width of their column: the columns in `texts` align left, all others right.
pub(crate) fn aligned(rows: &[Vec<String>], texts: &[usize]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if texts.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// What a reader must know before relying on the table.
fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if !report.untested_rules.is_empty() {
        notes.push(format!("No request matched {}. Check the spelling.", report.untested_rules.join(", ")));
    }
    let coarse: Vec<&str> =
        report.limits.iter().filter(|rule| !rule.is_resolved).map(|rule| rule.rule.as_str()).collect();
    if !coarse.is_empty() {
        let resolution = report.method.clock_resolution_us;
        notes.push(format!(
            "Log times have a resolution of {resolution} us, too coarse for {}.",
            coarse.join(", ")
        ));
    }
    notes.extend(notes_of_sample(report));
    notes.extend(report.limits.iter().filter_map(note_of_recommendation));
    // Several limits of one rule can share a label.
    for (rule, found) in report.limits.iter().zip(&report.algorithms) {
        let over = |is_own| {
            let counts = found.algorithms.iter().filter(move |counts| counts.is_own == is_own);
            counts.map(|counts| format!("{} {}", counts.label, counts.over)).collect::<Vec<_>>().join(", ")
        };
        notes.push(format!(
            "{} {}/{}, over limit: {}; with all limits as {}",
            rule.rule,
            rule.limit,
            period(rule),
            over(true),
            over(false)
        ));
    }
    notes.extend(notes_of_lines(&report.method));
    notes
}

/// Returns a limit's calendar, or else its period.
fn period(rule: &LimitReport) -> String {
    let length = || readable_duration(Duration::from_secs(rule.period_s));
    rule.calendar.clone().unwrap_or_else(length)
}

/// Returns why there is no recommendation, or the burst that it keeps.
fn note_of_recommendation(rule: &LimitReport) -> Option<String> {
    let recommendation = rule.recommendation.as_ref()?;
    let held = rule.what_if.held_burst.map(|burst| format!("with the burst of {burst}"));
    match (&recommendation.no_recommendation, held) {
        (Some(reason), held) => {
            let held = held.map_or_else(String::new, |held| format!(", {held}"));
            Some(format!("No recommendation for {}: {reason}{held}.", rule.rule))
        }
        (None, held) => Some(format!(
            "{} per {} is recommended for {} {}.",
            recommendation.limit,
            period(rule),
            rule.rule,
            held?
        )),
    }
}

fn notes_of_sample(report: &Report) -> Vec<String> {
    let one_in = report.method.sample.one_in;
    if one_in == 1 {
        return Vec::new();
    }
    let mut notes = vec![format!(
        "A sample of 1/{one_in} of the keys: all counts are of these; shares are estimates. {} requests were left out.",
        report.method.sample.left_out
    )];
    let thinned: Vec<&str> =
        report.limits.iter().filter(|rule| rule.is_thinned).map(|rule| rule.rule.as_str()).collect();
    if !thinned.is_empty() {
        notes.push(format!(
            "Not by the sampled key, so decided as 1/{one_in} of the limit, a rough estimate: {}.",
            thinned.join(", ")
        ));
    }
    notes
}

fn notes_of_lines(method: &Method) -> Vec<String> {
    let mut notes = Vec::new();
    for input in &method.inputs {
        if input.is_recognized && !input.format.is_empty() {
            notes.push(format!("{}: read as {}.", input.name, input.format));
        }
        if let Some(reason) = &input.cut {
            notes.push(format!("{}: not read to its end: {reason}.", input.name));
        }
    }
    if method.unreadable > 0 {
        notes.push(format!("Cannot read {} of {} lines:", method.unreadable, method.lines));
        let lines = method.unreadable_lines.iter();
        notes.extend(lines.map(|line| format!("  {}:{}: {}", line.input, line.line, line.reason)));
    }
    if method.without_descriptor > 0 {
        notes.push(format!(
            "{} lines have no value for any descriptor of the map.",
            method.without_descriptor
        ));
    }
    let reordering = &method.reordering;
    if reordering.late > 0 {
        let (late, window) = (reordering.late, reordering.window_us / 1_000_000);
        let most = readable_duration(Duration::from_secs(reordering.most_late_us.div_ceil(1_000_000)));
        let remedy =
            if reordering.most_late_us > DAY_US { "check the clock of the log" } else { "raise --reorder" };
        notes.push(format!(
            "{late} requests arrived after the --reorder window of {window}s, the latest by {most} more; {remedy}."
        ));
    }
    if reordering.was_shortened {
        notes.push("Too many requests within --reorder: the window was shorter at times.".to_owned());
    }
    if method.key_sampling.level > 0 {
        let error = percent(method.key_sampling.key_error_ppm);
        notes.push(format!(
            "Counts of keys are estimates, for all rules together with a standard error of {error} %."
        ));
    }
    if method.evictions > 0 {
        notes.push(format!("{} counters were evicted, so limits admitted too much.", method.evictions));
    }
    notes.extend(method.agreement.iter().flat_map(notes_of_agreement));
    notes
}

fn notes_of_agreement(agreement: &Agreement) -> Vec<String> {
    let mut notes = vec![agreement.summary.clone()];
    if agreement.has_differences_to_explain() {
        let vanished = agreement.by_shift.iter();
        let vanished =
            vanished.map(|found| format!("{} within {} ms", found.vanished, found.shift_us / 1_000));
        notes.push(format!(
            "Of {} differences, these vanish if the times of the log are a little wrong: {}; {} do not.",
            agreement.differences(),
            vanished.collect::<Vec<_>>().join(", "),
            agreement.unexplained()
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_aligned_and_coloured_only_on_a_terminal() {
        let rule = |name: &str, over| LimitReport {
            rule: name.to_owned(),
            algorithm: "gcra".to_owned(),
            limit: 60,
            period_s: 60,
            is_resolved: true,
            asked: 1_000,
            over,
            over_share_ppm: over * 1_000,
            ..LimitReport::default()
        };
        let report = Report {
            limits: vec![rule("per-client", 5), rule("b", 0)],
            untested_rules: vec!["edge.slow".to_owned()],
            verdict: "All is well.".to_owned(),
            ..Report::default()
        };
        let expected = "\
rule        limit       asked  over  over %  keys  keys over
per-client  60/1m gcra   1000     5     0.5     0          0
b           60/1m gcra   1000     0       0     0          0

No request matched edge.slow. Check the spelling.
All is well.
";
        assert_eq!(rendered(&report, false, false), expected);
        let coloured = rendered(&report, false, true);
        assert!(
            coloured.contains(RED)
                && coloured.replace(RED, "").replace(BOLD, "").replace(PLAIN, "") == expected
        );
    }

    #[test]
    fn a_key_takes_one_line_and_moves_no_cursor() {
        assert_eq!(shown_key("{d|user=a\x1b[2Jb\n}"), "{d|user=a\u{fffd}[2Jb\u{fffd}}");
        assert_eq!(shown_key(&"é".repeat(121)), "é".repeat(120) + "...");
    }
}
