//! The arguments of `simulate`, and why it fails.

use std::error::Error;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use ratelimitd::cli::output::print_error;
use ratelimitd::cli::rule_options::RuleOptions;
use simulate::bounds::{Bounds, Share};
use simulate::log::Format;
use simulate::pass::Sample;
use strum::VariantNames as _;

/// Value of `--format` for which the format is detected.
const AUTO: &str = "auto";

/// Show what rules would have done to the requests of an access log.
///
/// Turns the lines of access logs into requests with a map, and decides them at their logged times, as a service would
/// have done. Prints a table of the limits: who is over which, and what would change.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  done
  1  invalid rules
  2  problem with the log, the map or the output; an interrupt; more than 1 % unreadable lines or late requests; or a
     bound that tested no request
  3  a rule breaks a bound

Examples:
  ratelimitctl simulate --rules config/rules --map config/maps/envoy-address.yaml access.log
  ratelimitctl simulate --rules new.yaml --compare config/rules --map map.yaml --report report.html access.log.1.gz access.log
  ratelimitctl simulate --rules rules/edge.yaml --map maps/edge.yaml --max-denied 0.5% --report-json report.json access.log.zst
  ratelimitctl simulate --rules config/rules --exceptions exceptions --map map.yaml access.log
  ratelimitctl simulate --rules config/rules --map map.yaml --explain-line 17 access.log")]
pub struct SimulateArgs {
    /// Test these rules: rule files, or directories with *.yaml and *.yml files
    #[arg(long, value_name = "PATH", required = true)]
    pub rules: Vec<PathBuf>,

    /// Compare with these rules, usually the current ones, and report what would change
    #[arg(long, value_name = "PATH")]
    pub compare: Vec<PathBuf>,

    /// Map lines to descriptors with this YAML file; not needed for recorded requests (jsonl)
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,

    /// Read lines in this format
    #[arg(long, default_value = AUTO, value_parser = format_names())]
    pub format: String,

    /// Sort lines within this window; set it above your longest request
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    pub reorder: Duration,

    /// Decide only one key in N, the same keys in each run; a key is the first entry of the first descriptor
    #[arg(long, value_name = "1/N", default_value_t = Sample::ALL)]
    pub sample: Sample,

    /// Also decide each limit with every other algorithm
    #[arg(long)]
    pub algorithms: bool,

    /// Recommend the smallest limits that would affect at most 0.1 % of keys and 0.01 % of good requests, with the
    /// bursts of the rule files
    #[arg(long)]
    pub recommend: bool,

    /// Write the report as a self-contained HTML page with charts
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,

    /// Write the report as JSON; `-` writes it to standard output instead of the table
    #[arg(long, value_name = "FILE|-")]
    pub report_json: Option<PathBuf>,

    /// Show keys in clear text instead of hashed; they may identify people
    #[arg(long)]
    pub show_keys: bool,

    /// Exit with code 3 if a larger share of a rule's requests is over its limit
    #[arg(long, value_name = "PERCENT%")]
    pub max_denied: Option<Share>,

    /// Exit with code 3 if a larger share of all good requests is over the limit of one rule
    #[arg(long, value_name = "PERCENT%")]
    pub max_good_denied: Option<Share>,

    /// Exit with code 3 if more keys are over the limit of one rule
    #[arg(long, value_name = "N")]
    pub max_keys_hit: Option<u64>,

    /// Accept untested bounds: a log without requests, or rules that no request matches
    #[arg(long = "allow-unmet")]
    pub allow_untested: bool,

    /// Accept any number of unreadable lines and late requests, and an incomplete log
    #[arg(long)]
    pub lenient: bool,

    /// Only show the request of line N of the first log, and the limits that apply to it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub explain_line: Option<u64>,

    /// How the rule files are read
    #[command(flatten)]
    pub options: RuleOptions,

    /// Logs in time order: files or `-` for standard input, plain or compressed with gzip or zstd
    #[arg(value_name = "LOG", required = true)]
    pub logs: Vec<PathBuf>,
}

fn format_names() -> PossibleValuesParser {
    PossibleValuesParser::new([&AUTO].into_iter().chain(Format::VARIANTS))
}

impl SimulateArgs {
    pub(super) fn format(&self) -> Option<Format> {
        self.format.parse().ok()
    }

    pub(super) fn reorder_us(&self) -> u64 {
        u64::try_from(self.reorder.as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            max_denied: self.max_denied,
            max_good_denied: self.max_good_denied,
            max_keys_hit: self.max_keys_hit,
        }
    }
}

/// Exit codes other than 0.
#[derive(Clone, Copy)]
pub(super) enum Exit {
    /// The rules have problems.
    Rules = 1,
    /// The log, the map or the output has problems, or a bound has tested nothing.
    Log = 2,
    /// A rule exceeds a bound.
    Bound = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The exit code, and what is wrong. An error without a code is one of the log.
pub struct Failure {
    pub(super) exit: Exit,
    pub(super) problem: String,
}

impl Failure {
    pub(super) fn new(exit: Exit, problem: impl Display) -> Self {
        Self { exit, problem: problem.to_string() }
    }

    /// Prints what is wrong, and returns the exit code.
    pub fn end(self) -> ExitCode {
        print_error(self.problem);
        self.exit.into()
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(Exit::Log, error)
    }
}
