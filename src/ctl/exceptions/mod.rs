//! `exceptions`, `block`, `unblock` and `grant`: set, remove and list the live rows of a running service.

mod text;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use base::clock::{Clock as _, SystemClock};
use clap::{Args, Subcommand};
use engine::Entry;
use ratelimitd::cli::output::finish;
use rules::{LiveRow, Origin, read_rows};
use serde::Serialize;
use serde_json::{Value, json};
use simulate::log::Input;

pub(super) use self::text::micros;
use self::text::{Here, listed_text, removed_text, set_text};
use super::admin_call::{AdminArgs, AdminCallError};
use super::descriptor::{DescriptorArg, DescriptorError};

/// The end of each help, with its examples.
macro_rules! help {
    ($examples:literal) => {
        concat!(
            "Exit codes:\n  0  done\n  1  refused\n  2  no answer from the service or from its Redis, or unwritable output\n\nExamples:\n  ",
            $examples
        )
    };
}

/// Rows in a call.
const MOST_ROWS: usize = 1_000;

/// Set, remove and list live rows: exceptions that apply while the service runs.
///
/// Calls the admin port. A live row counts after the rows of exceptions.path. With Redis it applies on every instance
/// within about a second; without, in the process that receives the call, until that process ends.
#[derive(Clone, Debug, Args)]
#[command(after_help = help!(
    "ratelimitctl exceptions set --domain shop tenant=acme --multiplier 2 --until 2h --reason INC-42
  ratelimitctl exceptions set --domain '*' remote_address=10.0.0.0/8 --exempt --permanent --reason monitoring
  ratelimitctl exceptions remove --domain shop tenant=acme --reason 'INC-42 is over'
  ratelimitctl exceptions export --reason backup > live.yaml"
))]
pub struct ExceptionsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Set a row; replaces the row for the same entry, path and limit name
    Set(Box<SetArgs>),
    /// Remove rows, whoever set them
    Remove(RemoveArgs),
    /// List the live rows, with masked values
    List(ListArgs),
    /// Print the current rows with their values, as a file for exceptions.path
    Export(ExportArgs),
    /// Set the rows of such a file again; skips rows that are over
    Import(ImportArgs),
}

/// Block an entry: deny its requests at once.
#[derive(Clone, Debug, Args)]
#[command(after_help = help!("ratelimitctl block --domain shop remote_address=10.0.0.7 --for 2h --reason abuse"))]
pub struct BlockArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    end: End,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Remove every live row of an entry: blocks, bans and all others.
#[derive(Clone, Debug, Args)]
#[command(after_help = help!("ratelimitctl unblock --domain shop remote_address=10.0.0.7 --reason over"))]
pub struct UnblockArgs {
    /// Domain of the rows, as they were set
    #[arg(long)]
    domain: String,
    /// Entry of a descriptor
    #[arg(value_name = "KEY=VALUE", value_parser = parse_entry)]
    entry: Entry,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Grant an entry more units in the current window of its limits, until that window ends.
///
/// Needs a limit with algorithm fixed_window.
#[derive(Clone, Debug, Args)]
#[command(after_help = help!("ratelimitctl grant --domain shop customer_id=acme --add 5000 --limit-name monthly --reason 'ticket 12'"))]
pub struct GrantArgs {
    #[command(flatten)]
    target: Target,
    /// Add this number of units
    #[arg(long)]
    add: u64,
    #[command(flatten)]
    change: ChangeArgs,
}

/// What a row applies to.
#[derive(Clone, Debug, Args, Serialize)]
struct Target {
    /// Domain of the requests; `*` in it stands for any text
    #[arg(long)]
    domain: String,
    /// Change only limits of rules with this path below the domain; `*` in it stands for any text [default: *]
    #[arg(long)]
    path: Option<String>,
    /// Change only limits with this name; `*` in it stands for any text [default: *]
    #[arg(long, value_name = "NAME")]
    limit_name: Option<String>,
    /// Entry of a descriptor; the value may be a network such as 10.0.0.0/8; `\,` is a comma within a value
    #[arg(value_name = "KEY=VALUE", value_parser = parse_entry)]
    #[serde(flatten)]
    entry: Entry,
}

/// The other columns of a row.
#[derive(Clone, Debug, Default, Args, Serialize)]
struct Columns {
    /// Apply the limits of this tier
    #[arg(long)]
    tier: Option<String>,
    /// Allow this number of requests per unit
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Multiply the limit by this number
    #[arg(long, value_name = "X")]
    multiplier: Option<String>,
    /// Add this number of units to the window that contains --from
    #[arg(long, value_name = "N")]
    add: Option<u64>,
    /// Deny every request
    #[arg(long, num_args = 0, default_missing_value = "true")]
    block: Option<bool>,
    /// Admit every request without counting it
    #[arg(long, num_args = 0, default_missing_value = "true")]
    exempt: Option<bool>,
    /// Put the limits into shadow mode (true), or out of it (false)
    #[arg(long, value_name = "BOOL")]
    shadow_mode: Option<bool>,
    /// Start at this time [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only if this is still the row's version; 0: only if there is no row yet
    #[arg(long, value_name = "VERSION")]
    if_version: Option<String>,
}

#[derive(Clone, Debug, Default, Args, Serialize)]
struct End {
    /// End the row at this time (2026-12-01T00:00:00Z), or after this duration (2h)
    #[arg(long, visible_alias = "for", value_name = "TIME", conflicts_with = "permanent")]
    until: Option<String>,
    /// Keep the row until someone removes it
    #[arg(long)]
    #[serde(skip)]
    permanent: bool,
}

#[derive(Clone, Debug, Args)]
struct ChangeArgs {
    /// Log this reason, and show it with the row
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Log this name, and show it with the row [default: $USER]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, Args, Serialize)]
struct SetArgs {
    #[command(flatten)]
    #[serde(flatten)]
    target: Target,
    #[command(flatten)]
    #[serde(flatten)]
    columns: Columns,
    #[command(flatten)]
    #[serde(flatten)]
    end: End,
    #[command(flatten)]
    #[serde(skip)]
    change: ChangeArgs,
}

