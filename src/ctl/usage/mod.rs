//! `usage`: who used how much, from ledger files; `now` asks a running service; `check` compares both.

mod check;
mod ledger;
mod now;
mod read;
mod selection;
mod sums;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use check::CheckArgs;
use ledger::LedgerArgs;
use now::NowArgs;

/// Show who used how much, from the files that services write as a ledger.
///
/// Adds up the lines for limits with `ledger: true`: see the setting ledger.path. A repeated line counts once.
/// Usage of a key is its units, less those returned, plus those that a failure policy admitted.
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = r"Exit codes:
  0  done
  1  something is missing: a line, the end of a process, or a file; standard error says what
  2  no line of a ledger, a malformed option, or unwritable output

Examples:
  ratelimitctl usage now --domain shop customer=acme
  ratelimitctl usage --rule monthly --by customer /var/lib/ratelimitd/usage
  ratelimitctl usage --since 2026-11-01 --until 2026-12-01 --zone Europe/Berlin --by customer --csv usage > november.csv
  ratelimitctl usage --since yesterday --by rule,customer --per hour --where customer=acme usage
  ratelimitctl usage --since 7d --by customer --top 20 --json usage"
)]
pub struct UsageArgs {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    ledger: LedgerArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    Now(NowArgs),
    Check(CheckArgs),
}

/// Usage goes to standard output, what is missing to standard error.
pub fn run(args: &UsageArgs) -> ExitCode {
    match &args.action {
        Some(Action::Now(args)) => now::run(args),
        Some(Action::Check(args)) => check::run(args),
        None => ledger::run(&args.ledger),
    }
}

/// Formats a line of CSV (RFC 4180).
fn csv_line(fields: impl Iterator<Item = String>) -> String {
    let quoted = fields.map(|field| {
        let is_plain = !field.contains([',', '"', '\n', '\r']);
        if is_plain { field } else { format!("\"{}\"", field.replace('"', "\"\"")) }
    });
    quoted.collect::<Vec<_>>().join(",") + "\n"
}
