//! `explain`: prints the limit that a descriptor matches, the path to it and its counter; or why none matches.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::descriptor::DescriptorArg;
use super::output::{end, print, report};
use super::rule_options::RuleOptions;
use crate::engine::{Caller, Descriptor, Request};
use crate::rules::{describe, load};

/// Explain which limits apply to a descriptor, and why.
///
/// Exit code 0: at least one limit applies. 1: none does, or the rules or the request cannot be read. 2: the output
/// cannot be written.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// A rule file, or a directory with *.yaml and *.yml files; may be given several times
    #[arg(long, value_name = "PATH", required = true)]
    pub rules: Vec<PathBuf>,

    /// The domain of the request
    #[arg(long, value_name = "DOMAIN")]
    pub domain: String,

    /// How the rule files are read
    #[command(flatten)]
    pub options: RuleOptions,

    /// The request's descriptors, each as key=value[,key=value...]; `\,` is a comma within a value
    #[arg(value_name = "DESCRIPTOR", required = true)]
    pub descriptors: Vec<DescriptorArg>,
}

/// The explanation goes to standard output, errors to standard error.
#[must_use]
pub fn run(args: &ExplainArgs) -> ExitCode {
    let options = match args.options.load() {
        Ok(options) => options,
        Err(error) => {
            report(error);
            return ExitCode::FAILURE;
        }
    };
    let loaded = match load(&args.rules, options) {
        Ok(loaded) => loaded,
        Err(problems) => {
            report(problems);
            return ExitCode::FAILURE;
        }
    };
    match describe(&loaded.rules, &loaded.upgrades, &request(args)) {
        Ok(description) => {
            let code = if description.matched > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            end(print(&description.text), code)
        }
        Err(error) => {
            report(error);
            ExitCode::FAILURE
        }
    }
}

fn request(args: &ExplainArgs) -> Request {
    let descriptor = |DescriptorArg(entries): &DescriptorArg| Descriptor {
        entries: entries.clone(),
        ..Descriptor::default()
    };
    let descriptors = args.descriptors.iter().map(descriptor);
    Request {
        domain: args.domain.clone(),
        hits_addend: 1,
        descriptors: descriptors.collect(),
        caller: Caller::default(),
    }
}
