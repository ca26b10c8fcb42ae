//! `check`: sends a request to a running service, as Envoy would, and prints the answer.

mod format;

use std::error::Error;
use std::io;
use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use base::escaped_json;
use clap::Args;
use http::{HeaderMap, Uri, header};
use ratelimitd::cli::output::{end, fail, print, print_error};
use ratelimitd::cli::service_connection::{CONNECTION, TlsArgs, block_on, parse_http_url, root_cause};
use ratelimitd::grpc::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratelimitd::grpc::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor as wire;
use ratelimitd::grpc::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use ratelimitd::grpc::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use ratelimitd::grpc::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use ratelimitd::http::TokenFile;
use tls::{Protocol, ServerCheck};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::descriptor::{DescriptorArg, LimitArg};

const OVER_LIMIT: u8 = 1;
const FAILED: u8 = 2;

/// Ask a running service to decide a request.
///
/// Sends all descriptors in one request, and prints one line for each. If the reader of the output exits, stops with
/// the exit code of the answers so far.
#[derive(Clone, Debug, Args)]
#[command(after_help = r"Exit codes:
  0  every answer was OK
  1  at least one answer was over limit
  2  no answer, the service rejected the request, or unwritable output

Examples:
  ratelimitctl check --domain edge generic_key=slow
  ratelimitctl check --domain edge --count 6 tenant=acme,path=/search
  ratelimitctl check --domain edge --limit 5/minute tenant=acme
  ratelimitctl check --domain edge --hits 3 --refund tenant=acme,path=/search
  ratelimitctl check --domain edge --peek --json generic_key=slow remote_address=10.0.0.1
  ratelimitctl check --address https://ratelimit:8081 --ca-file ca.crt --domain edge generic_key=slow")]
pub struct CheckArgs {
    /// gRPC port of the service: host:port, http://host:port, or https://host:port for TLS
    #[arg(
        long, help_heading = CONNECTION,
        value_name = "URL", default_value = "http://127.0.0.1:8081", value_parser = parse_http_url
    )]
    pub address: Uri,

    /// Domain of the request
    #[arg(long, value_name = "DOMAIN")]
    pub domain: String,

    /// Take N units for each descriptor; without it 1. For a limit with `reserve`, N is the final charge
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub hits: Option<u32>,

    /// Send N calls, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,

    /// Read the limits without taking units; a limit with `reserve` still takes its units, as for any check
    #[arg(long, conflicts_with = "hits")]
    pub peek: bool,

    /// Return the units instead of taking them
    #[arg(long, conflicts_with = "peek")]
    pub refund: bool,

    /// Send this limit with every descriptor, to replace the rules, such as 5/minute or 100/15minute
    #[arg(long, value_name = "N/UNIT")]
    pub limit: Option<LimitArg>,

    /// Print each answer as one line of JSON, with small letters and underscores like /usage
    #[arg(long)]
    pub json: bool,

    /// Send the token in this file, for a service with server.rights
    #[arg(long, help_heading = CONNECTION, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    #[command(flatten)]
    pub tls: TlsArgs,

    /// Give up on a connection or an answer after this time
    #[arg(
        long, help_heading = CONNECTION,
        value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration
    )]
    pub timeout: Duration,

    /// Descriptors of the request, each as key=value[,key=value...]; `\,` is a comma within a value
    #[arg(value_name = "DESCRIPTOR", required = true)]
    pub descriptors: Vec<DescriptorArg>,
}

/// Answers go to standard output, errors to standard error.
pub fn run(args: &CheckArgs) -> ExitCode {
    let mut over = 0;
    let sent = block_on(send_requests(args, &mut over));
    let sent = sent.map_err(|error| format!("cannot start a runtime: {error}").into()).flatten();
    let printed = match sent {
        Ok(printed) => printed,
        Err(error) => return fail("ratelimitctl check", error, FAILED),
    };
    end(printed, if over == 0 { ExitCode::SUCCESS } else { ExitCode::from(OVER_LIMIT) })
}

/// Sends the request `--count` times, prints each answer, and counts those over limit. Stops at the first answer that
/// cannot be printed, and returns why: a request that takes units must have a reader.
async fn send_requests(args: &CheckArgs, over: &mut u32) -> Result<io::Result<()>, Box<dyn Error>> {
    let token = args.token_file.clone().map(|path| TokenFile(path).token()).transpose();
    let token = token.map_err(|error| format!("--token-file {error}"))?;
    let headers = token.map(|token| (header::AUTHORIZATION, token.authorization())).into_iter().collect();
    let mut client = Client { rls: RateLimitServiceClient::new(connect(args).await?), headers };
    let request = request(args);
    for call in 0..args.count {
        let answer = client.send(request.clone()).await.map_err(|status| call_error(args, &status))?;
        *over += u32::from(answer.overall_code() == Code::OverLimit);
        let printed = print(&answer_text(args, &answer));
        if printed.is_err() {
            return Ok(printed);
        }
        if call == 0 && is_without_limit(&answer) && !is_domain_known(&mut client, &request).await {
            let domain = &args.domain;
            print_error(format_args!(
                "ratelimitctl check: no rule file has the domain {domain:?}, so no limit applies"
            ));
        }
    }
    if args.count > 1 && !args.json {
        return Ok(print(&format!("{} OK, {over} over limit\n", args.count - *over)));
    }
    Ok(Ok(()))
}

