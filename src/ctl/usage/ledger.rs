//! `usage` on ledger files: options, and the output as a table, CSV or JSON.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use base::{escaped, escaped_json, with_commas};
use clap::Args;
use engine::Booking;
use ratelimitd::cli::output::{end, fail, print, print_error};
use serde_json::{Map, Value};

use super::csv_line;
use super::read::LedgerReader;
use super::selection::Selection;
use super::sums::{Row, Sums};
use crate::simulate::table::aligned;

const MISSING: u8 = 1;
const FAILED: u8 = 2;

#[derive(Clone, Debug, Args)]
pub(super) struct LedgerArgs {
    /// Columns to add up by, with commas between them: names of entries, rule, domain, process or mode
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', default_value = "rule")]
    by: Vec<String>,

    #[command(flatten)]
    selection: Selection,

    /// Only this many rows, of the largest usage
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Print one JSON object a row
    #[arg(long)]
    json: bool,

    /// Files of a ledger, plain or compressed, or directories of them; `-` reads standard input
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

pub(super) fn run(args: &LedgerArgs) -> ExitCode {
    let mut sums = match Sums::new(args.by.clone(), args.selection.clone()) {
        Ok(sums) => sums,
        Err(error) => return fail("ratelimitctl usage", error, FAILED),
    };
    let mut reader = LedgerReader::default();
    for path in &args.paths {
        reader.read(path, |line| sums.add(line));
    }
    let problems = reader.problems();
    problems.iter().for_each(print_error);
    if reader.lines == 0 {
        return fail("ratelimitctl usage", "no line of a ledger was read", FAILED);
    }
    let titles = sums.titles();
    let mut rows = sums.into_rows();
    if let Some(top) = args.top {
        rows.sort_by_key(|row| std::cmp::Reverse(row.used()));
        rows.truncate(top);
    }
    let code = if problems.is_empty() { ExitCode::SUCCESS } else { MISSING.into() };
    end(printed(args, &titles, &rows, &reader), code)
}

fn printed(args: &LedgerArgs, titles: &[String], rows: &[Row], reader: &LedgerReader) -> io::Result<()> {
    if args.csv {
        return print(&csv(titles, rows));
    }
    if args.json {
        return print(&rows.iter().map(|row| json(titles, row)).collect::<String>());
    }
    let (processes, lines) = (with_commas(reader.processes() as u64), with_commas(reader.lines));
    print(&format!("{}processes: {processes}, lines: {lines}\n", table(titles, rows)))
}

/// The sums of a row, by title. The last ones are shown in a table only if they are not all 0.
fn numbers(row: &Row) -> [(&'static str, u64); 8] {
    let Booking { ok, over, units, back, refused, policy, unknown } = row.sums;
    [
        ("requests", ok),
        ("over", over),
        ("units", units),
        ("returned", back),
        ("used", row.used()),
        ("refused", refused),
        ("policy", policy),
        ("unknown", unknown),
    ]
}

fn table(titles: &[String], rows: &[Row]) -> String {
    const ALWAYS: usize = 5;
    let is_shown = |column: usize| column < ALWAYS || rows.iter().any(|row| numbers(row)[column].1 > 0);
    let shown: Vec<usize> = (0..numbers(&Row::default()).len()).filter(|column| is_shown(*column)).collect();
    let head = shown.iter().map(|&column| numbers(&Row::default())[column].0.to_owned());
    let head = titles.iter().cloned().chain(head).chain(["of".to_owned()]).collect();
    let body = rows.iter().map(|row| {
        let cells = shown.iter().map(|&column| with_commas(numbers(row)[column].1));
        let of = row.of().map_or_else(|| "-".to_owned(), with_commas);
        row.columns.iter().cloned().map(escaped).chain(cells).chain([of]).collect::<Vec<_>>()
    });
    let all: Vec<Vec<String>> = std::iter::once(head).chain(body).collect();
    let texts: Vec<usize> = (0..titles.len()).collect();
    aligned(&all, &texts).into_iter().map(|line| line + "\n").collect()
}

fn csv(titles: &[String], rows: &[Row]) -> String {
    let names = numbers(&Row::default()).map(|(name, _)| name.to_owned());
    let header = csv_line(titles.iter().cloned().chain(names).chain(["of".to_owned()]));
    let lines = rows.iter().map(|row| {
        let sums = numbers(row).map(|(_, number)| number.to_string());
        let of = row.of().map(|of| of.to_string()).unwrap_or_default();
        csv_line(row.columns.iter().cloned().chain(sums).chain([of]))
    });
    std::iter::once(header).chain(lines).collect()
}

fn json(titles: &[String], row: &Row) -> String {
    let mut object = Map::new();
    object.extend(titles.iter().cloned().zip(row.columns.iter().cloned().map(Value::from)));
    object.extend(numbers(row).map(|(name, number)| (name.to_owned(), number.into())));
    object.insert("of".to_owned(), row.of().into());
    escaped_json(format!("{}\n", Value::Object(object)))
}
