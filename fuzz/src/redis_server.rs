//! A redis-server on a Unix socket, which ends with this process.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use simulate::replay::{RedisAccess, RedisReplay};
use tempfile::TempDir;

/// The path of the server program: another version of Redis, or Valkey.
const PROGRAM: &str = "RATELIMITD_TEST_REDIS";
const ATTEMPTS: usize = 400;
const PAUSE: Duration = Duration::from_millis(50);

/// Kills the server when its own standard input ends, which is when this process ends in any way. A process that ends
/// with a signal, as under libFuzzer, drops nothing.
const RUN: &str = r#""$0" --port 0 --unixsocket "$1/socket" --dir "$1" --save "" --appendonly no --hz 100 >&2 &
server=$!
cat >/dev/null
kill -9 $server; rm -rf "$1""#;

/// A server; see [`RUN`] for its end.
pub struct RedisServer {
    socket: String,
    _shell: Child,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    pub fn start() -> Self {
        // The shell removes it.
        let folder = TempDir::new().expect("a temporary folder").keep();
        let mut command = Command::new("sh");
        command.args(["-c", RUN]).arg(program()).arg(&folder);
        let shell = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self { socket: folder.join("socket").display().to_string(), _shell: shell.expect("a shell") }
    }

    /// A client with a key prefix of its own.
    pub fn connect(&self) -> RedisReplay {
        let url = format!("unix://{}", self.socket);
        for _ in 0..ATTEMPTS {
            match RedisReplay::connect(RedisAccess { url: url.clone(), ..RedisAccess::default() }) {
                Ok(client) => return client,
                // Not a wait for time to pass: the server has just been started.
                Err(_) => drop(std::sync::mpsc::channel::<()>().1.recv_timeout(PAUSE)),
            }
        }
        panic!("{} does not answer. Is it installed? Run `make tools`", program().display());
    }
}

#[expect(clippy::disallowed_methods, reason = "a switch of the test run, not a setting of the program")]
fn program() -> std::ffi::OsString {
    std::env::var_os(PROGRAM).unwrap_or_else(|| "redis-server".into())
}
