//! `explain --decision`: puts the dynamic metadata of a past decision into sentences, and compares its limit with those
//! that apply to the same request now.

use std::error::Error;
use std::io::stdin;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use base::{escaped, read_file, read_stream, readable_duration, with_commas};
use engine::is_hidden_value;
use engine::wire::json::{Object, optional_number};
use ratelimitd::cli::output::{end, print, print_error};
use rules::{Description, local_time, utc_text};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{AdminCallError, ExplainArgs, Explainer, fail_with};

/// Most bytes that are read.
const MAX_BYTES: u64 = 64 << 20;

/// Fields of the metadata.
#[derive(Deserialize)]
struct PastDecision {
    domain: String,
    descriptors: Vec<PastDescriptor>,
    #[serde(default, rename = "hitsAddend", deserialize_with = "optional_number")]
    hits: Option<u64>,
    rule: Option<String>,
    /// Only of a denial.
    limit: Option<String>,
    #[serde(default, deserialize_with = "optional_number")]
    decided_at_us: Option<u64>,
    /// Only of a denial.
    #[serde(default, deserialize_with = "optional_number")]
    retry_after_ms: Option<u64>,
    #[serde(default)]
    on_store_failure: Map<String, Value>,
    #[serde(default)]
    exception: Map<String, Value>,
}

#[derive(Deserialize)]
struct PastDescriptor {
    /// Each as `key=value`.
    #[serde(default)]
    entries: Vec<String>,
    /// The request's own limit, in the text format of protobuf.
    limit: Option<String>,
    #[serde(default, rename = "hitsAddend", deserialize_with = "optional_number")]
    hits: Option<u64>,
    calendar: Option<String>,
}

