//! `check`: asks a running service, as Envoy would, and says what it answered.

mod words;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tonic::transport::{Channel, Endpoint};

use super::descriptor;
use crate::transport::grpc::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::transport::grpc::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::transport::grpc::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::transport::grpc::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use crate::transport::grpc::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

const OVER_LIMIT: u8 = 1;
const FAILED: u8 = 2;

/// Attempt a running service whether a request may go ahead.
///
/// Every descriptor of the command line goes into one request. The answer comes with one line per descriptor.
///
/// Exit code 0: every answer was OK. 1: at least one was over limit. 2: there was no answer, or the service refused
/// the request.
#[derive(Clone, Debug, Args)]
#[command(after_help = r"Examples:
  ratelimitd check --domain edge generic_key=slow
  ratelimitd check --domain edge --count 6 tenant=acme,path=/search
  ratelimitd check --domain edge --peek --json generic_key=slow remote_address=10.0.0.1")]
pub struct CheckArgs {
    /// Where the service answers gRPC: host:port, or http://host:port
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081", value_parser = parse_address)]
    pub address: Endpoint,

    /// The domain of the request
    #[arg(long, value_name = "DOMAIN")]
    pub domain: String,

    /// Units that each descriptor takes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub hits: u32,

    /// How often to ask, one call after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,

    /// Attempt without taking anything
    #[arg(long, conflicts_with = "hits")]
    pub peek: bool,

    /// Print each answer as one line of JSON
    #[arg(long)]
    pub json: bool,

    /// How long to wait for a connection, and for each answer
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    pub timeout: Duration,

    /// The request's descriptors, each as key=value[,key=value...]; `\,` is a comma within a value
    #[arg(value_name = "DESCRIPTOR", required = true, value_parser = parse_descriptor)]
    pub descriptors: Vec<RateLimitDescriptor>,
}

fn parse_address(text: &str) -> Result<Endpoint, String> {
    if text.starts_with("https://") {
        return Err("TLS is not built in; ask over plain http:// or through a proxy".to_owned());
    }
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    Endpoint::from_shared(url).map_err(|error| error.to_string())
}

fn parse_descriptor(text: &str) -> Result<RateLimitDescriptor, descriptor::DescriptorError> {
    let entries = descriptor::parse(text)?.into_iter();
    let entries = entries.map(|entry| Entry { key: entry.key, value: entry.value }).collect();
    Ok(RateLimitDescriptor { entries, ..RateLimitDescriptor::default() })
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error("no runtime: {0}")]
    Runtime(#[from] std::io::Error),
    #[error("cannot connect to {address}: {}", innermost(cause))]
    Connect {
        address: String,
        #[source]
        cause: tonic::transport::Error,
    },
    #[error("{:?}: {}", .0.code(), .0.message())]
    Refused(Box<tonic::Status>),
}

/// What a chain of errors comes down to: `transport error` alone helps nobody.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Runs the command: answers go to standard output, why there is none to standard error.
#[must_use]
pub fn run(args: &CheckArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = runtime.map_err(CheckError::from).and_then(|runtime| runtime.block_on(ask(args)));
    match asked {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(OVER_LIMIT),
        Err(error) => {
            eprintln!("ratelimitd check: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// Asks as often as wanted, and says how many answers were over limit.
async fn ask(args: &CheckArgs) -> Result<u32, CheckError> {
    let mut client = RateLimitServiceClient::new(connect(args).await?);
    let request = request(args);
    let mut over = 0;
    for _ in 0..args.count {
        let answer = client
            .should_rate_limit(request.clone())
            .await
            .map_err(|status| CheckError::Refused(Box::new(status)))?
            .into_inner();
        over += u32::from(answer.overall_code() == Code::OverLimit);
        show(args, &answer);
    }
    if args.count > 1 && !args.json {
        println!("{} OK, {over} over limit", args.count - over);
    }
    Ok(over)
}

async fn connect(args: &CheckArgs) -> Result<Channel, CheckError> {
    let endpoint = args.address.clone().connect_timeout(args.timeout).timeout(args.timeout);
    let address = endpoint.uri().to_string();
    endpoint.connect().await.map_err(|cause| CheckError::Connect { address, cause })
}

fn request(args: &CheckArgs) -> RateLimitRequest {
    let mut descriptors = args.descriptors.clone();
    if args.peek {
        descriptors.iter_mut().for_each(|descriptor| descriptor.hits_addend = Some(0));
    }
    RateLimitRequest { domain: args.domain.clone(), descriptors, hits_addend: args.hits }
}

fn show(args: &CheckArgs, answer: &RateLimitResponse) {
    if args.json {
        println!("{}", words::json(answer));
    } else {
        print!("{}", words::text(&args.descriptors, answer));
    }
}
