//! `explain`: prints the limit that a descriptor matches, the path to it and its counter, or why none matches.
//! `past_decision` explains past decisions from their metadata.

mod past_decision;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use base::clock::{Clock as _, SystemClock};
use clap::Args;
use engine::wire::json::Object;
use engine::{Bounds, Entry, LiveRows, RawRequest, Request, RuleSet};
use ratelimitd::app::ReadRules;
use ratelimitd::cli::output::{end, fail, print, print_error};
use ratelimitd::cli::rule_options::{RuleOptions, settings_rules};
use ratelimitd::cli::service_connection::CONNECTION;
use rules::{Description, describe, load};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::admin_call::{AdminCallArgs, AdminCallError};
use super::admin_port::AdminPort;
use super::descriptor::DescriptorArg;

/// Exit code if the service does not answer.
const FAILED: u8 = 2;

/// Wider than for the network, because the operator wrote the request.
const BOUNDS: Bounds = Bounds { max_descriptors: 1_024, max_entries: 1_024, max_value_bytes: 1 << 20 };

/// Explain which limits apply to a descriptor, and why.
///
/// Reads rules from files, from an xDS server (one request, without acknowledging the answer), or, with --admin, the
/// active rules of a running service.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  at least one limit applies
  1  no limit applies, or invalid rules or request
  2  no answer from the service, or unwritable output
With --decision: 0 if this is so for every line.

Examples:
  ratelimitctl explain --rules config/rules --domain edge generic_key=slow
  ratelimitctl explain --rules config/rules --exceptions config/exceptions --domain llm tenant=acme
  ratelimitctl explain --admin http://127.0.0.1:6070 --domain edge generic_key=slow
  tail -1 access.json | jq -c .ratelimit | ratelimitctl explain --rules config/rules --decision -
  kubectl exec deploy/envoy-ratelimit -- ratelimitctl explain --domain eg/http path=/login,user=ann")]
pub struct ExplainArgs {
    /// Rule file, or directory with *.yaml and *.yml files; repeatable [default: rules.path or rules.xds.address of the
    /// settings]
    #[arg(long, value_name = "PATH")]
    pub rules: Vec<PathBuf>,

    /// Domain of the request
    #[arg(
        long,
        value_name = "DOMAIN",
        required_unless_present = "decision",
        default_value = "",
        hide_default_value = true
    )]
    pub domain: String,

    /// Explain past decisions instead: read their dynamic metadata from this file, `-` for standard input, one JSON
    /// object per line, as Envoy logs %DYNAMIC_METADATA(envoy.filters.http.ratelimit)%
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["domain", "descriptors"])]
    pub decision: Option<PathBuf>,

    /// How the rule files are read
    #[command(flatten)]
    pub options: RuleOptions,

    /// Explain the active rules of the service with this admin port: an address like http://127.0.0.1:6070, https://
    /// for TLS, or unix:/path/to/socket
    #[arg(
        long, help_heading = CONNECTION, value_name = "ADDRESS",
        conflicts_with_all = ["rules", "config", "merge_domains"]
    )]
    pub admin: Option<AdminPort>,

    #[command(flatten)]
    pub call: AdminCallArgs,

    /// Descriptors of the request, each as key=value[,key=value...]; `\,` is a comma within a value
    #[arg(value_name = "DESCRIPTOR", required_unless_present = "decision")]
    pub descriptors: Vec<DescriptorArg>,
}

/// The explanation goes to standard output, errors to standard error.
pub fn run(args: &ExplainArgs) -> ExitCode {
    if let Some(path) = &args.decision {
        return past_decision::run(args, path);
    }
    let descriptors: Value = args.descriptors.iter().map(|descriptor| descriptor.json(None)).collect();
    let body = json!({"domain": args.domain, "descriptors": descriptors});
    match Explainer::new(args, Some(&body)).and_then(|explainer| explainer.explain(&body)) {
        Ok(Description { text, matched, .. }) => {
            end(print(&text), if matched > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => fail_with(error),
    }
}

/// Prints why there is no explanation, and returns the exit code.
fn fail_with(error: Box<dyn Error>) -> ExitCode {
    if error.is::<AdminCallError>() {
        return fail("ratelimitctl explain", error, FAILED);
    }
    print_error(error);
    ExitCode::FAILURE
}

/// Explains requests, which are bodies of `/json`.
enum Explainer<'a> {
    /// By the current rules of a running service.
    Service(&'a AdminCallArgs, &'a AdminPort),
    /// By the rules of files or an xDS server, with their exceptions.
    Rules(Box<ReadRules>, RuleSet),
}

impl<'a> Explainer<'a> {
    /// Reads the exceptions that concern this request, or all.
    fn new(args: &'a ExplainArgs, body: Option<&Value>) -> Result<Self, Box<dyn Error>> {
        if let Some(admin) = &args.admin {
            return Ok(Self::Service(&args.call, admin));
        }
        let (settings, options) = args.options.load()?;
        let read = if args.rules.is_empty() {
            settings_rules(&settings, options)?
        } else {
            ReadRules { loaded: load(&args.rules, options)?, server: None }
        };
        let entries = match body {
            Some(body) => Some(entries(&read.loaded.rules, &request(body)?)),
            None => None,
        };
        let rules = match args.options.load_exceptions(&settings, entries.as_deref())? {
            Some(loaded) => read.loaded.rules.with_exceptions(loaded.exceptions, &LiveRows::default()),
            None => read.loaded.rules.clone(),
        };
        Ok(Self::Rules(Box::new(read), rules))
    }

    fn explain(&self, body: &Value) -> Result<Description, Box<dyn Error>> {
        match self {
            Self::Service(call, admin) => Ok(explained_by_service(call, admin, body)?),
            Self::Rules(read, rules) => {
                let request = request(body)?;
                let mut description = describe(rules, &read.loaded.upgrades, &request, SystemClock.now_us())?;
                description.text.insert_str(0, &source(read, &request.domain));
                Ok(description)
            }
        }
    }
}

fn explained_by_service(
    call: &AdminCallArgs,
    admin: &AdminPort,
    body: &Value,
) -> Result<Description, AdminCallError> {
    let answer: Value = serde_json::from_str(&call.post(admin, "/explain", body.to_string())?)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let limits = answer["limits"].as_array().into_iter().flatten();
    Ok(Description {
        text: text(&answer["text"]),
        matched: answer["matched"].as_u64().and_then(|matched| matched.try_into().ok()).unwrap_or_default(),
        limits: limits.map(|limit| (text(&limit["name"]), text(&limit["limit"]))).collect(),
    })
}

fn request(body: &Value) -> Result<Request, Box<dyn Error>> {
    let Object(raw) = Object::<RawRequest>::deserialize(body)?;
    Ok(raw.validate(&BOUNDS)?)
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
