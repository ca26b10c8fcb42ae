//! `replay`: decides recorded requests by a rule set, on a virtual clock.

use std::io::{self, BufReader, BufWriter, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Args;
use engine::RuleSet;
use indicatif::ProgressBar;
use ratelimitd::cli::output::{end, print_error};
use ratelimitd::cli::rule_options::RuleOptions;
use simulate::log::Input;
use simulate::replay::{MemoryReplay, RedisAccess, RedisReplay, ReplayError, ReplayStore, Summary, replay};

use super::progress_bar::progress_bar;
use super::simulate::{Failure, load_rules};

const BUFFER_BYTES: usize = 1 << 20;

/// Decide recorded requests by a rule set, on a virtual clock.
///
/// Reads JSON lines `{"t_us":…,"domain":…,"hits_addend":…,"descriptors":[…]}`, whose descriptors take every field of
/// the protobuf JSON mapping, and writes one JSON line of statuses for each. Prints a summary to standard error.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  all requests decided
  1  invalid rules
  2  invalid requests, or the store failed

Examples:
  ratelimitctl replay --rules config/rules --requests yesterday.jsonl > answers.jsonl
  ratelimitctl replay --rules new-rules.yaml --requests requests.jsonl.gz --redis redis://127.0.0.1/ > answers.jsonl")]
pub struct ReplayArgs {
    /// Rule files, or directories with *.yaml and *.yml files
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    pub rules: Vec<PathBuf>,

    /// Read requests from this file, `-` for standard input
    #[arg(long, value_name = "FILE|-")]
    pub requests: PathBuf,

    /// Decide in Redis, with the service's scripts, under a temporary key prefix
    #[arg(long, value_name = "URL")]
    pub redis: Option<String>,

    /// Read the Redis password from the first line of this file; the process list shows a password in the URL
    #[arg(long, value_name = "FILE", requires = "redis")]
    pub redis_password_file: Option<PathBuf>,

    /// For rediss://: trust the CAs in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", requires = "redis")]
    pub redis_ca_file: Option<PathBuf>,

    /// For rediss://: present this client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "redis", requires = "redis_key_file")]
    pub redis_cert_file: Option<PathBuf>,

    /// For rediss://: use this private key for --redis-cert-file (PEM)
    #[arg(long, value_name = "FILE", requires = "redis", requires = "redis_cert_file")]
    pub redis_key_file: Option<PathBuf>,

    /// How the rule files are read
    #[command(flatten)]
    pub options: RuleOptions,
}

/// Answers go to standard output; the summary, the progress bar and errors to standard error.
pub fn run(args: &ReplayArgs) -> ExitCode {
    let rules = match load_rules(&args.options, &args.rules) {
        Ok((loaded, ..)) => loaded.into_rules(),
        Err(failure) => return failure.end(),
    };
    match run_replay(args, &rules) {
        Ok(summary) => {
            print_error(summary.to_string().trim_end());
            ExitCode::SUCCESS
        }
        Err(ReplayError::Write(error)) => end(Err(error), ExitCode::SUCCESS),
        Err(error) => Failure::from(error).end(),
    }
}

fn run_replay(args: &ReplayArgs, rules: &RuleSet) -> Result<Summary, ReplayError> {
    match &args.redis {
        None => {
            let mut store = MemoryReplay::new();
            let summary = with_progress(args, rules, &mut store)?;
            if store.stats().evictions > 0 {
                let evictions = store.stats().evictions;
                print_error(format_args!("warning: {evictions} counters were evicted: the store was full"));
            }
            Ok(summary)
        }
        Some(url) => {
            let mut store = RedisReplay::connect(redis_access(args, url))?;
            let result = with_progress(args, rules, &mut store);
            // Removes the keys also after an error.
            store.remove_keys()?;
            result
        }
    }
}

fn redis_access(args: &ReplayArgs, url: &str) -> RedisAccess {
    RedisAccess {
        url: url.to_owned(),
        password_file: args.redis_password_file.clone(),
        ca_file: args.redis_ca_file.clone(),
        identity: args.redis_cert_file.clone().zip(args.redis_key_file.clone()),
    }
}

fn with_progress(
    args: &ReplayArgs,
    rules: &RuleSet,
    store: &mut impl ReplayStore,
) -> Result<Summary, ReplayError> {
    let opened = Input::open(&args.requests, &Arc::default());
    let input = opened.map_err(|error| ReplayError::Read(io::Error::other(error)))?;
    let requests = BufReader::with_capacity(BUFFER_BYTES, input.stream);
    let mut answers = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    // The bar and the answers would overwrite each other on one terminal.
    let bar = if io::stdout().is_terminal() {
        ProgressBar::hidden()
    } else {
        progress_bar(
            input.size,
            "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            "{spinner} {bytes}, {bytes_per_sec}",
        )
    };
    let summary = replay(rules, store, (requests, &mut answers), |_| {
        bar.set_position(input.read_bytes.load(Ordering::Relaxed));
    });
    bar.finish_and_clear();
    summary
}
