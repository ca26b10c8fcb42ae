//! A caller on grpc-go (`tests/data/grpc_go`), which `make tools` builds.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use prost::Message as _;

use super::certificates::Identity;
use super::grpc::RateLimitRequest;
use super::tls::SERVER_NAME;

/// The options of the client.
pub struct GrpcGo {
    command: Command,
}

/// What the client has to tell: its calls, and why the first of those that failed did.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    pub answered: u64,
    pub failed: u64,
    pub reason: String,
}

/// A client that calls until it is told to end.
pub struct RunningGrpcGo(Child);

impl GrpcGo {
    /// Sends `request` to a port of this machine, in clear text.
    pub fn new(port: u16, request: &RateLimitRequest) -> Self {
        let mut command = Command::new(binary());
        let hex: String = request.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
        command.args(["-address", &format!("127.0.0.1:{port}"), "-request", &hex]);
        Self { command }
    }

    /// Uses TLS, and trusts these authorities.
    pub fn trusting(mut self, authorities: &Path) -> Self {
        self.command.args(["-server-name", SERVER_NAME, "-ca"]).arg(authorities);
        self
    }

    /// Shows a certificate.
    pub fn showing(mut self, identity: &Identity) -> Self {
        self.command.arg("-cert").arg(&identity.certificate).arg("-key").arg(&identity.key);
        self
    }

    /// Opens a connection for each call.
    pub fn fresh(mut self) -> Self {
        self.command.arg("-fresh");
        self
    }

    /// Makes this many calls.
    pub fn call(mut self, calls: u32) -> Told {
        self.command.args(["-calls", &calls.to_string()]);
        self.start().end()
    }

    /// Calls until [`RunningGrpcGo::end`].
    pub fn call_until_told(mut self) -> RunningGrpcGo {
        self.command.args(["-calls", "0"]);
        self.start()
    }

    fn start(mut self) -> RunningGrpcGo {
        let piped = self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        RunningGrpcGo(piped.spawn().expect("the Go client runs"))
    }
}

impl RunningGrpcGo {
    /// Ends the calls.
    pub fn end(mut self) -> Told {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output().expect("the Go client ends");
        let text = String::from_utf8(output.stdout).expect("text");
        let (reason, counts) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
        let mut words = counts.split(' ').filter_map(|word| word.parse().ok());
        let mut count = || words.next().unwrap_or_else(|| panic!("the Go client prints no counts: {text}"));
        Told { answered: count(), failed: count(), reason: reason.to_owned() }
    }
}

fn binary() -> PathBuf {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/grpc-go");
    assert!(binary.exists(), "no Go client at {}: install Go and run `make tools`", binary.display());
    binary
}
