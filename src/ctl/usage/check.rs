//! `usage check`: compares a ledger with a running service's counters.
//!
//! The counters are read between two readings of the ledger: they include what the first one lists, and the second one,
//! an interval later, lists what they include.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use base::{escaped, escaped_json, with_commas};
use clap::Args;
use engine::Booking;
use ratelimitd::cli::output::{end, fail, print, print_error};
use ratelimitd::ledger::{Line, QUARTER_S};
use serde_json::json;

use super::now::{entries_text, number, read_list, rows_of};
use super::read::LedgerReader;
use crate::admin_call::{AdminArgs, AdminCallError};
use crate::exceptions::micros;
use crate::simulate::table::aligned;

const DIFFERS: u8 = 1;
const FAILED: u8 = 2;
/// Most counters of a list.
const MOST: u32 = 10_000;
/// Added to the interval, for the write itself.
const WRITE_TIME: Duration = Duration::from_secs(5);
/// Readings of the ledger while it waits for lines.
const READS: u32 = 10;

/// Compare a ledger with the counters of this window, and name each difference
///
/// For a limit with `ledger: true` and a fixed window. Without an outage, a counter equals its lines' sum.
/// If requests arrive meanwhile, waits for the next lines. Name the files that all processes wrote.
#[derive(Clone, Debug, Args)]
#[command(after_help = r"Exit codes:
  0  every counter is what the ledger says
  1  some differ, or something is missing; standard error says what
  2  no answer, no such rule, a limit that cannot be compared, no line of a ledger, or unwritable output

Example:
  ratelimitctl usage check --domain api --rule monthly --token-file admin.token /var/lib/ratelimitd/usage")]
pub(super) struct CheckArgs {
    /// Domain of the rule
    #[arg(long, value_name = "DOMAIN")]
    domain: String,

    /// The limit's name in the ledger: its own, or else its rule's path
    #[arg(long, value_name = "NAME")]
    rule: String,

    #[command(flatten)]
    admin: AdminArgs,

    /// Files of a ledger, plain or compressed, or directories of them
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

/// A limit's sums in one window.
#[derive(Default)]
struct Sums {
    /// By a counter's entries.
    keys: BTreeMap<String, Booking>,
    unattributed: Booking,
}

/// The limit's counters in the current window.
struct Counters {
    /// By their entries.
    used: BTreeMap<String, u64>,
    /// Seconds since the epoch; `None` without a counter.
    window: Option<(u64, u64)>,
    /// Counters of the limit that were not read.
    left_out: u64,
}

/// The ledger does not explain this counter.
struct Difference {
    key: String,
    used: u64,
    least: u64,
    most: u64,
}

/// Differences go to standard output, what is missing to standard error.
pub(super) fn run(args: &CheckArgs) -> ExitCode {
    const COMMAND: &str = "ratelimitctl usage check";
    let mut reader = LedgerReader::default();
    match args.differences(&mut reader) {
        Err(error) => fail(COMMAND, error, FAILED),
        Ok(_) if reader.lines == 0 => fail(COMMAND, "no line of a ledger was read", FAILED),
        Ok((counters, differences)) => {
            let problems = reader.problems();
            problems.iter().for_each(print_error);
            if counters.left_out > 0 {
                print_error(format!("{} counters are not compared", with_commas(counters.left_out)));
            }
            let is_whole = problems.is_empty() && differences.is_empty() && counters.left_out == 0;
            let code = if is_whole { ExitCode::SUCCESS } else { DIFFERS.into() };
            let show = if args.admin.json { json_text } else { text };
            end(print(&show(counters.used.len(), &differences)), code)
        }
    }
}

impl CheckArgs {
    /// Returns the counters that were compared, and the differences.
    fn differences(&self, reader: &mut LedgerReader) -> Result<(Counters, Vec<Difference>), AdminCallError> {
        let quarter_s = SystemClock.now_us() / 1_000_000 / QUARTER_S * QUARTER_S;
        // All counters of a limit share their window, which contains this quarter.
        let window = self.counters(None)?.window.unwrap_or((quarter_s, u64::MAX));
        let before = self.sums(reader, window);
        let counters = self.counters(Some(window))?;
        let mut found = differences(&counters, &before, &before);
        let wait = (Duration::from_secs(reader.interval_s()) + WRITE_TIME) / READS;
        for _ in 0..READS {
            if found.is_empty() {
                break;
            }
            thread::sleep(wait);
            *reader = LedgerReader::default();
            found = differences(&counters, &before, &self.sums(reader, window));
        }
        Ok((counters, found))
    }

