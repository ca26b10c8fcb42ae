//! `usage now`: shows what is used of limits in a running service.

use std::collections::HashSet;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use base::{escaped, escaped_json, with_commas};
use clap::Args;
use ratelimitd::cli::output::finish;
use serde_json::{Value, json};

use super::csv_line;
use crate::admin_call::{AdminArgs, AdminCallError};
use crate::descriptor::DescriptorArg;
use crate::simulate::table::aligned;

const FAILED: u8 = 2;
/// Calls in a row that the store may leave without an answer: decisions come first.
const MOST_FAILURES: u32 = 20;
const AFTER_FAILURE: Duration = Duration::from_millis(500);
/// Columns of a table with text.
const TEXTS: [&str; 4] = ["limit", "rule", "resets", "counter"];

/// Show what is used at this moment; changes nothing
///
/// Calls the admin port. Shows all limits of descriptors, or with --rule a rule's most used counters. Such a list
/// shows values, so it needs a token: of server.admin.token_file or server.admin.operator_token_file, or the one
/// that `ratelimitctl token` prints.
#[derive(Clone, Debug, Args)]
#[command(after_help = r"Exit codes:
  0  done
  2  no answer, no such rule, or unwritable output

Examples:
  ratelimitctl usage now --domain shop customer=acme
  ratelimitctl usage now --domain shop --json customer=acme customer=bolt
  ratelimitctl usage now --domain shop --rule monthly --top 50 --csv --token-file admin.token")]
pub(super) struct NowArgs {
    /// Domain of the descriptors, or of the rule
    #[arg(long, value_name = "DOMAIN")]
    domain: String,

    /// List the counters of limits with this name, or of the rule with this path
    #[arg(long, value_name = "NAME", conflicts_with = "descriptors")]
    rule: Option<String>,

    /// List at most N counters, the most used first
    #[arg(
        long, value_name = "N", default_value_t = 50, requires = "rule",
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    top: u32,

    /// Print the list as CSV
    #[arg(long, requires = "rule", conflicts_with = "json")]
    csv: bool,

    #[command(flatten)]
    admin: AdminArgs,

    /// Descriptors, each as key=value[,key=value...]; `\,` is a comma within a value
    #[arg(value_name = "DESCRIPTOR", required_unless_present = "rule")]
    descriptors: Vec<DescriptorArg>,
}

/// Usage goes to standard output, errors to standard error.
pub(super) fn run(args: &NowArgs) -> ExitCode {
    let text = match &args.rule {
        Some(rule) => args.list(rule),
        None => args.show(),
    };
    finish("ratelimitctl usage now", text, FAILED)
}

impl NowArgs {
    fn show(&self) -> Result<String, AdminCallError> {
        let descriptors: Value = self.descriptors.iter().map(|descriptor| descriptor.json(None)).collect();
        let body = json!({"domain": self.domain, "descriptors": descriptors});
        let answer = self.admin.post("/usage", &body)?;
        let tables = |answer: &Value| {
            let usage = self.descriptors.iter().zip(answer["usage"].as_array().into_iter().flatten());
            let table = |(descriptor, usage): (&DescriptorArg, &Value)| {
                let entries = descriptor.0.iter().map(|entry| format!("{}={}", entry.key, entry.value));
                let title = escaped(entries.collect::<Vec<_>>().join(","));
                let limits = rows_of(&usage["limits"]);
                let table = table(&["limit", "used", "remaining", "of", "resets"], limits.iter());
                format!("{title}\n{}", if limits.is_empty() { "  no limit applies\n" } else { &table })
            };
            usage.map(table).collect()
        };
        self.admin.shown(answer, tables)
    }

    fn list(&self, rule: &str) -> Result<String, AdminCallError> {
        let list = read_list(&self.admin, &self.domain, rule, self.top)?;
        let text = format!("{list:#}\n");
        if self.csv {
            return Ok(csv(&rows_of(&list["counters"])));
        }
        self.admin.shown(text, list_text).map(|text| if self.admin.json { escaped_json(text) } else { text })
    }
}

