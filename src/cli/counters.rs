//! `counters`: where the counters of a descriptor stand in a running service, and to reset them.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::descriptor;
use crate::engine::Entry;

const FAILED: u8 = 2;
/// More than a request's counters can take.
const LONGEST_ANSWER: usize = 16 << 20;

/// Show or reset the counters of a descriptor in a running service.
///
/// Asks the admin port. Whatever rule the descriptor matches, all its limits are shown or reset.
///
/// Exit code 0: done. 2: no rule keeps a counter for the descriptor, or there was no answer.
#[derive(Clone, Debug, Args)]
#[command(after_help = r"Examples:
  ratelimitd counters show --domain edge tenant=acme,path=/search
  ratelimitd counters reset --domain accounts login=ann")]
pub struct CountersArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Where they stand. Changes nothing
    Show(Which),
    /// Make them as if never used. The service logs it
    Reset(Which),
}

#[derive(Clone, Debug, Args)]
struct Which {
    /// Where the service answers its admin port
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:6070", value_parser = parse_admin)]
    admin: Uri,

    /// The domain
    #[arg(long, value_name = "DOMAIN")]
    domain: String,

    /// Print what the service answers: JSON
    #[arg(long)]
    json: bool,

    /// How long to wait for the answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,

    /// The descriptor, as key=value[,key=value...]; `\,` is a comma within a value
    #[arg(value_name = "DESCRIPTOR", value_parser = parse_descriptor)]
    descriptor: Descriptor,
}

#[derive(Clone, Debug)]
struct Descriptor(Vec<Entry>);

fn parse_descriptor(text: &str) -> Result<Descriptor, descriptor::DescriptorError> {
    descriptor::parse(text).map(Descriptor)
}

fn parse_admin(text: &str) -> Result<Uri, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http"), Some(_)) => Ok(uri),
        _ => Err("the admin port is http://host:port".to_owned()),
    }
}

/// Why nothing was shown or reset.
#[derive(Debug, thiserror::Error)]
enum CountersError {
    #[error("no runtime: {0}")]
    Runtime(#[source] std::io::Error),
    #[error("cannot connect to {address}: {cause}")]
    Connect { address: String, cause: std::io::Error },
    #[error("no HTTP from the admin port: {0}")]
    Http(#[from] hyper::Error),
    #[error("no answer from the admin port in time")]
    Late,
    #[error("the answer cannot be read: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{}", .0.trim_end())]
    Refused(String),
    #[error("the answer is not what the admin port of ratelimitd says: {0}")]
    Shape(#[from] serde_json::Error),
}

/// Runs the command: counters go to standard output, why there are none to standard error.
#[must_use]
pub fn run(args: &CountersArgs) -> ExitCode {
    let (which, path) = match &args.action {
        Action::Show(which) => (which, "/counters/show"),
        Action::Reset(which) => (which, "/counters/reset"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = runtime.map_err(CountersError::Runtime).and_then(|runtime| {
        let in_time = async { tokio::time::timeout(which.timeout, ask(which, path)).await };
        runtime.block_on(in_time).unwrap_or(Err(CountersError::Late))
    });
    match asked.and_then(|answer| print(which, &answer)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ratelimitd counters: {error}");
            ExitCode::from(FAILED)
        }
    }
}

async fn ask(which: &Which, path: &str) -> Result<String, CountersError> {
    let host = which.admin.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = which.admin.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(|cause| CountersError::Connect { address: format!("{host}:{port}"), cause })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let entries: Vec<_> =
        which.descriptor.0.iter().map(|e| json!({"key": e.key, "value": e.value})).collect();
    let body = json!({"domain": which.domain, "descriptors": [{"entries": entries}]}).to_string();
    let request = Request::post(path)
        .header(header::HOST, which.admin.authority().map_or("", |authority| authority.as_str()))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .expect("a path of ours, and a host that was part of a URL");
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        let text = String::from_utf8_lossy(&body.map_err(CountersError::Body)?.to_bytes()).into_owned();
        if status == StatusCode::OK { Ok(text) } else { Err(CountersError::Refused(text)) }
    };
    tokio::select! {
        answer = exchange => answer,
        // It ends first only where it breaks, and then the exchange would never end.
        broken = connection => Err(broken.err().map_or(CountersError::Late, CountersError::Http)),
    }
}

fn print(which: &Which, answer: &str) -> Result<(), CountersError> {
    if which.json {
        print!("{answer}");
        return Ok(());
    }
    let answer: Value = serde_json::from_str(answer)?;
    for counter in answer["counters"].as_array().into_iter().flatten() {
        println!("{}", words(counter));
    }
    Ok(())
}

/// One line for one counter, shown or reset.
fn words(counter: &Value) -> String {
    let key = counter["key"].as_str().unwrap_or_default();
    if let Some(had_units) = counter["had_units"].as_bool() {
        return format!("{key}: {}", if had_units { "reset" } else { "was not used" });
    }
    let number = |name: &str| counter[name].as_u64().unwrap_or_default();
    let wait = match counter["retry_after_us"].as_u64() {
        Some(0) => String::new(),
        Some(us) => format!(", one more in {} s", seconds(us)),
        None => ", never one more".to_owned(),
    };
    format!(
        "{key}: {} of {} left{wait}, as if never used in {} s ({}, {})",
        number("remaining"),
        number("max_cost"),
        seconds(number("reset_after_us")),
        counter["limit"].as_str().unwrap_or_default(),
        counter["algorithm"].as_str().unwrap_or_default(),
    )
}

/// Microseconds as seconds with as many decimals as it takes.
fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_no_more_decimals_than_they_need() {
        assert_eq!([0, 1, 1_500_000, 60_000_000].map(seconds), ["0", "0.000001", "1.5", "60"]);
    }

    #[test]
    fn the_admin_port_is_plain_http() {
        assert!(parse_admin("localhost:6070").is_ok());
        assert!(parse_admin("http://[::1]:6070").is_ok());
        assert!(parse_admin("https://localhost").is_err());
    }
}
