//! `token`: prints the token that a running service has generated for itself.

use std::process::ExitCode;

use clap::Args;
use ratelimitd::cli::output::finish;
use ratelimitd::http::read_own_token;
use ratelimitd::net::ListenAddress;

/// Exit code if there is no token.
const FAILED: u8 = 2;

/// Print the token that shows the values of keys in the console of a running service.
///
/// Reads the token that a service creates at startup if its settings name none. Run it as the service's user or as
/// root, on its host or in its container. A restart may change the token; under systemd it always does.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  printed
  2  no token

Examples:
  sudo ratelimitctl token
  kubectl exec POD -- ratelimitctl token
  ratelimitctl token --admin unix:/run/ratelimitd/admin.sock")]
pub struct TokenArgs {
    /// Address of the admin port: only the port number matters, or the path of a Unix socket
    #[arg(long, value_name = "ADDRESS", default_value = "http://127.0.0.1:6070", value_parser = parse_address)]
    admin: ListenAddress,
}

pub fn run(args: &TokenArgs) -> ExitCode {
    finish("ratelimitctl token", read_own_token(&args.admin).map(|token| format!("{token}\n")), FAILED)
}

fn parse_address(text: &str) -> Result<ListenAddress, String> {
    let address = text.trim_start_matches("http://").trim_start_matches("https://").trim_end_matches('/');
    ListenAddress::parse(address)
        .ok_or_else(|| "expected host:port, http://host:port or unix:/path/to/socket".to_owned())
}