    /// The limit's counters in this window, or in the first one's.
    ///
    /// # Errors
    /// Also if the limit cannot be compared.
    fn counters(&self, mut window: Option<(u64, u64)>) -> Result<Counters, AdminCallError> {
        let list = read_list(&self.admin, &self.domain, &self.rule, MOST)?;
        let (rows, unknown) = (rows_of(&list["counters"]), number(&list["unknown"]));
        for limit in rows_of(&list["limits"]) {
            let reason = match &limit["name"] {
                name if *name != *self.rule => {
                    format!("--rule must be a limit's name in the ledger, such as {name}")
                }
                _ if limit["algorithm"] != "fixed_window" => "the limit has no fixed window".to_owned(),
                _ if limit["ledger"] != true => {
                    "the limit is not in the ledger: it has no `ledger: true`".to_owned()
                }
                _ => continue,
            };
            return Err(AdminCallError::Refused(reason));
        }
        let mut used = BTreeMap::new();
        for row in &rows {
            let second = |field: &str| Some(micros(row[field].as_str()?)? / 1_000_000);
            let Some(of_row) = second("window_start").zip(second("window_end")) else {
                return Err(AdminCallError::Refused("the limit has no fixed window".to_owned()));
            };
            if *window.get_or_insert(of_row) == of_row {
                used.insert(entries_text(row), number(&row["used"]));
            }
        }
        // If the list is not full, it lacks no counter, and one may be counted twice.
        let is_full = rows.len() >= MOST as usize;
        let more = if is_full { number(&list["seen"]).saturating_sub(rows.len() as u64) } else { 0 };
        Ok(Counters { used, window, left_out: more + unknown })
    }

    fn sums(&self, reader: &mut LedgerReader, (start_s, end_s): (u64, u64)) -> Sums {
        let mut sums = Sums::default();
        let mut add = |line: &Line<'_>| {
            if line.domain != self.domain || line.rule != self.rule || !(start_s..end_s).contains(&line.at) {
                return;
            }
            let sum = if line.unattributed {
                &mut sums.unattributed
            } else {
                sums.keys.entry(line.entries.join(",")).or_default()
            };
            *sum += line.sums();
        };
        self.paths.iter().for_each(|path| reader.read(path, &mut add));
        sums
    }
}

/// Compares counters with the ledger before and after they were read. Sums only grow.
/// If counters were left out, the ledger's further keys are not compared.
fn differences(counters: &Counters, before: &Sums, after: &Sums) -> Vec<Difference> {
    let further = before.keys.keys().filter(|_| counters.left_out == 0);
    let keys: BTreeSet<&String> = counters.used.keys().chain(further).collect();
    let difference = |key: &String| {
        let of_key = |sums: &Sums| sums.keys.get(key).copied().unwrap_or_default();
        let (first, last, other) = (of_key(before), of_key(after), after.unattributed);
        let (back, unknown) = (last.back + other.back, last.unknown + other.unknown);
        let least = first.units.saturating_sub(back + unknown);
        let most =
            (last.units + other.units + last.policy + other.policy + unknown).saturating_sub(first.back);
        let used = counters.used.get(key).copied().unwrap_or(0);
        (!(least..=most).contains(&used)).then(|| Difference { key: key.clone(), used, least, most })
    };
    keys.into_iter().filter_map(difference).collect()
}

fn text(compared: usize, differences: &[Difference]) -> String {
    let title = ["counter", "used", "least", "most"].map(str::to_owned).to_vec();
    let row = |difference: &Difference| {
        let Difference { key, used, least, most } = difference;
        vec![escaped(key.clone()), with_commas(*used), with_commas(*least), with_commas(*most)]
    };
    let rows: Vec<Vec<String>> = std::iter::once(title).chain(differences.iter().map(row)).collect();
    let table = if differences.is_empty() { Vec::new() } else { aligned(&rows, &[0]) };
    let table: String = table.into_iter().map(|line| line + "\n").collect();
    format!(
        "{table}counters compared: {}, differences: {}\n",
        with_commas(compared as u64),
        differences.len()
    )
}

fn json_text(compared: usize, differences: &[Difference]) -> String {
    let differences = differences.iter().map(|Difference { key, used, least, most }| {
        json!({"counter": key, "used": used, "ledger_least": least, "ledger_most": most})
    });
    escaped_json(format!(
        "{:#}\n",
        json!({"compared": compared, "differences": differences.collect::<Vec<_>>()})
    ))
}
