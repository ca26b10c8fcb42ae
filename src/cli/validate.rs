//! `validate`: checks rule files, exception files, and the `/check` map.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use engine::Scope;
use rules::{
    LoadOptions, LoadedExceptions, LoadedRules, Problems, check_against_rules, load, load_stream, schema,
};

use super::output::{end, print, print_error};
use super::rule_options::{RuleOptions, settings_rules};
use crate::app::load_check_map;
use crate::settings::Settings;

/// Check rule files, and print every problem with file, line and reason.
///
/// Also checks the exceptions of --exceptions or of the settings, and the map of server.http.check.map. Warns about
/// exceptions that name a domain, key, tier or limit missing from the rules.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  valid rules
  1  invalid rules, or warnings with --strict
  2  cannot write the output

Examples:
  ratelimitd validate config/rules
  ratelimitd validate --strict --exceptions config/exceptions config/rules
  ratelimitd validate --digest config/rules
  kubectl get configmap rules -o jsonpath='{.data.edge\\.yaml}' | ratelimitd validate -")]
pub struct ValidateArgs {
    /// Treat warnings as errors: misplaced keys, unreachable rules, values that look like regular expressions or
    /// networks, duplicate names
    #[arg(long)]
    pub strict: bool,

    /// How the rule files are read
    #[command(flatten)]
    pub options: RuleOptions,

    /// Print only the digest of valid rules, which `/rules` of each service shows; it depends on the files alone
    #[arg(long)]
    pub digest: bool,

    /// Print the JSON Schema of rule files and exit
    #[arg(long)]
    pub schema: bool,

    /// Rule files, or directories with *.yaml and *.yml files; `-` alone reads standard input [default: rules.path or
    /// rules.xds.address of the settings]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// Problems go to standard error, everything else to standard output.
pub fn run(args: &ValidateArgs) -> ExitCode {
    if args.schema {
        return end(print(&format!("{:#}\n", schema())), ExitCode::SUCCESS);
    }
    match checked(args) {
        Ok(counts) => end(print(&counts), ExitCode::SUCCESS),
        Err(lines) => {
            lines.iter().for_each(print_error);
            ExitCode::FAILURE
        }
    }
}

/// Prints the warnings. Returns the counts, or the lines that say why the rules are invalid.
fn checked(args: &ValidateArgs) -> Result<String, Vec<String>> {
    let (settings, options) = args.options.load().map_err(|error| vec![error.to_string()])?;
    let loaded = load_rules(args, &settings, options)?;
    let exceptions = args.options.load_exceptions(&settings, None);
    let exceptions = exceptions.map_err(|error| vec![error.to_string(), problem_counts(&error.problems)])?;
    let map = settings.server.check.as_ref().map(|check| load_check_map(&check.map)).transpose();
    let map = map.map_err(|error| vec![format!("server.http.check.map: {error}")])?;
    let of_map = map.map_or_else(Vec::new, |map| map.warnings());
    let of_exceptions = exceptions.as_ref().map(|exceptions| check_against_rules(exceptions, &loaded.rules));
    let warnings: Vec<&Problems> = [&loaded.warnings].into_iter().chain(&of_exceptions).collect();
    for warning in warnings.iter().flat_map(|problems| problems.all()) {
        print_error(warning);
    }
    for warning in &of_map {
        print_error(format_args!("server.http.check.map: warning: {warning}"));
    }
    if args.strict {
        if let Some(problems) = warnings.iter().find(|problems| problems.warnings() > 0) {
            return Err(vec![problem_counts(problems)]);
        }
        if !of_map.is_empty() {
            return Err(vec![format!("{} of the map", count_of(of_map.len(), "warning"))]);
        }
    }
    if args.digest {
        return Ok(format!("{}\n", loaded.digest));
    }
    let mut counts = format!("all rate limit configs ok\n{}\n", load_counts(&loaded));
    if let (Some(exceptions), Some(problems)) = (exceptions, of_exceptions) {
        counts += &format!("{}\n", exception_counts(&exceptions, &problems));
    }
    Ok(counts)
}

/// Returns the rules, or the lines that say why they are invalid.
fn load_rules(
    args: &ValidateArgs,
    settings: &Settings,
    options: LoadOptions,
) -> Result<LoadedRules, Vec<String>> {
    let loaded = match args.paths.as_slice() {
        [] => {
            return settings_rules(settings, options).map(|read| read.loaded).map_err(|error| {
                let counts = error.problems().map(problem_counts);
                [error.to_string()].into_iter().chain(counts).collect()
            });
        }
        [path] if path.as_os_str() == "-" => load_stream("-", io::stdin().lock(), options),
        paths => load(paths, options),
    };
    loaded.map_err(|problems| vec![problems.to_string(), problem_counts(&problems)])
}

fn problem_counts(problems: &Problems) -> String {
    format!("{}, {}", count_of(problems.errors(), "error"), count_of(problems.warnings(), "warning"))
}

fn load_counts(loaded: &LoadedRules) -> String {
    let of_all_regions =
        loaded.rules.limits().iter().filter(|limit| limit.spec.scope == Scope::Global).count();
    let in_home = (of_all_regions > 0).then(|| format!("{of_all_regions} counted in home"));
    let counts = [
        count_of(loaded.files, "file"),
        count_of(loaded.specs.len(), "domain"),
        count_of(loaded.rules.rules().len(), "rule"),
        count_of(loaded.rules.limits().len(), "limit"),
        count_of(loaded.warnings.warnings(), "warning"),
    ];
    counts.into_iter().chain(in_home).collect::<Vec<_>>().join(", ")
}

fn exception_counts(loaded: &LoadedExceptions, problems: &Problems) -> String {
    let rows = loaded.files.iter().map(|file| file.rows).sum::<u64>();
    [
        format!("exceptions: {}", count_of(loaded.files.len(), "file")),
        count_of(usize::try_from(rows).unwrap_or(usize::MAX), "row"),
        count_of(problems.warnings(), "warning"),
    ]
    .join(", ")
}

fn count_of(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
