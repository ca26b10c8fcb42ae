//! `counters`: shows or resets the counters of a descriptor in a running service.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use http::{Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::descriptor::{DescriptorArg, LimitArg};
use super::output::{end, print, print_error, readable_duration};
use super::service_connection::{
    AdminPort, HttpCallError, TlsArgs, TlsSetupError, block_on, call_http, parse_admin_port, root_cause,
};
use crate::http::{PAGE_NOT_FOUND, TokenFile};

const FAILED: u8 = 2;

/// Show or reset the counters of a descriptor in a running service.
///
/// Calls the admin port. Shows or resets the counters of all limits of the rule that the descriptor matches.
///
/// Exit code 0: done. 2: no rule keeps a counter for the descriptor, there was no answer, or the output cannot be
/// written.
#[derive(Clone, Debug, Args)]
#[command(after_help = r"Examples:
  ratelimitd counters show --domain edge tenant=acme,path=/search
  ratelimitd counters reset --domain accounts login=ann
  ratelimitd counters show --admin unix:/run/ratelimitd/admin.sock --domain edge tenant=acme,path=/search
  ratelimitd counters show --admin https://ratelimit:6070 --ca-file ca.crt --domain edge tenant=acme,path=/search")]
pub struct CountersArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Show the counters; changes nothing
    Show(CounterArgs),
    /// Reset the counters to unused; the service logs each reset
    Reset(CounterArgs),
}

#[derive(Clone, Debug, Args)]
struct CounterArgs {
    /// The admin port of the service: an address like http://127.0.0.1:6070, https:// for TLS, or unix:/path/to/socket
    #[arg(long, value_name = "ADDRESS", default_value = "http://127.0.0.1:6070", value_parser = parse_admin_port)]
    admin: AdminPort,

    /// The file with the token of the admin port, if the service has server.admin.token_file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsArgs,

    /// The domain
    #[arg(long, value_name = "DOMAIN")]
    domain: String,

    /// The limit that requests bring with this descriptor, such as 5/minute or 100/15minute: names its counter
    #[arg(long, value_name = "N/UNIT")]
    limit: Option<LimitArg>,

    /// Print the JSON answer of the service
    #[arg(long)]
    json: bool,

    /// How long to wait for the answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,

    /// The descriptor, as key=value[,key=value...]; `\,` is a comma within a value
    #[arg(value_name = "DESCRIPTOR")]
    descriptor: DescriptorArg,
}

/// Why nothing was shown or reset.
#[derive(Debug, thiserror::Error)]
enum CountersError {
    #[error("no runtime: {0}")]
    Runtime(#[from] std::io::Error),
    #[error("cannot connect to {address}: {}", root_cause(cause))]
    Connect { address: String, cause: hyper_util::client::legacy::Error },
    #[error("the admin port does not answer with HTTP: {}", root_cause(.0))]
    Http(#[source] hyper_util::client::legacy::Error),
    #[error("{0}")]
    Tls(#[from] TlsSetupError),
    #[error("--token-file {0}")]
    Token(#[from] tls::FileError),
    #[error("no answer from the admin port in time")]
    Timeout,
    #[error("the answer cannot be read: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The text of the admin port.
    #[error("{}", .0.trim_end())]
    Refused(String),
    /// The answer of the HTTP port to an unknown path, or an error without a text.
    #[error(
        "{address} answers {status}: it is not the admin port of ratelimitd (setting server.admin.address, port 6070 \
         by default)"
    )]
    NotAdmin { address: String, status: StatusCode },
    #[error("the answer is not that of an admin port of ratelimitd: {0}")]
    Json(#[from] serde_json::Error),
}

/// Counters go to standard output, errors to standard error.
#[must_use]
pub fn run(args: &CountersArgs) -> ExitCode {
    let (args, path) = match &args.action {
        Action::Show(args) => (args, "/counters/show"),
        Action::Reset(args) => (args, "/counters/reset"),
    };
    let posted = block_on(async {
        tokio::time::timeout(args.timeout, post(args, path)).await.unwrap_or(Err(CountersError::Timeout))
    });
    let posted = posted.map_err(CountersError::from).flatten();
    match posted.and_then(|answer| answer_text(args, answer)) {
        Ok(text) => end(print(&text), ExitCode::SUCCESS),
        Err(error) => {
            print_error(format_args!("ratelimitd counters: {error}"));
            ExitCode::from(FAILED)
        }
    }
}

async fn post(args: &CounterArgs, path: &'static str) -> Result<String, CountersError> {
    let entries = args.descriptor.0.iter().map(|entry| json!({"key": entry.key, "value": entry.value}));
    let entries: Value = entries.collect();
    let limit = args.limit.as_ref().map(LimitArg::json);
    let descriptor = json!({"entries": entries, "limit": limit});
    let body = json!({"domain": args.domain, "descriptors": [descriptor]}).to_string();
    let mut request = Request::post(args.admin.endpoint(path))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .expect("a valid URI and a constant header");
    if let Some(path) = &args.token_file {
        let token = TokenFile(path.clone()).token()?;
        request.headers_mut().insert(header::AUTHORIZATION, token.authorization());
    }
    let connector = args.admin.connector(&args.tls)?;
    let (status, text) = call_http(connector, request).await.map_err(|error| match error {
        HttpCallError::Send(cause) if cause.is_connect() => {
            CountersError::Connect { address: args.admin.to_string(), cause }
        }
        HttpCallError::Send(cause) => CountersError::Http(cause),
        HttpCallError::Body(cause) => CountersError::Body(cause),
    })?;
    match status {
        StatusCode::OK => Ok(text),
        _ if text == PAGE_NOT_FOUND || text.trim().is_empty() => {
            Err(CountersError::NotAdmin { address: args.admin.to_string(), status })
        }
        _ => Err(CountersError::Refused(text)),
    }
}

fn answer_text(args: &CounterArgs, answer: String) -> Result<String, CountersError> {
    if args.json {
        return Ok(answer);
    }
    let answer: Value = serde_json::from_str(&answer)?;
    let counters = answer["counters"].as_array().into_iter().flatten();
    Ok(counters.map(|counter| counter_text(counter) + "\n").collect())
}

fn counter_text(counter: &Value) -> String {
    let key = counter["key"].as_str().unwrap_or_default();
    if let Some(had_units) = counter["had_units"].as_bool() {
        return format!("{key}: {}", if had_units { "reset" } else { "was not used" });
    }
    let units = |field: &str| counter[field].as_u64().unwrap_or_default();
    let time = |us: u64| readable_duration(Duration::from_micros(us));
    let wait = match counter["retry_after_us"].as_u64() {
        Some(0) => String::new(),
        Some(us) => format!(", next unit in {}", time(us)),
        None => ", no unit ever".to_owned(),
    };
    let exception =
        counter["exception"].as_str().map(|way| format!("\n  exception: {way}")).unwrap_or_default();
    format!(
        "{key}: {} of {} left{wait}, full again in {} ({}, {}){exception}",
        units("remaining"),
        units("max_cost"),
        time(units("reset_after_us")),
        counter["limit"].as_str().unwrap_or_default(),
        counter["algorithm"].as_str().unwrap_or_default(),
    )
}
