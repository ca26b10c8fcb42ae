//! A real redis-server: no persistence, one port, can be stopped and started again. An environment variable can name
//! another program to run in its place.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use ::store::redis::RedisUrl;
use redis::{Client, Commands, FromRedisValue, InfoDict, RedisResult};
use tempfile::TempDir;

use super::daemon::{Daemon, NotReady};
use super::ports;

pub mod cluster;
pub mod proxy;
pub mod sentinel;

const ATTEMPTS: usize = 5;

/// The path of the server program: another version of Redis, or Valkey.
const PROGRAM: &str = "RATELIMITD_TEST_REDIS";

/// A redis-server that is killed on drop.
pub struct Redis {
    address: SocketAddr,
    directory: TempDir,
    daemon: Daemon,
}

impl Redis {
    /// Starts a server and waits until it answers.
    pub fn start() -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        for _ in 0..ATTEMPTS {
            let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
            match launch(address, &directory) {
                Ok(daemon) => {
                    return Self { address, directory, daemon };
                }
                Err(problem) if problem.port_was_taken() => {}
                Err(problem) => panic!("redis-server does not become ready: {problem:?}"),
            }
        }
        panic!("the port of redis-server was in use {ATTEMPTS} times");
    }

    /// Starts a server at a free address.
    pub fn start_at(address: SocketAddr) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let daemon = launch(address, &directory).expect("redis-server starts at its address");
        Self { address, directory, daemon }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for `store.redis.url`.
    pub fn url(&self) -> String {
        url(self.address)
    }

    /// Ends the server as a crash does. Its data is lost.
    pub fn stop(&mut self) {
        self.daemon.kill();
    }

    /// Starts the server again, empty, on the same port.
    pub fn restart(&mut self) {
        self.stop();
        self.daemon = launch(self.address, &self.directory).expect("redis-server starts again on its port");
    }

    /// Starts a server with further settings; returns when it answers.
    pub fn start_with(settings: &[&str]) -> Self {
        let mut redis = Self::start();
        redis.restart_with(settings);
        redis
    }

    /// Starts the server again with further settings; returns when it answers, if only with an error. By then it has
    /// opened all its ports.
    pub fn restart_with(&mut self, settings: &[&str]) {
        self.stop();
        let address = self.address;
        self.daemon = spawn(address, &self.directory, settings);
        let ready = self.daemon.wait_ready(|_| answers(address).ok()?.then_some(()));
        ready.expect("redis-server starts with these settings");
    }

    /// Runs one command, as redis-cli does: `redis.run(&["GET", "key"])`.
    ///
    /// # Errors
    /// The error of the server, or of the connection.
    pub fn run<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let (name, arguments) = words.split_first().expect("a command has a name");
        let mut connection = Client::open(self.url())?.get_connection()?;
        redis::cmd(name).arg(arguments).query(&mut connection)
    }

    /// Runs one command with a password.
    ///
    /// # Errors
    /// Those of [`Redis::run`].
    pub fn run_with_password<T: FromRedisValue>(&self, password: &str, words: &[&str]) -> RedisResult<T> {
        let (name, arguments) = words.split_first().expect("a command has a name");
        let url = format!("redis://:{password}@{}/", self.address());
        let mut connection = Client::open(url)?.get_connection()?;
        redis::cmd(name).arg(arguments).query(&mut connection)
    }

    /// Name and version from INFO, for example `Redis 7.0.15`.
    pub fn version(&self) -> String {
        let server: InfoDict = self.run(&["INFO", "server"]).expect("INFO");
        let field = |key: &str| server.get::<String>(key);
        match (field("valkey_version"), field("redis_version")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, Some(version)) => format!("Redis {version}"),
            (None, None) => panic!("a server without a version: {server:?}"),
        }
    }

    /// Sends the signal `name`, written without SIG.
    pub fn signal(&self, name: &str) {
        self.daemon.signal(name);
    }
}

fn url(address: SocketAddr) -> String {
    format!("redis://{address}/")
}

fn launch(address: SocketAddr, directory: &TempDir) -> Result<Daemon, NotReady> {
    let mut daemon = spawn(address, directory, &[]);
    daemon.wait_ready(|id| (answering_process(address).ok()? == id).then_some(()))?;
    Ok(daemon)
}

/// The URLs in the form that the options of the Redis store need.
pub fn parsed(urls: impl IntoIterator<Item: AsRef<str>>) -> Vec<RedisUrl> {
    urls.into_iter().map(|url| url.as_ref().parse().expect("a Redis URL")).collect()
}

/// The program of all servers and sentinels of the tests.
#[expect(clippy::disallowed_methods, reason = "a switch of the test run, not a setting of the program")]
pub fn program() -> OsString {
    std::env::var_os(PROGRAM).unwrap_or_else(|| "redis-server".into())
}

fn spawn(address: SocketAddr, directory: &TempDir, settings: &[&str]) -> Daemon {
    let (port, host) = (address.port().to_string(), address.ip().to_string());
    let mut command = Command::new(program());
    command.current_dir(directory.path()).args(["--port", &port, "--bind", &host]);
    command.args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--hz", "100"]);
    command.args(settings);
    Daemon::spawn("redis-server", "make tools", &mut command)
}

/// Whether the server answers a PING. It may ask for a password, or still load its data.
fn answers(address: SocketAddr) -> io::Result<bool> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    connection.write_all(b"PING\r\n")?;
    Ok(connection.read(&mut [0; 64])? > 0)
}

/// The id of the process that answers at `address`. It differs if a server of another test has the port.
fn answering_process(address: SocketAddr) -> RedisResult<u32> {
    let mut connection = Client::open(url(address))?.get_connection()?;
    let _: String = connection.ping()?;
    let server: InfoDict = redis::cmd("INFO").arg("server").query(&mut connection)?;
    Ok(server.get("process_id").unwrap_or_default())
}

#[test]
fn a_server_that_is_restarted_is_empty_and_keeps_its_port() {
    let mut redis = Redis::start();
    let port = redis.port();
    redis.run::<()>(&["SET", "key", "value"]).expect("SET");
    assert_eq!(redis.run::<String>(&["GET", "key"]).expect("GET"), "value");

    redis.stop();
    assert!(redis.run::<()>(&["PING"]).is_err());

    redis.restart();
    assert_eq!(redis.run::<Option<String>>(&["GET", "key"]).expect("GET"), None);
    assert_eq!(redis.address().port(), port);
}
