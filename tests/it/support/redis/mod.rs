//! A real redis-server of the test's own: no persistence, one port, can be stopped and started again. Another program
//! that can stand in for it is named by an environment variable.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use ratelimitd::store::redis::RedisUrl;
use redis::{Client, Commands, FromRedisValue, InfoDict, RedisResult};
use tempfile::TempDir;

use super::daemon::{Daemon, NotReady};
use super::{ports, wait};

pub mod cluster;
pub mod proxy;
pub mod sentinel;

const ATTEMPTS: usize = 5;

/// Names the server program: another version of Redis, or Valkey.
const PROGRAM: &str = "RATELIMITD_TEST_REDIS";

/// A redis-server that is gone when this is dropped.
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
                Err(problem) => panic!("redis-server does not get ready: {problem:?}"),
            }
        }
        panic!("redis-server found its port taken {ATTEMPTS} times");
    }

    /// Starts a server at an address where there is none.
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

    /// Ends the server as a crash would. What it held is lost.
    pub fn stop(&mut self) {
        self.daemon.kill();
    }

    /// Starts the server again, empty, on the same port.
    pub fn restart(&mut self) {
        self.stop();
        self.daemon = launch(self.address, &self.directory).expect("redis-server starts again on its port");
    }

    /// A server with settings of its own, which need not be ready to decide.
    pub fn start_with(settings: &[&str]) -> Self {
        let mut redis = Self::start();
        redis.restart_with(settings);
        redis
    }

    /// Starts the server again with further settings; returns when its port is open.
    pub fn restart_with(&mut self, settings: &[&str]) {
        self.stop();
        let address = self.address;
        self.daemon = spawn(address, &self.directory, settings);
        wait::expect("redis-server listens", || TcpStream::connect(address).is_ok());
    }

    /// Runs one command, as redis-cli would: `redis.run(&["GET", "key"])`.
    ///
    /// # Errors
    /// The server's own, and any failure to reach it.
    pub fn run<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let (name, arguments) = words.split_first().expect("a command has a name");
        let mut connection = Client::open(self.url())?.get_connection()?;
        redis::cmd(name).arg(arguments).query(&mut connection)
    }

    /// The same with a password.
    ///
    /// # Errors
    /// As [`Redis::run`].
    pub fn run_with_password<T: FromRedisValue>(&self, password: &str, words: &[&str]) -> RedisResult<T> {
        let (name, arguments) = words.split_first().expect("a command has a name");
        let url = format!("redis://:{password}@{}/", self.address());
        let mut connection = Client::open(url)?.get_connection()?;
        redis::cmd(name).arg(arguments).query(&mut connection)
    }

    /// What it is, as it says itself: `Redis 7.0.15`.
    pub fn version(&self) -> String {
        let server: InfoDict = self.run(&["INFO", "server"]).expect("INFO");
        let said = |key: &str| server.get::<String>(key);
        match (said("valkey_version"), said("redis_version")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, Some(version)) => format!("Redis {version}"),
            (None, None) => panic!("a server without a version: {server:?}"),
        }
    }

    /// Sends the process a signal, by its name without SIG.
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

/// The URLs as the options of the Redis store hold them.
pub fn parsed(urls: impl IntoIterator<Item: AsRef<str>>) -> Vec<RedisUrl> {
    urls.into_iter().map(|url| url.as_ref().parse().expect("a Redis URL")).collect()
}

/// The program that all servers and sentinels of the tests run.
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

/// The id of the process that answers there, so that a stranger is not taken for our server.
fn answering_process(address: SocketAddr) -> RedisResult<u32> {
    let mut connection = Client::open(url(address))?.get_connection()?;
    let _: String = connection.ping()?;
    let server: InfoDict = redis::cmd("INFO").arg("server").query(&mut connection)?;
    Ok(server.get("process_id").unwrap_or_default())
}

#[test]
fn a_server_can_be_stopped_and_comes_back_empty_on_its_port() {
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