/// A connection, and the headers of its calls.
struct Client {
    rls: RateLimitServiceClient<Channel>,
    headers: HeaderMap,
}

impl Client {
    async fn send(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, tonic::Status> {
        let metadata = MetadataMap::from_headers(self.headers.clone());
        let request = tonic::Request::from_parts(metadata, tonic::Extensions::default(), request);
        Ok(self.rls.should_rate_limit(request).await?.into_inner())
    }
}

/// `true` if no limit applies to any descriptor: a misspelled domain looks like a value without a limit.
fn is_without_limit(answer: &RateLimitResponse) -> bool {
    let is_bare = |status: &DescriptorStatus| status.current_limit.is_none() && status.limit_remaining == 0;
    !answer.statuses.is_empty() && answer.statuses.iter().all(is_bare)
}

/// `true` if a rule file has the request's domain. A limit that a request brings applies in every domain with rules,
/// and in no other. So this sends such a limit and takes no units. A failed call reveals nothing, and counts as known.
async fn is_domain_known(client: &mut Client, request: &RateLimitRequest) -> bool {
    let mut peek = request.clone();
    for descriptor in &mut peek.descriptors {
        descriptor.limit = Some(LimitArg::ONE_PER_SECOND.message());
        descriptor.hits_addend = Some(0);
        descriptor.is_negative_hits = false;
    }
    client.send(peek).await.map_or(true, |answer| !is_without_limit(&answer))
}

/// tonic turns a connection error into its own status.
fn call_error(args: &CheckArgs, cause: &tonic::Status) -> String {
    // A status from a service does not have a source.
    let is_of_connection = match cause.code() {
        tonic::Code::Unknown | tonic::Code::Internal => cause.source().is_some(),
        // The connection ended before the call was sent. The other possible source is the timeout.
        tonic::Code::Cancelled => iter::successors(cause.source(), |error| (*error).source())
            .any(|error| error.is::<hyper::Error>()),
        _ => false,
    };
    if is_of_connection {
        return format!(
            "{} does not answer with gRPC: {}; check needs the gRPC port (setting server.grpc.address, port 8081 by \
             default)",
            args.address,
            root_cause(cause)
        );
    }
    format!("{:?}: {}", cause.code(), cause.message())
}

async fn connect(args: &CheckArgs) -> Result<Channel, Box<dyn Error>> {
    let endpoint = Endpoint::from(args.address.clone());
    let endpoint = endpoint.connect_timeout(args.timeout).timeout(args.timeout);
    let connector = args.tls.connector(&args.address, Protocol::Http2, ServerCheck::ChainAndName)?;
    let connect = service_fn(move |uri: Uri| connector.clone().connect(uri));
    let connected = endpoint.connect_with_connector(connect).await;
    connected.map_err(|cause| format!("cannot connect to {}: {}", args.address, root_cause(&cause)).into())
}

fn request(args: &CheckArgs) -> RateLimitRequest {
    let hits_addend = match args.hits {
        _ if args.peek => Some(0),
        // The descriptor itself has the units to return.
        None if args.refund => Some(1),
        // A limit with `reserve` ignores the request's own number.
        hits => hits.map(u64::from),
    };
    let descriptor = |DescriptorArg(entries): &DescriptorArg| RateLimitDescriptor {
        entries: entries.iter().cloned().map(wire::Entry::from).collect(),
        limit: args.limit.as_ref().map(LimitArg::message),
        hits_addend,
        is_negative_hits: args.refund,
    };
    let descriptors = args.descriptors.iter().map(descriptor).collect();
    RateLimitRequest {
        domain: args.domain.clone().into_bytes(),
        descriptors,
        hits_addend: args.hits.unwrap_or(1),
    }
}

fn answer_text(args: &CheckArgs, answer: &RateLimitResponse) -> String {
    if args.json {
        return escaped_json(format!("{}\n", format::answer_json(answer)));
    }
    let hits = if args.peek { 0 } else { u64::from(args.hits.unwrap_or(1)) };
    format::answer_text(&args.descriptors, hits, answer)
}
