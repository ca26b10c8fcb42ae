//! `--explain-line`: what a line becomes, and which limits it meets.

use std::process::ExitCode;

use engine::Request;
use rules::{LoadedRules, describe};
use simulate::explain::{ExplainedLine, explain_line};
use simulate::map::Map;

use super::arguments::SimulateArgs;
use super::failure::{Failure, LOG};
use crate::cli::output::{end, print};

/// Prints the explanation.
pub(super) fn run(
    args: &SimulateArgs,
    number: u64,
    rules: &LoadedRules,
    map: Option<&Map>,
) -> Result<ExitCode, Failure> {
    let path = args.logs.first().ok_or_else(|| Failure::new(LOG, "no log"))?;
    let line = explain_line(path, number, args.format(), map).map_err(|error| Failure::new(LOG, error))?;
    let mut text = format!("line {number} ({}): {}\n", line.format.name(), line.text);
    for (name, value) in &line.fields {
        text += &format!("  {name}: {}\n", value.as_deref().unwrap_or("(none)"));
    }
    match &line.request {
        Err(reason) => text += &format!("no request: {reason}\n"),
        Ok((t_us, request)) => {
            text += &shown_request(*t_us, request, &line, map);
            let described = describe(&rules.rules, &rules.upgrades, request);
            text += &described.map_err(|error| Failure::new(LOG, error))?.text;
        }
    }
    Ok(end(print(&text), ExitCode::SUCCESS))
}

fn shown_request(t_us: u64, request: &Request, line: &ExplainedLine, map: Option<&Map>) -> String {
    let mut text = format!("at {t_us} us, domain {}\n", request.domain);
    for descriptor in &request.descriptors {
        let entries: Vec<String> =
            descriptor.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect();
        let hits = descriptor.hits.map_or_else(String::new, |hits| format!(" ({hits} units)"));
        text += &format!("descriptor {}{hits}\n", entries.join(","));
    }
    if map.is_some_and(Map::has_good) {
        text += &format!("good: {}\n", line.is_good);
    }
    if map.is_some_and(Map::has_was_limited) {
        text += &format!("was_limited: {}\n", line.was_limited);
    }
    text + "\n"
}
