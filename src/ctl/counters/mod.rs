//! `counters`: shows, resets or sets a descriptor's counters in a running service. `import` sets many.

pub mod import;

use std::process::ExitCode;
use std::time::Duration;

use base::{escaped, escaped_json, readable_duration};
use clap::{Args, Subcommand};
use ratelimitd::cli::output::finish;
use serde_json::{Value, json};

use super::admin_call::{AdminArgs, AdminCallError};
use super::descriptor::{DescriptorArg, LimitArg};
use super::exceptions::micros;
use import::ImportArgs;

const FAILED: u8 = 2;

/// Show, reset or set counters in a running service, by descriptor.
///
/// Calls the admin port. Shows or resets the counters of all limits of the rule that the descriptor matches, or sets
/// the counter of one.
#[derive(Clone, Debug, Args)]
#[command(after_help = r"Exit codes:
  0  done
  1  import: some counters are not set; the reasons are on standard error
  2  no counter for the descriptor, --limit or --limit-name, no answer, or unwritable output

Examples:
  ratelimitctl counters show --domain edge tenant=acme,path=/search
  ratelimitctl counters reset --domain accounts login=ann
  ratelimitctl counters set --domain shop --limit-name monthly --used 700 --reason go-live customer=acme
  ratelimitctl counters add --domain shop --limit-name monthly --units -50 --reason 'ticket 12' customer=acme
  ratelimitctl counters import --domain shop --limit-name monthly --reason go-live used.csv
  ratelimitctl counters show --admin unix:/run/ratelimitd/admin.sock --domain edge tenant=acme,path=/search
  ratelimitctl counters show --admin https://ratelimit:6070 --ca-file ca.crt --domain edge tenant=acme,path=/search")]
pub struct CountersArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Show the counters; changes nothing
    Show(CounterArgs),
    /// Reset the counters to zero; the service logs each reset
    Reset(ChangeArgs),
    /// Set the used units of one limit; the service logs each change
    Set(SetArgs),
    /// Add to the used units of one limit; the service logs each change
    Add(AddArgs),
    /// Set the used units of one limit for each row of a CSV file; safe to repeat
    Import(ImportArgs),
}

#[derive(Clone, Debug, Args)]
struct SetArgs {
    /// Used units in the running window, or of the bucket at this moment
    #[arg(long, value_name = "N")]
    used: u64,

    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Clone, Debug, Args)]
struct AddArgs {
    /// Units to add; negative to return units, at most all
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    units: i64,

    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Clone, Debug, Args)]
struct ChangeArgs {
    #[command(flatten)]
    counters: CounterArgs,

    /// Only the counter with this limit name
    #[arg(long, value_name = "NAME")]
    limit_name: Option<String>,

    /// Log this reason with the change
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct CounterArgs {
    /// Domain of the descriptor
    #[arg(long, value_name = "DOMAIN")]
    domain: String,

    /// Select the counter of a limit that requests send with this descriptor, such as 5/minute or 100/15minute,
    /// instead of the limits of the rules
    #[arg(long, value_name = "N/UNIT")]
    limit: Option<LimitArg>,

    #[command(flatten)]
    admin: AdminArgs,

    /// Descriptor as key=value[,key=value...]; `\,` is a comma within a value
    #[arg(value_name = "DESCRIPTOR")]
    descriptor: DescriptorArg,
}

#[derive(Debug, thiserror::Error)]
enum CountersError {
    #[error(transparent)]
    Call(#[from] AdminCallError),
    /// If the counter of `--limit` does not exist, the user probably meant a limit of the rules.
    #[error(
        "nothing was reset: --limit selects the counter of a limit sent with requests, and this counter is \
         empty; to reset all limits of the rules that the descriptor matches, leave out --limit"
    )]
    UnusedLimit,
}