#[derive(Clone, Debug, Args)]
struct RemoveArgs {
    /// Domain of the rows, as they were set; without it, name rows by their ids
    #[arg(long)]
    domain: Option<String>,
    /// Remove all rows
    #[arg(long, conflicts_with_all = ["domain", "rows"])]
    all: bool,
    /// Ids of rows, from `list`; with --domain, entries
    #[arg(value_name = "ID|KEY=VALUE", required_unless_present = "all")]
    rows: Vec<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Clone, Debug, Args)]
struct ListArgs {
    /// Only rows of this domain, as they were set
    #[arg(long)]
    domain: Option<String>,
    /// Also rows that ended within the last 7 days
    #[arg(long)]
    ended: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, Args)]
struct ExportArgs {
    /// Log this reason
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, Args)]
struct ImportArgs {
    /// YAML file of rows; `-` reads standard input
    #[arg(value_name = "FILE")]
    file: String,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Debug, thiserror::Error)]
enum ExceptionsError {
    #[error(transparent)]
    Call(#[from] AdminCallError),
    #[error("say how long: --until 2h, or --permanent")]
    NoEnd,
    /// Of an entry on the command line, or of a file.
    #[error("{0}")]
    Malformed(String),
    /// An import needs one call per thousand rows.
    #[error("the first {0} rows are set, but not the others: {1}")]
    Half(usize, #[source] AdminCallError),
}

impl ExceptionsError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Call(error) | Self::Half(_, error) if !matches!(error, AdminCallError::Refused(_)) => 2,
            _ => 1,
        }
    }
}

type Answered = Result<String, ExceptionsError>;

pub fn run(args: &ExceptionsArgs) -> ExitCode {
    match &args.action {
        Action::Set(args) => done("exceptions set", args.set()),
        Action::Remove(args) => done("exceptions remove", remove(args)),
        Action::List(args) => done("exceptions list", list(args)),
        Action::Export(args) => {
            let body = json!({"reason": args.reason});
            done("exceptions export", args.admin.post("/exceptions/export", &body).map_err(Into::into))
        }
        Action::Import(args) => done("exceptions import", import(args)),
    }
}

pub fn run_block(BlockArgs { target, end, change }: BlockArgs) -> ExitCode {
    let columns = Columns { block: Some(true), ..Columns::default() };
    done("block", SetArgs { target, columns, end, change }.set())
}

pub fn run_unblock(UnblockArgs { domain, entry, change }: UnblockArgs) -> ExitCode {
    done("unblock", change.remove("rows", vec![row(&domain, &entry)]))
}

pub fn run_grant(GrantArgs { target, add, change }: GrantArgs) -> ExitCode {
    let columns = Columns { add: Some(add), ..Columns::default() };
    done("grant", SetArgs { target, columns, end: End::default(), change }.set())
}

fn done(command: &str, answered: Answered) -> ExitCode {
    let failed = answered.as_ref().err().map_or(0, ExceptionsError::exit_code);
    finish(&format!("ratelimitctl {command}"), answered, failed)
}