/// Reads a list call by call, and keeps the most used counters.
///
/// # Errors
/// If the service does not answer, or the rule does not exist.
pub(super) fn read_list(
    admin: &AdminArgs,
    domain: &str,
    rule: &str,
    top: u32,
) -> Result<Value, AdminCallError> {
    let mut list = json!({"counters": [], "seen": 0, "unknown": 0, "took_ms": 0, "cursor": null});
    let mut failures = 0;
    loop {
        let body = json!({"domain": domain, "rule": rule, "top": top, "cursor": list["cursor"]});
        let part = match admin.post("/usage/list", &body) {
            // The cursor stays valid.
            Err(AdminCallError::Unavailable(_) | AdminCallError::Timeout) if failures < MOST_FAILURES => {
                failures += 1;
                thread::sleep(AFTER_FAILURE);
                continue;
            }
            part => part?,
        };
        failures = 0;
        let part: Value = serde_json::from_str(&part)?;
        for sum in ["seen", "unknown", "took_ms"] {
            list[sum] = (number(&list[sum]) + number(&part[sum])).into();
        }
        let mut counters = rows_of(&list["counters"]);
        counters.extend(rows_of(&part["counters"]));
        counters.sort_by_key(|counter| std::cmp::Reverse(number(&counter["used"])));
        let mut known = HashSet::new();
        counters.retain(|counter| known.insert(counter["key"].to_string()));
        counters.truncate(top as usize);
        list["counters"] = counters.into();
        list["cursor"] = part["cursor"].clone();
        list["limits"] = part["limits"].clone();
        if list["oldest_at"].is_null() {
            list["oldest_at"] = part["oldest_at"].clone();
        }
        if list["cursor"].is_null() {
            break;
        }
    }
    if let Some(fields) = list.as_object_mut() {
        fields.remove("cursor");
    }
    Ok(list)
}

pub(super) fn rows_of(list: &Value) -> Vec<Value> {
    list.as_array().cloned().unwrap_or_default()
}

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn list_text(list: &Value) -> String {
    let counters = rows_of(&list["counters"]);
    let table = table(&["counter", "limit", "used", "remaining", "of", "resets"], counters.iter());
    let unknown = match number(&list["unknown"]) {
        0 => String::new(),
        unknown => format!(", of unknown limits: {}", with_commas(unknown)),
    };
    format!(
        "{table}counters: {}{unknown}, read in {} ms; no number is older than {}\n",
        with_commas(number(&list["seen"])),
        with_commas(number(&list["took_ms"])),
        text_of(&list["oldest_at"]),
    )
}

/// Formats aligned rows with a header line.
fn table<'v>(columns: &[&str], rows: impl Iterator<Item = &'v Value>) -> String {
    let header = columns.iter().map(|column| column.to_uppercase()).collect();
    let cells = rows.map(|row| columns.iter().map(|column| cell(row, column)).collect());
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(cells).collect();
    let texts: Vec<_> = (0..columns.len()).filter(|column| TEXTS.contains(&columns[*column])).collect();
    aligned(&lines, &texts).iter().map(|line| format!("  {line}\n")).collect()
}

fn cell(row: &Value, column: &str) -> String {
    let units = |field: &str| row[field].as_u64().map_or_else(|| "-".to_owned(), with_commas);
    match column {
        "limit" => escaped(text_of(&row["name"])),
        "of" if row["unlimited"] == true => "unlimited".to_owned(),
        "of" => units("limit"),
        "resets" => {
            let times = [&row["window_end"], &row["resets_at"]];
            times.into_iter().find_map(Value::as_str).unwrap_or("-").to_owned()
        }
        "counter" => escaped(entries_text(row)),
        _ => units(column),
    }
}

pub(super) fn entries_text(row: &Value) -> String {
    let text = |entry: &Value| format!("{}={}", text_of(&entry["key"]), text_of(&entry["value"]));
    rows_of(&row["entries"]).iter().map(text).collect::<Vec<_>>().join(",")
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Formats counters as CSV: a column for each entry key, then the numbers.
fn csv(counters: &[Value]) -> String {
    const NUMBERS: [&str; 9] =
        ["name", "rule", "used", "remaining", "limit", "window_start", "window_end", "resets_at", "read_at"];
    let mut keys: Vec<String> = Vec::new();
    for entry in counters.iter().flat_map(|counter| rows_of(&counter["entries"])) {
        let key = text_of(&entry["key"]);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let header = keys.iter().cloned().chain(NUMBERS.map(str::to_owned));
    let row = |counter: &Value| {
        let entries = rows_of(&counter["entries"]);
        let value = |key: &String| {
            let entry = entries.iter().find(|entry| entry["key"] == key.as_str());
            entry.map_or_else(String::new, |entry| text_of(&entry["value"]))
        };
        let number = |field: &str| match &counter[field] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        csv_line(keys.iter().map(value).chain(NUMBERS.map(number)))
    };
    std::iter::once(csv_line(header)).chain(counters.iter().map(row)).collect()
}
