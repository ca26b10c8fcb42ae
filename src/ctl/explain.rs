//! `explain`: prints the limit that a descriptor matches, the path to it and its counter, or why none matches.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use base::clock::{Clock as _, SystemClock};
use clap::Args;
use engine::{Caller, Descriptor, Entry, LiveRows, Request, RuleSet};
use ratelimitd::app::ReadRules;
use ratelimitd::cli::output::{end, fail, print, print_error};
use ratelimitd::cli::rule_options::{RuleOptions, settings_rules};
use ratelimitd::cli::service_connection::CONNECTION;
use rules::{Description, describe, load};
use serde_json::{Value, json};

use super::admin_call::AdminCallArgs;
use super::admin_port::{AdminPort, parse_admin_port};
use super::descriptor::DescriptorArg;

/// Exit code if the service does not answer.
const FAILED: u8 = 2;

/// Explain which limits apply to a descriptor, and why.
///
/// Reads rules from files, from an xDS server (one request, without acknowledging the answer), or, with --admin, the
/// active rules of a running service.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  at least one limit applies
  1  no limit applies, or invalid rules or request
  2  no answer from the service, or unwritable output

Examples:
  ratelimitctl explain --rules config/rules --domain edge generic_key=slow
  ratelimitctl explain --rules config/rules --exceptions config/exceptions --domain llm tenant=acme
  ratelimitctl explain --admin http://127.0.0.1:6070 --domain edge generic_key=slow
  kubectl exec deploy/envoy-ratelimit -- ratelimitctl explain --domain eg/http path=/login,user=ann")]
pub struct ExplainArgs {
    /// Rule file, or directory with *.yaml and *.yml files; repeatable [default: rules.path or rules.xds.address of the
    /// settings]
    #[arg(long, value_name = "PATH")]
    pub rules: Vec<PathBuf>,

    /// Domain of the request
    #[arg(long, value_name = "DOMAIN")]
    pub domain: String,

    /// How the rule files are read
    #[command(flatten)]
    pub options: RuleOptions,

    /// Explain the active rules of the service with this admin port: an address like http://127.0.0.1:6070, https://
    /// for TLS, or unix:/path/to/socket
    #[arg(
        long, help_heading = CONNECTION, value_name = "ADDRESS", value_parser = parse_admin_port,
        conflicts_with_all = ["rules", "config", "merge_domains"]
    )]
    pub admin: Option<AdminPort>,

    #[command(flatten)]
    pub call: AdminCallArgs,

    /// Descriptors of the request, each as key=value[,key=value...]; `\,` is a comma within a value
    #[arg(value_name = "DESCRIPTOR", required = true)]
    pub descriptors: Vec<DescriptorArg>,
}

/// The explanation goes to standard output, errors to standard error.
#[must_use]
pub fn run(args: &ExplainArgs) -> ExitCode {
    if let Some(admin) = &args.admin {
        return run_by_service(args, admin);
    }
    match explanation(args) {
        Ok(Description { text, matched }) => {
            end(print(&text), if matched > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            print_error(error);
            ExitCode::FAILURE
        }
    }
}

/// Prints a running service's explanation by its current rules.
fn run_by_service(args: &ExplainArgs, admin: &AdminPort) -> ExitCode {
    let descriptors: Value = args.descriptors.iter().map(|descriptor| descriptor.json(None)).collect();
    let body = json!({"domain": args.domain, "descriptors": descriptors}).to_string();
    let answer = args.call.post(admin, "/explain", body);
    match answer.and_then(|answer| Ok(serde_json::from_str::<Value>(&answer)?)) {
        Ok(answer) => {
            let has_limit = answer["matched"].as_u64().is_some_and(|matched| matched > 0);
            let code = if has_limit { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            end(print(answer["text"].as_str().unwrap_or_default()), code)
        }
        Err(error) => fail("ratelimitctl explain", error, FAILED),
    }
}

fn explanation(args: &ExplainArgs) -> Result<Description, Box<dyn Error>> {
    let (settings, options) = args.options.load()?;
    let read = if args.rules.is_empty() {
        settings_rules(&settings, options)?
    } else {
        ReadRules { loaded: load(&args.rules, options)?, server: None }
    };
    let request = request(args);
    let entries = entries(&read.loaded.rules, &request);
    let rules = match args.options.load_exceptions(&settings, Some(&entries))? {
        Some(loaded) => read.loaded.rules.with_exceptions(loaded.exceptions, &LiveRows::default()),
        None => read.loaded.rules.clone(),
    };
    let mut description = describe(&rules, &read.loaded.upgrades, &request, SystemClock.now_us())?;
    description.text.insert_str(0, &source(&read, &args.domain));
    Ok(description)
}

/// Returns the entries that exceptions can name: the request's entries, and its secret values with the hash that is
/// shown.
fn entries(rules: &RuleSet, request: &Request) -> Vec<Entry> {
    let mut entries = Vec::new();
    for entry in request.descriptors.iter().flat_map(|descriptor| &descriptor.entries) {
        let hash = rules.hidden_value(&request.domain, entry);
        entries.extend(hash.map(|hash| Entry { key: entry.key.clone(), value: hash.into() }));
        entries.push(entry.clone());
    }
    entries
}

/// The domain's resource; empty for files.
fn source(read: &ReadRules, domain: &str) -> String {
    let Some((server, version)) = &read.server else { return String::new() };
    let documents = read.loaded.documents.iter().filter(|known| known.name == domain);
    let resources: String =
        documents.flat_map(|known| &known.documents).map(|name| format!(", resource '{name}'")).collect();
    format!("Rules from the xDS server {server}, version '{version}'{resources}\n")
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
