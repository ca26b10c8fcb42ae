//! `counters import`: sets many counters through the admin port, a few in each call, one call after the other.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use engine::Entry;
use ratelimitd::cli::output::{end, fail, print, print_error};
use rules::{CsvLines, RowFault};
use serde_json::{Value, json};

use super::super::admin_call::{AdminArgs, AdminCallError};
use super::super::descriptor::DescriptorArg;
use super::{FAILED, LimitChoice};

/// Counters of one call. A service may not accept more descriptors.
const ROWS_IN_A_CALL: usize = 32;
const USED: &str = "used";

#[derive(Clone, Debug, Args)]
pub(super) struct ImportArgs {
    /// Domain of the descriptors
    #[arg(long, value_name = "DOMAIN")]
    domain: String,

    #[command(flatten)]
    choice: LimitChoice,

    #[command(flatten)]
    target: SetTarget,

    /// CSV file, `-` for standard input; the column `used` has the units, the other columns are named by the keys of the
    /// descriptor, in its order
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
    pub admin: AdminArgs,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    Call(#[from] AdminCallError),
    #[error("{file}: {reason}")]
    File { file: String, reason: String },
    /// Nothing else would be set, either.
    #[error("stopped, because none of the last {0} counters could be set")]
    AllFailed(usize),
}

/// Sets counters in calls of a few. A counter that cannot be set is a line on standard error.
pub struct CounterSetter<'a> {
    target: &'a SetTarget,
    /// By domain and name of the limit.
    waiting: HashMap<(String, Option<String>), Vec<Counter>>,
    pub set: u64,
    pub failed: u64,
}

struct Counter {
    /// For messages about it.
    place: String,
    descriptor: Value,
}

pub(super) fn run(args: &ImportArgs) -> ExitCode {
    let mut setter = CounterSetter::new(&args.target);
    let read = import(args, &mut setter);
    setter.end("ratelimitctl counters import", read)
}

fn import(args: &ImportArgs, setter: &mut CounterSetter<'_>) -> Result<(), ImportError> {
    let wrong = |reason: String| ImportError::File { file: args.file.display().to_string(), reason };
    let stream: Box<dyn BufRead> = if args.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(&args.file).map_err(|error| wrong(error.to_string()))?))
    };
    let mut lines = CsvLines::new(stream);
    let mut columns: Vec<String> = Vec::new();
    loop {
        let row = match lines.next_row() {
            Ok(false) if columns.is_empty() => return Err(wrong("the file is empty".to_owned())),
            Ok(false) => return setter.finish(),
            Ok(true) if columns.is_empty() => {
                columns = lines.fields().map(|name| name.trim().to_owned()).collect();
                if columns.len() < 2 || columns.iter().filter(|name| *name == USED).count() != 1 {
                    let expected =
                        "the first line must name the columns: the keys of the descriptor, and used";
                    return Err(wrong(expected.to_owned()));
                }
                continue;
            }
            Ok(true) => read_row(&columns, &lines.fields().collect::<Vec<_>>()),
            Err(RowFault::Text(reason)) => Err(reason),
            Err(RowFault::Io(error)) => return Err(wrong(error.to_string())),
        };
        let place = format!("{}:{}", args.file.display(), lines.line());
        match row {
            Ok((entries, used)) => {
                let limit = (args.domain.clone(), args.choice.limit_name.clone());
                setter.set(limit, place, entries, used)?;
            }
            Err(reason) => setter.fail(&place, &reason),
        }
    }
}

fn read_row(columns: &[String], fields: &[&str]) -> Result<(Vec<Entry>, u64), String> {
    if fields.len() != columns.len() {
        return Err(format!("expected {} columns, found {}", columns.len(), fields.len()));
    }
    let (mut entries, mut used) = (Vec::new(), Err(format!("{USED} must be a whole number")));
    for (name, field) in columns.iter().zip(fields) {
        if name == USED {
            used = field.trim().parse().or(used);
        } else {
            entries.push(Entry { key: name.clone(), value: (*field).to_owned() });
        }
    }
    Ok((entries, used?))
}

impl<'a> CounterSetter<'a> {
    pub fn new(target: &'a SetTarget) -> Self {
        Self { target, waiting: HashMap::new(), set: 0, failed: 0 }
    }

    /// Sets a counter, now or with the next ones. `limit`: domain and name of the limit; `place` is for messages.
    ///
    /// # Errors
    /// [`ImportError`] if the service does not answer, or refuses all counters of a call.
    pub fn set(
        &mut self,
        limit: (String, Option<String>),
        place: String,
        entries: Vec<Entry>,
        used: u64,
    ) -> Result<(), ImportError> {
        let mut descriptor = DescriptorArg(entries).json(None);
        descriptor[USED] = used.into();
        let waiting = self.waiting.entry(limit.clone()).or_default();
        waiting.push(Counter { place, descriptor });
        if waiting.len() < ROWS_IN_A_CALL {
            return Ok(());
        }
        let (full, before) = (std::mem::take(waiting), self.set);
        self.send(&limit, full)?;
        if self.set == before { Err(ImportError::AllFailed(ROWS_IN_A_CALL)) } else { Ok(()) }
    }

    /// Sets the counters that wait.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub fn finish(&mut self) -> Result<(), ImportError> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().try_for_each(|(limit, counters)| self.send(&limit, counters))
    }

    /// Counts a counter that is not set, and says why.
    pub fn fail(&mut self, place: &str, reason: &str) {
        self.failed += 1;
        print_error(format_args!("{place}: {}", reason.trim_end()));
    }

    fn send(&mut self, limit: &(String, Option<String>), counters: Vec<Counter>) -> Result<(), ImportError> {
        let SetTarget { reason, admin } = self.target;
        let descriptors: Vec<&Value> = counters.iter().map(|counter| &counter.descriptor).collect();
        let body =
            json!({"domain": limit.0, "limit_name": limit.1, "reason": reason, "descriptors": descriptors});
        let answer = match admin.post("/counters/set", &body) {
            Ok(answer) => answer,
            // The reason may be one of them.
            Err(AdminCallError::Refused(_)) if counters.len() > 1 => {
                return counters.into_iter().try_for_each(|counter| self.send(limit, vec![counter]));
            }
            Err(AdminCallError::Refused(reason)) => {
                counters.iter().for_each(|counter| self.fail(&counter.place, &reason));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let answer: Value = serde_json::from_str(&answer).map_err(AdminCallError::from)?;
        for (index, Counter { place, .. }) in counters.iter().enumerate() {
            match &answer["counters"][index] {
                Value::Null => self.fail(place, "no answer"),
                changed => match changed["error"].as_str() {
                    Some(reason) => self.fail(place, reason),
                    None => self.set += 1,
                },
            }
        }
        Ok(())
    }

    /// Prints how many counters were set, and returns the exit code.
    pub fn end(&self, command: &str, result: Result<(), ImportError>) -> ExitCode {
        let Self { set, failed, .. } = self;
        let text = if self.target.admin.json {
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
