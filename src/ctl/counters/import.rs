//! `counters import`: sets many counters through the admin port, one after the other.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use engine::Entry;
use ratelimitd::cli::output::{end, fail, print, print_error};
use rules::{CsvLines, RowFault};
use serde_json::json;
use simulate::log::Input;

use super::super::admin_call::{AdminArgs, AdminCallError};
use super::super::descriptor::DescriptorArg;
use super::FAILED;

/// The column with the units.
const USED: &str = "used";
/// If the service refuses as many counters one after the other, it would refuse the others, too.
const MOST_REFUSED: u64 = 100;

#[derive(Clone, Debug, Args)]
pub(super) struct ImportArgs {
    /// Domain of the descriptors
    #[arg(long, value_name = "DOMAIN")]
    domain: String,

    /// Set the counters of a limit by its name
    #[arg(long, value_name = "NAME")]
    limit_name: Option<String>,

    #[command(flatten)]
    target: SetTarget,

    /// CSV file, `-` for standard input; the column `used` holds the units, the other columns are named by the keys of
    /// the descriptor, in its order
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
}

/// Where counters are set, and why.
#[derive(Clone, Debug, Args)]
pub struct SetTarget {
    /// Log this reason with each change
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    Call(#[from] AdminCallError),
    /// What the counters are read from, and why they cannot be read.
    #[error("{0}: {1}")]
    Source(String, String),
    #[error("stopped, because the service refused {MOST_REFUSED} counters in a row")]
    ManyRefused,
}

/// Sets counters. A counter that cannot be set is a line on standard error.
pub struct CounterSetter<'a> {
    target: &'a SetTarget,
    set: u64,
    failed: u64,
    refused_in_a_row: u64,
}

pub(super) fn run(args: &ImportArgs) -> ExitCode {
    let mut setter = CounterSetter::new(&args.target);
    let imported = import(args, &mut setter);
    setter.end("ratelimitctl counters import", imported)
}

fn import(args: &ImportArgs, setter: &mut CounterSetter<'_>) -> Result<(), ImportError> {
    let wrong =
        |reason: &dyn ToString| ImportError::Source(args.file.display().to_string(), reason.to_string());
    let input = Input::open(&args.file, &Arc::default()).map_err(|error| wrong(&error.cause))?;
    let mut lines = CsvLines::new(BufReader::new(input.stream));
    let mut columns: Vec<String> = Vec::new();
    loop {
        let row = match lines.next_row() {
            Ok(false) if columns.is_empty() => return Err(wrong(&"the file is empty")),
            Ok(false) => return Ok(()),
            Ok(true) if columns.is_empty() => {
                columns = lines.fields().map(|name| name.trim().to_owned()).collect();
                if columns.len() < 2 || columns.iter().filter(|name| *name == USED).count() != 1 {
                    return Err(wrong(
                        &"the first line must name the columns: the keys of the descriptor, and used",
                    ));
                }
                continue;
            }
            Ok(true) => read_row(&columns, &lines.fields().collect::<Vec<_>>()),
            Err(RowFault::Text(reason)) => Err(reason),
            Err(RowFault::Io(error)) => return Err(wrong(&error)),
        };
        let place = format!("{}:{}", args.file.display(), lines.line);
        match row {
            Ok((entries, used)) => {
                setter.set(&place, (&args.domain, args.limit_name.as_deref()), entries, used)?;
            }
            Err(reason) => setter.fail(&place, &reason),
        }
    }
}

fn read_row(columns: &[String], fields: &[&str]) -> Result<(Vec<Entry>, u64), String> {
    if fields.len() != columns.len() {
        return Err(format!("expected {} columns, found {}", columns.len(), fields.len()));
    }
    let (of_units, of_entries): (Vec<_>, Vec<_>) =
        columns.iter().zip(fields).partition(|(name, _)| *name == USED);
    let used = of_units.first().and_then(|(_, units)| units.trim().parse().ok());
    let entry = |(key, value): (&String, &&str)| Entry { key: key.clone(), value: (*value).to_owned() };
    Ok((of_entries.into_iter().map(entry).collect(), used.ok_or("used must be a whole number")?))
}

impl<'a> CounterSetter<'a> {
    pub fn new(target: &'a SetTarget) -> Self {
        Self { target, set: 0, failed: 0, refused_in_a_row: 0 }
    }

    /// Sets a counter. `place` is for messages.
    ///
    /// # Errors
    /// [`ImportError`] if the service does not answer, or refuses too many counters in a row.
    pub fn set(
        &mut self,
        place: &str,
        (domain, limit_name): (&str, Option<&str>),
        entries: Vec<Entry>,
        used: u64,
    ) -> Result<(), ImportError> {
        let SetTarget { reason, admin } = self.target;
        let descriptors = [DescriptorArg(entries).json(None)];
        let body = json!({
            "domain": domain, "descriptors": descriptors, "limit_name": limit_name, "used": used, "reason": reason,
        });
        match admin.post("/counters/set", &body) {
            Ok(_) => (self.set, self.refused_in_a_row) = (self.set + 1, 0),
            Err(AdminCallError::Refused(reason)) => {
                self.fail(place, &reason);
                self.refused_in_a_row += 1;
                if self.refused_in_a_row == MOST_REFUSED {
                    return Err(ImportError::ManyRefused);
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Says why a counter is not set.
    pub fn fail(&mut self, place: &str, reason: &str) {
        self.failed += 1;
        print_error(format_args!("{place}: {}", reason.trim_end()));
    }

    /// Prints how many counters were set, and returns the exit code.
    pub fn end(&self, command: &str, result: Result<(), ImportError>) -> ExitCode {
        let Self { target, set, failed, .. } = self;
        let text = if target.admin.json {
            format!("{}\n", json!({"set": set, "failed": failed}))
        } else {
            format!("{set} counters set, {failed} not\n")
        };
        let printed = print(&text);
        match result {
            Err(error) => fail(command, error, FAILED),
            Ok(()) => end(printed, ExitCode::from(u8::from(*failed > 0))),
        }
    }
}