/// Explains each line of the file.
pub(super) fn run(args: &ExplainArgs, path: &Path) -> ExitCode {
    let (text, explainer) = match read(path).and_then(|text| Ok((text, Explainer::new(args, None)?))) {
        Ok(read) => read,
        Err(error) => return fail_with(error),
    };
    let mut code = ExitCode::SUCCESS;
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match explained(&explainer, line) {
            Ok(Description { text, matched, .. }) => {
                if matched == 0 {
                    code = ExitCode::FAILURE;
                }
                if let Err(error) = print(&text) {
                    return end(Err(error), code);
                }
            }
            Err(error) if error.is::<AdminCallError>() => return fail_with(error),
            Err(error) => {
                print_error(format_args!("line {}: not the metadata of a decision: {error}", index + 1));
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn read(path: &Path) -> Result<String, Box<dyn Error>> {
    let is_stdin = path == Path::new("-");
    let bytes = if is_stdin { read_stream(stdin().lock(), MAX_BYTES) } else { read_file(path, MAX_BYTES) };
    let bytes = bytes.map_err(|error| format!("--decision {}: {error}", path.display()))?;
    Ok(String::from_utf8(bytes).map_err(|error| format!("--decision {}: {error}", path.display()))?)
}

fn explained(explainer: &Explainer<'_>, line: &str) -> Result<Description, Box<dyn Error>> {
    let Object(past): Object<PastDecision> = serde_json::from_str(line)?;
    let mut description = explainer.explain(&past.request()?)?;
    let mut lines = past.sentences();
    lines.extend(past.comparison(&description.limits));
    let lines: String = lines.into_iter().map(|line| escaped(line) + "\n").collect();
    description.text = format!("{lines}{}\n", description.text);
    Ok(description)
}

impl PastDecision {
    /// Returns the same request as a body of `/json`.
    fn request(&self) -> Result<Value, Box<dyn Error>> {
        let entry = |text: &String| match text.split_once('=') {
            Some((key, value)) => Ok(json!({"key": key, "value": value})),
            None => Err(format!("'{text}' is no key=value")),
        };
        let mut descriptors = Vec::new();
        for PastDescriptor { entries, limit, hits, .. } in &self.descriptors {
            let entries: Vec<Value> = entries.iter().map(entry).collect::<Result<_, _>>()?;
            let limit = limit.as_deref().map(override_json);
            descriptors.push(json!({"entries": entries, "limit": limit, "hitsAddend": hits}));
        }
        Ok(json!({"domain": self.domain, "descriptors": descriptors, "hitsAddend": self.hits}))
    }

    /// Returns what was decided, why, and until when, one sentence each.
    fn sentences(&self) -> Vec<String> {
        let cost = |hits: Option<u64>| hits.map(|hits| format!(", cost {}", with_commas(hits)));
        let descriptors = self.descriptors.iter().map(|descriptor| {
            descriptor.entries.join(",") + &cost(descriptor.hits.or(self.hits)).unwrap_or_default()
        });
        let descriptors: Vec<_> = descriptors.collect();
        let at = self.decided_at_us.map(|us| format!("{}, ", utc_text(us))).unwrap_or_default();
        let number = self.limit.as_ref().map(|limit| format!(" ({limit})")).unwrap_or_default();
        let is_denied = self.limit.is_some() || self.retry_after_ms.is_some();
        let decided = match &self.rule {
            Some(rule) if is_denied => format!("denied by '{rule}'{number}"),
            Some(rule) => format!("decided by '{rule}'"),
            None if is_denied => "denied".to_owned(),
            None => "no limit applied".to_owned(),
        };
        let mut lines = vec![format!("{at}domain {}, {}: {decided}.", self.domain, descriptors.join("; "))];
        for (limit, policy) in &self.on_store_failure {
            let policy = policy.as_str().unwrap_or_default();
            lines.push(format!("Redis did not answer: on_store_failure of '{limit}' was {policy}."));
        }
        for (limit, steps) in &self.exception {
            lines.push(format!("Exception for '{limit}': {}.", steps.as_str().unwrap_or_default()));
        }
        if let Some(wait_ms) = self.retry_after_ms {
            let wait = readable_duration(Duration::from_millis(wait_ms));
            let end_us = self.decided_at_us.and_then(|us| us.checked_add(wait_ms.checked_mul(1_000)?));
            let end = end_us.map(|us| format!(", at {}{}", utc_text(us), self.local(us))).unwrap_or_default();
            lines.push(format!("The same request had room again after {wait}{end}."));
        } else if is_denied && self.on_store_failure.is_empty() {
            lines.push("Waiting would not have helped.".to_owned());
        }
        let hashed = self.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        for entry in
            hashed.filter(|entry| entry.split_once('=').is_some_and(|(_, value)| is_hidden_value(value)))
        {
            lines.push(format!(
                "{entry} is a hash: rules for this single value, and the store key below, can differ."
            ));
        }
        lines
    }

    /// In local time, with a calendar.
    fn local(&self, us: u64) -> String {
        let zone = self.descriptors.iter().find_map(|descriptor| descriptor.calendar.as_deref());
        let local = zone.and_then(|zone| Some(format!(" ({}, {zone})", local_time(zone, us)?)));
        local.unwrap_or_default()
    }

    /// Compares the limit that decided with those that apply now: their names and numbers. `None` if none decided.
    fn comparison(&self, now: &[(String, String)]) -> Option<String> {
        let rule = self.rule.as_ref()?;
        let mut same_name = now.iter().filter(|(name, _)| name == rule);
        let is_same = same_name.clone().any(|(_, number)| self.limit.as_ref() == Some(number));
        let found = same_name.next();
        Some(match found {
            _ if is_same => "By these rules, the same limit applies.".to_owned(),
            Some((_, number)) => format!("By these rules, the limit is now {number}."),
            None if now.is_empty() => "By these rules, no limit applies.".to_owned(),
            None => {
                let others: Vec<_> =
                    now.iter().map(|(name, number)| format!("'{name}' ({number})")).collect();
                format!("By these rules, '{rule}' does not apply, but {}.", others.join(", "))
            }
        })
    }
}

/// Reads a limit of a request, such as `requests_per_unit:7 unit:MINUTE unit_multiplier:{value:10}`.
fn override_json(text: &str) -> Value {
    let field = |name: &str| text.split(' ').find_map(|part| part.strip_prefix(name)?.strip_prefix(':'));
    let multiplier =
        field("unit_multiplier").and_then(|value| value.strip_prefix("{value:")?.strip_suffix('}'));
    json!({"requestsPerUnit": field("requests_per_unit"), "unit": field("unit"), "unitMultiplier": multiplier})
}