/// Counters go to standard output, errors to standard error.
pub fn run(args: &CountersArgs) -> ExitCode {
    let (path, counters, body) = match &args.action {
        Action::Show(args) => ("/counters/show", args, args.body()),
        Action::Reset(args) => ("/counters/reset", &args.counters, args.body("", Value::Null)),
        Action::Set(SetArgs { used, change }) => {
            ("/counters/set", &change.counters, change.body("used", (*used).into()))
        }
        Action::Add(AddArgs { units, change }) => {
            ("/counters/add", &change.counters, change.body("units", (*units).into()))
        }
        Action::Import(args) => return import::run(args),
    };
    let posted = counters.admin.post(path, &body).map_err(CountersError::from);
    finish("ratelimitctl counters", posted.and_then(|answer| answer_text(counters, answer)), FAILED)
}

impl CounterArgs {
    fn body(&self) -> Value {
        json!({"domain": self.domain, "descriptors": [self.descriptor.json(self.limit.as_ref())]})
    }
}

impl ChangeArgs {
    /// `field`: the field with the units, unless they are null.
    fn body(&self, field: &str, units: Value) -> Value {
        let mut body = self.counters.body();
        for (name, value) in
            [("reason", json!(self.reason)), ("limit_name", json!(self.limit_name)), (field, units)]
        {
            if !value.is_null() {
                body[name] = value;
            }
        }
        body
    }
}

fn answer_text(args: &CounterArgs, answer: String) -> Result<String, CountersError> {
    let read: Value = serde_json::from_str(&answer).map_err(AdminCallError::from)?;
    let counters: Vec<&Value> = read["counters"].as_array().into_iter().flatten().collect();
    if args.limit.is_some() && counters.iter().all(|counter| counter["had_units"] == false) {
        return Err(CountersError::UnusedLimit);
    }
    if args.admin.json {
        return Ok(escaped_json(answer));
    }
    Ok(counters.into_iter().map(counter_text).collect())
}

fn counter_text(counter: &Value) -> String {
    let key = counter["key"].as_str().unwrap_or_default();
    if let Some(had_units) = counter["had_units"].as_bool() {
        return escaped(format!("{key}: {}", if had_units { "reset" } else { "already empty" })) + "\n";
    }
    let units = |field: &str| counter[field].as_u64().unwrap_or_default();
    let text = |field: &str| counter[field].as_str().unwrap_or_default();
    if counter["limit"].is_null() {
        return escaped(format!("{key}: {} used, unlimited ({})", units("used"), text("name"))) + "\n";
    }
    if counter["algorithm"].is_null() {
        let (used, left, limit) = (units("used"), units("remaining"), text("name"));
        return escaped(format!("{key}: {used} used, {left} left ({limit})")) + "\n";
    }
    let at = |field: &str| micros(text(field));
    let until = |us: u64| {
        readable_duration(Duration::from_micros(us.saturating_sub(at("read_at").unwrap_or_default())))
    };
    let wait = match (units("remaining"), at("refills_at")) {
        (1.., _) => String::new(),
        (0, Some(us)) => format!(", next unit in {}", until(us)),
        (0, None) => ", never refills".to_owned(),
    };
    if text("algorithm") == "concurrency" {
        let time = |slot: &Value, field: &str| slot[field].as_str().and_then(micros).unwrap_or_default();
        let read_at = at("read_at").unwrap_or_default();
        let slot = |slot: &Value| {
            let since = readable_duration(Duration::from_micros(read_at.saturating_sub(time(slot, "since"))));
            format!(", since {since} (ends in {})", until(time(slot, "ends")))
        };
        let slots: String = counter["slots"].as_array().into_iter().flatten().map(slot).collect();
        let (used, limit) = (units("used"), units("limit"));
        return escaped(format!("{key}: {used} of {limit} open{slots} ({})", text("name"))) + "\n";
    }
    let exception = counter["exception"].as_str().map(|way| escaped(format!("  exception: {way}")) + "\n");
    let state = format!(
        "{key}: {} of {} left{wait}, full again in {} ({}, {})",
        units("remaining"),
        units("limit"),
        until(at("resets_at").unwrap_or_default()),
        text("name"),
        text("algorithm"),
    );
    let borrowed = counter["borrowed"].as_u64();
    let borrowed = borrowed.map(|units| format!("  lent to this instance: {units} units, not used yet\n"));
    let scope = counter["scope"].as_str().map(|_| "  counted in home, for all regions\n".to_owned());
    let lines: String = [exception, scope, borrowed].into_iter().flatten().collect();
    format!("{}\n{lines}", escaped(state))
}
