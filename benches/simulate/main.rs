//! Lines per second of `simulate`, from a file in Envoy's default text and in Envoy Gateway's JSON, beside programs
//! that only count lines: one limit per address, 100,000 addresses, an hour. Each report has a row: the table alone,
//! all numbers as JSON, the page and a recommendation with what other numbers would do, and every algorithm.
//!
//! `cargo bench --bench simulate` measures every row once per round. `-- --lines 100M --keys 10M --rounds 1 --only
//! envoy` measures memory on a large log; the log is written to the folder for temporary files (`TMPDIR`).

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time and looks for programs")]

mod access_log;
mod measure;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use tempfile::TempDir;

use access_log::{Layout, write_log};
use measure::{Run, measured, median};

const RULES: &str = "
domain: bench
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 60, algorithm: gcra }
";
const MAP: &str = "
domain: bench
descriptors:
  - - { key: remote_address, from: x-forwarded-for, take: trusted-hop 1 }
good: code < 400
";

#[derive(Parser)]
struct Options {
    /// Lines of the log; 2M are two million
    #[arg(long, default_value = "2M", value_parser = number)]
    lines: u64,
    /// Different addresses
    #[arg(long, default_value = "100k", value_parser = number)]
    keys: u64,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The unit of the limit: with `day` the counters of all addresses stay in use
    #[arg(long, default_value = "minute")]
    unit: String,
    /// Only this format
    #[arg(long)]
    only: Option<Layout>,
    /// Arguments of `simulate`
    #[arg(long, allow_hyphen_values = true)]
    with: Vec<String>,
    /// `cargo bench` gives it
    #[arg(long, hide = true)]
    bench: bool,
}

fn number(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'M']) {
        Some(digits) => (digits, if text.ends_with('k') { 1_000 } else { 1_000_000 }),
        None => (text, 1),
    };
    digits.parse::<u64>().map(|number| number * unit).map_err(|error| error.to_string())
}

/// A program, and what it is called in the table.
struct Row {
    name: String,
    command: Vec<String>,
    runs: Vec<Run>,
}

fn rows(options: &Options, folder: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    for layout in [Layout::Envoy, Layout::EnvoyJson] {
        if options.only.is_some_and(|only| only != layout) {
            continue;
        }
        let log = folder.join(layout.name());
        write_log(&log, layout, options.lines, options.keys).expect("room on the disk");
        let log = log.display().to_string();
        let path = |name: &str| folder.join(name).display().to_string();
        let mut simulate = vec![env!("CARGO_BIN_EXE_ratelimitctl").to_owned(), "simulate".to_owned()];
        simulate.extend(["--rules".to_owned(), path("rules.yaml"), "--map".to_owned(), path("map.yaml")]);
        simulate.extend(options.with.iter().cloned());
        let (page, json) = (path("page.html"), path("report.json"));
        let reports = [
            ("", vec![]),
            (" --report-json", vec!["--report-json", &json]),
            (
                " --recommend --report --report-json",
                vec!["--recommend", "--report", &page, "--report-json", &json],
            ),
            (" --algorithms", vec!["--algorithms"]),
        ];
        let mut add = |name: &str, command: Vec<String>| {
            let name = format!("{}: `{name}`", layout.name());
            rows.push(Row { name, command: [command, vec![log.clone()]].concat(), runs: Vec::new() });
        };
        for (name, arguments) in reports {
            let arguments = arguments.into_iter().map(str::to_owned);
            add(&format!("simulate{name}"), simulate.iter().cloned().chain(arguments).collect());
        }
        for counter in [&["wc", "-l"][..], &["rg", "-c", "GET"], &["mawk", "/GET/ { n++ } END { print n }"]] {
            if is_installed(counter[0]) {
                add(
                    &counter[..counter.len().min(2)].join(" "),
                    counter.iter().map(|&text| text.to_owned()).collect(),
                )
            } else {
                eprintln!("{} is not installed: its row is left out", counter[0])
            }
        }
    }
    rows
}

fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder: PathBuf| folder.join(program).is_file())
}

fn main() {
    let options = Options::parse();
    let folder = TempDir::new().expect("a temporary directory");
    let rules = RULES.replace("minute", &options.unit);
    std::fs::write(folder.path().join("rules.yaml"), rules).expect("room on the disk");
    std::fs::write(folder.path().join("map.yaml"), MAP).expect("room on the disk");
    let mut rows = rows(&options, folder.path());
    for _ in 0..options.rounds {
        for row in &mut rows {
            let mut command = Command::new(&row.command[0]);
            row.runs.push(measured(command.args(&row.command[1..])));
        }
    }
    println!("| what | lines/s | CPU s per million lines | peak memory MiB |");
    println!("|---|--:|--:|--:|");
    let lines = options.lines as f64;
    for Row { name, runs, .. } in &rows {
        let rate = median(runs.iter().map(|run| lines / run.seconds));
        let cpu = median(runs.iter().map(|run| run.cpu_seconds * 1e6 / lines));
        let memory = runs.iter().map(|run| run.peak_kib).max().unwrap_or(0).div_ceil(1_024);
        println!("| {name} | {rate:.0} | {cpu:.2} | {memory} |");
    }
}
