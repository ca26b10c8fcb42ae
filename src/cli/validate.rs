//! `validate`: checks rule files.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rules::{LoadOptions, LoadedRules, Problems, load, load_stream, schema};

use super::output::{end, print, print_error};
use super::rule_options::{RuleOptions, SettingsRulesError, settings_rules};
use crate::settings::Settings;

/// Check rule files: every problem of every file, each with file, line and reason.
///
/// Exit code 0: the rules can be used. 1: they cannot, or there are warnings and --strict is given. 2: the output
/// cannot be written.
#[derive(Clone, Debug, Args)]
pub struct ValidateArgs {
    /// Treat warnings as errors: keys in the wrong place, rules that no request can reach, values in another language
    /// than that of rules, names given twice
    #[arg(long)]
    pub strict: bool,

    /// How the rule files are read
    #[command(flatten)]
    pub options: RuleOptions,

    /// Print the JSON Schema of rule files and stop
    #[arg(long)]
    pub schema: bool,

    /// Rule files, or directories with *.yaml and *.yml files; `-` alone is standard input. Without a PATH: the rules
    /// of the settings, from rules.path or from the xDS server of rules.xds.address
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// Problems go to standard error, everything else to standard output.
#[must_use]
pub fn run(args: &ValidateArgs) -> ExitCode {
    if args.schema {
        return end(print(&format!("{:#}\n", schema())), ExitCode::SUCCESS);
    }
    let (settings, options) = match args.options.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            print_error(error);
            return ExitCode::FAILURE;
        }
    };
    let loaded = match load_rules(args, &settings, options) {
        Ok(loaded) => loaded,
        Err(Unusable { text, counts }) => {
            print_error(text);
            counts.into_iter().for_each(print_error);
            return ExitCode::FAILURE;
        }
    };
    for warning in loaded.warnings.all() {
        print_error(warning);
    }
    if args.strict && loaded.warnings.warnings() > 0 {
        print_error(problem_counts(&loaded.warnings));
        return ExitCode::FAILURE;
    }
    let counts = format!("all rate limit configs ok\n{}\n", load_counts(&loaded));
    end(print(&counts), ExitCode::SUCCESS)
}

/// Why the rules cannot be used.
struct Unusable {
    text: String,
    /// Absent where there are no rules to count the problems of.
    counts: Option<String>,
}

fn load_rules(
    args: &ValidateArgs,
    settings: &Settings,
    options: LoadOptions,
) -> Result<LoadedRules, Unusable> {
    let loaded = match args.paths.as_slice() {
        [] => {
            return match settings_rules(settings, options) {
                Ok(read) => Ok(read.loaded),
                Err(error) => {
                    let problems = match &error {
                        SettingsRulesError::Rules(error) => error.problems(),
                        SettingsRulesError::Runtime(_) => None,
                    };
                    Err(Unusable { text: error.to_string(), counts: problems.map(problem_counts) })
                }
            };
        }
        [path] if path.as_os_str() == "-" => load_stream("-", io::stdin().lock(), options),
        paths => load(paths, options),
    };
    loaded
        .map_err(|problems| Unusable { text: problems.to_string(), counts: Some(problem_counts(&problems)) })
}

fn problem_counts(problems: &Problems) -> String {
    format!("{}, {}", count_of(problems.errors(), "error"), count_of(problems.warnings(), "warning"))
}

fn load_counts(loaded: &LoadedRules) -> String {
    [
        count_of(loaded.files, "file"),
        count_of(loaded.specs.len(), "domain"),
        count_of(loaded.rules.rules().len(), "rule"),
        count_of(loaded.rules.limits().len(), "limit"),
        count_of(loaded.warnings.warnings(), "warning"),
    ]
    .join(", ")
}

fn count_of(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
