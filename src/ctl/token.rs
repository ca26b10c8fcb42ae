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
/// A service whose settings name no token makes one for itself when it starts. Its user and root can read it, on the
/// host of the service or in its container. After a restart there may be another one: under systemd there always is.
///
/// Exit code 2: there is no token.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  sudo ratelimitctl token
  kubectl exec POD -- ratelimitctl token
  ratelimitctl token --admin unix:/run/ratelimitd/admin.sock")]
pub struct TokenArgs {
    /// The address of the admin port: only the number of the port counts, or the path of a Unix socket
    #[arg(long, value_name = "ADDRESS", default_value = "http://127.0.0.1:6070", value_parser = parse_address)]
    admin: ListenAddress,
}

#[must_use]
pub fn run(args: &TokenArgs) -> ExitCode {
    finish("ratelimitctl token", read_own_token(&args.admin).map(|token| format!("{token}\n")), FAILED)
}

fn parse_address(text: &str) -> Result<ListenAddress, String> {
    let address = text.trim_start_matches("http://").trim_start_matches("https://").trim_end_matches('/');
    ListenAddress::parse(address)
        .ok_or_else(|| "expected host:port, http://host:port or unix:/path/to/socket".to_owned())
}