impl SetArgs {
    fn set(&self) -> Answered {
        let End { until, permanent } = &self.end;
        // The service ends a grant with its window.
        if until.is_none() && !permanent && self.columns.add.is_none() {
            return Err(ExceptionsError::NoEnd);
        }
        let answer = self.change.post("/exceptions/set", json!({"rows": [without_nulls(json!(self))]}))?;
        Ok(self.change.admin.shown(answer, |answer| set_text(answer, &Here::now()))?)
    }
}

impl ChangeArgs {
    fn post(&self, path: &'static str, mut body: Value) -> Result<String, AdminCallError> {
        body["reason"] = json!(self.reason);
        if let Some(by) = self.by.clone().or_else(|| variable("USER")) {
            body["by"] = by.into();
        }
        self.admin.post(path, &body)
    }

    /// `field`: `rows`, or `ids`.
    fn remove(&self, field: &str, rows: Vec<Value>) -> Answered {
        let answer = self.post("/exceptions/remove", json!({field: rows}))?;
        Ok(self.admin.shown(answer, |answer| removed_text(answer, &Here::now()))?)
    }
}

fn remove(RemoveArgs { domain, all, rows, change }: &RemoveArgs) -> Answered {
    if *all {
        let listed = listed(&change.admin, None, false)?;
        let ids: Vec<Value> = rows_of(&listed).map(|row| row["id"].clone()).collect();
        return ids.chunks(MOST_ROWS).map(|ids| change.remove("ids", ids.to_vec())).collect();
    }
    let Some(domain) = domain else {
        return change.remove("ids", rows.iter().map(|id| json!(id)).collect());
    };
    let rows = rows.iter().map(|entry| Ok(row(domain, &parse_entry(entry)?))).collect::<Result<_, String>>();
    change.remove("rows", rows.map_err(ExceptionsError::Malformed)?)
}

fn list(ListArgs { domain, ended, admin }: &ListArgs) -> Answered {
    let listed = listed(admin, domain.as_deref(), *ended)?;
    Ok(admin.shown(format!("{listed:#}\n"), |listed| listed_text(listed, &Here::now()))?)
}

fn import(ImportArgs { file, change }: &ImportArgs) -> Answered {
    let malformed = |problem: &dyn ToString| ExceptionsError::Malformed(problem.to_string());
    let input = Input::open(Path::new(file), &Arc::default()).map_err(|error| malformed(&error))?;
    let rows = read_rows(file, input.stream).map_err(|problems| malformed(&problems))?;
    let (all, now_us) = (rows.len(), SystemClock.now_us());
    let rows = rows.into_iter().filter(|row| !row.has_ended(now_us));
    let rows: Vec<_> = rows.map(|row| LiveRow::new(row, Origin::Operator, 0).columns()).collect();
    for (index, rows) in rows.chunks(MOST_ROWS).enumerate() {
        change.post("/exceptions/set", json!({"rows": rows})).map_err(|error| match index {
            0 => ExceptionsError::Call(error),
            _ => ExceptionsError::Half(index * MOST_ROWS, error),
        })?;
    }
    Ok(format!("{} rows set, {} skipped because they have ended\n", rows.len(), all - rows.len()))
}

/// Returns all pages of the list as one answer.
fn listed(admin: &AdminArgs, domain: Option<&str>, ended: bool) -> Result<Value, AdminCallError> {
    let mut rows: Vec<Value> = Vec::new();
    loop {
        let after = rows.last().map(|row| &row["id"]);
        let body = json!({"domain": domain, "ended": ended, "after": after, "limit": MOST_ROWS});
        let mut page: Value = serde_json::from_str(&admin.post("/exceptions/list", &without_nulls(body))?)?;
        let before = rows.len();
        rows.extend(rows_of(&page).cloned());
        if page["more"] != true || rows.len() == before {
            page["rows"] = rows.into();
            return Ok(page);
        }
    }
}

fn rows_of(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["rows"].as_array().into_iter().flatten()
}

fn without_nulls(mut object: Value) -> Value {
    object.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
    object
}

/// All rows for the entry.
fn row(domain: &str, entry: &Entry) -> Value {
    json!({"domain": domain, "key": entry.key, "value": entry.value})
}

/// An exception is for one entry of a descriptor.
fn parse_entry(text: &str) -> Result<Entry, String> {
    let DescriptorArg(entries) = text.parse().map_err(|error: DescriptorError| error.to_string())?;
    match <[Entry; 1]>::try_from(entries) {
        Ok([entry]) => Ok(entry),
        Err(entries) => Err(format!(
            "{} entries: an exception is for one, key=value; `\\,` is a comma within a value",
            entries.len()
        )),
    }
}

#[expect(clippy::disallowed_methods, reason = "a variable of the system, and no setting")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests;
