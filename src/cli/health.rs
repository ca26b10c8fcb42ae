//! `health`: asks a running service whether it is ready, for container images without an HTTP client.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use tls::{Protocol, ServerCheck};

use super::load_settings::load_settings;
use super::output::{end, fail, print};
use super::service_connection::{
    CONNECTION, HttpCallError, ServiceConnector, TlsArgs, block_on, call_http, parse_http_url, root_cause,
    with_path,
};
use crate::net::ListenAddress;

/// Check whether a running service is ready, for example as the HEALTHCHECK of an image.
///
/// Calls /readyz on the HTTP port and prints the answer. Without --address, reads the address from the settings, so run
/// it with the file and the environment variables of the service. In this case it does not verify the service's TLS
/// certificate, and presents the service's own certificate if the port requires one and --cert-file is not given.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  ready
  1  not ready, no answer in time, or unreadable settings

Examples:
  ratelimitd health --config config/ratelimitd.yaml
  ratelimitd health --live --address http://127.0.0.1:8080
  ratelimitd health --address https://ratelimit:8080 --ca-file ca.crt")]
pub struct HealthArgs {
    /// Call this HTTP port instead of the setting server.http.address
    #[arg(long, help_heading = CONNECTION, value_name = "URL", value_parser = parse_http_url)]
    address: Option<Uri>,

    /// Read the address from this settings file (YAML)
    #[arg(long, value_name = "FILE", conflicts_with = "address")]
    config: Option<PathBuf>,

    /// Call /livez instead, which answers whenever the process runs
    #[arg(long)]
    live: bool,

    #[command(flatten)]
    tls: TlsArgs,

    /// Give up after this time
    #[arg(
        long, help_heading = CONNECTION,
        value_name = "DURATION", default_value = "2s", value_parser = humantime::parse_duration
    )]
    timeout: Duration,
}

/// The answer of a ready service goes to standard output, every other result to standard error.
pub fn run(args: &HealthArgs) -> ExitCode {
    match readiness(args) {
        Ok(answer) => {
            // Docker only accepts the codes 0 and 1, and a service is ready whether or not its answer can be printed.
            let _ = end(print(&answer), ExitCode::SUCCESS);
            ExitCode::SUCCESS
        }
        Err(error) => fail("ratelimitd health", error, 1),
    }
}

/// # Errors
/// Why the service is not known to be ready.
fn readiness(args: &HealthArgs) -> Result<String, Box<dyn Error>> {
    let (server, connector) = server(args)?;
    let address = with_path(server, if args.live { "/livez" } else { "/readyz" });
    let answer = block_on(async { tokio::time::timeout(args.timeout, get(&address, connector)).await });
    let answer = answer.map_err(|error| format!("cannot start a runtime: {error}"))?;
    Ok(answer.unwrap_or_else(|_| Err(format!("no answer from {address} in time")))?)
}

/// Returns the HTTP port to call, and how to connect to it.
fn server(args: &HealthArgs) -> Result<(Uri, ServiceConnector), Box<dyn Error>> {
    if let Some(address) = &args.address {
        let connector = args.tls.connector(address, Protocol::Http1, ServerCheck::ChainAndName)?;
        return Ok((address.clone(), connector));
    }
    let server = load_settings(args.config.as_deref(), None)?.settings.server;
    let address = reachable(server.http_address);
    let Some(own) = server.http_tls else {
        let server = url_of("http", &address);
        let connector = args.tls.connector(&server, Protocol::Http1, ServerCheck::ChainAndName)?;
        return Ok((server, connector));
    };
    let mut tls = args.tls.clone();
    if tls.cert_file.is_none() && own.client_ca_file.is_some() {
        (tls.cert_file, tls.key_file) = (Some(own.cert_file), Some(own.key_file));
    }
    let server = url_of("https", &address);
    // If no file is given, accepts any certificate: the call stays on this host and sends nothing secret.
    let check = if tls.ca_file.is_some() { ServerCheck::ChainAndName } else { ServerCheck::Nothing };
    let connector = tls.connector(&server, Protocol::Http1, check)?;
    Ok((server, connector))
}

fn url_of(scheme: &str, address: &ListenAddress) -> Uri {
    format!("{scheme}://{address}/").parse().expect("an address and a constant path are a URL")
}

/// Returns the loopback address if the service listens on all addresses.
fn reachable(listens_on: ListenAddress) -> ListenAddress {
    match listens_on {
        // `[::]` is every address of both families, or on a system without IPv6 every IPv4 address.
        ListenAddress::Tcp(address) if address.ip().is_unspecified() => {
            ListenAddress::Tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()))
        }
        other => other,
    }
}

async fn get(address: &Uri, connector: ServiceConnector) -> Result<String, String> {
    let request = Request::get(address).body(Full::default()).expect("a valid URI");
    let answered = async {
        let answer = call_http(connector, request).await?;
        Ok((answer.status, answer.text().await?))
    };
    match answered.await {
        Ok((StatusCode::OK, answer)) => Ok(answer),
        Ok((status, answer)) => Err(format!("{status}: {}", answer.trim_end())),
        Err(HttpCallError::Body(cause)) => Err(format!("cannot read the answer from {address}: {cause}")),
        Err(cause) => Err(format!("no answer from {address}: {}", root_cause(&cause))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_on_all_addresses_is_called_on_loopback() {
        let cases = [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "127.0.0.1:8080"),
            ("limits:8080", "limits:8080"),
            ("10.1.2.3:80", "10.1.2.3:80"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ];
        for (listens_on, called) in cases {
            let address = reachable(ListenAddress::parse(listens_on).expect("an address"));
            assert_eq!(address.to_string(), called);
            assert_eq!(url_of("http", &address).to_string(), format!("http://{called}/"));
        }
    }
}
