//! A primary, a replica and three sentinels that monitor them.

use std::process::Command;

use redis::{Client, FromRedisValue, RedisResult};
use tempfile::TempDir;

use super::{Redis, program};
use crate::support::daemon::Daemon;
use crate::support::{ports, wait};

/// The name of the primary in the sentinels.
pub const MASTER: &str = "counters";

/// The password of the sentinels themselves.
pub const SENTINEL_PASSWORD: &str = "watchword";

/// Servers and sentinels. They are killed on drop.
pub struct Monitored {
    pub primary: Redis,
    pub replica: Redis,
    sentinels: Vec<Sentinel>,
}

impl Monitored {
    /// Starts all processes and waits until the sentinels know each other and the replica.
    pub fn start() -> Self {
        let primary = Redis::start();
        let port = primary.port().to_string();
        let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port]);
        wait::expect("a replica that is up to date", || {
            primary.run::<String>(&["INFO", "replication"]).is_ok_and(|text| text.contains("state=online"))
        });
        let sentinels = (0..3).map(|_| start_sentinel(primary.port())).collect();
        let monitored = Self { primary, replica, sentinels };
        for (port, _, _) in &monitored.sentinels {
            wait::expect("a sentinel that knows the other sentinels", || {
                let known: RedisResult<Vec<String>> = run_command(*port, &["SENTINEL", "MASTER", MASTER]);
                let value = |known: &[String], name: &str| {
                    let at = known.iter().position(|word| word == name)?;
                    known.get(at + 1).cloned()
                };
                known.is_ok_and(|known| {
                    value(&known, "num-other-sentinels").as_deref() == Some("2")
                        && value(&known, "num-slaves").as_deref() == Some("1")
                })
            });
        }
        monitored
    }

    /// One URL for each sentinel.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(|(port, _, _)| format!("redis://127.0.0.1:{port}")).collect()
    }

    /// Whether every running sentinel reports this server as the primary.
    pub fn is_reported_primary(&self, server: &Redis) -> bool {
        let named = |port: u16| -> RedisResult<(String, u16)> {
            run_command(port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])
        };
        let named = self.sentinels.iter().filter_map(|(port, _, _)| named(*port).ok());
        let ports: Vec<u16> = named.map(|(_, port)| port).collect();
        !ports.is_empty() && ports.iter().all(|port| *port == server.port())
    }

    /// Makes the sentinels promote the replica, as an operator does.
    pub fn fail_over(&mut self) {
        let (port, _, _) = &self.sentinels[0];
        let _: String = run_command(*port, &["SENTINEL", "FAILOVER", MASTER]).expect("SENTINEL FAILOVER");
    }

    /// Ends a sentinel as a crash does.
    pub fn stop_sentinel(&mut self, number: usize) {
        self.sentinels[number].1.kill();
    }
}

/// The port, the process and the directory of a sentinel.
pub type Sentinel = (u16, Daemon, TempDir);

/// Starts a sentinel that monitors the server at port `primary`. A single sentinel never reports another server.
pub fn start_sentinel(primary: u16) -> Sentinel {
    let (port, directory) = (ports::free(), TempDir::new().expect("a temporary directory"));
    // A sentinel rewrites its file, so each has its own.
    let file = directory.path().join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\nrequirepass {SENTINEL_PASSWORD}\n\
         sentinel monitor {MASTER} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {MASTER} 500\n\
         sentinel failover-timeout {MASTER} 2000\n"
    );
    std::fs::write(&file, text).expect("room for a file");
    let mut command = Command::new(program());
    let command = command.current_dir(directory.path()).arg(&file).arg("--sentinel");
    let mut daemon = Daemon::spawn("redis-sentinel", "make tools", command);
    let ready = daemon.wait_ready(|_| run_command::<String>(port, &["PING"]).ok().map(|_| ()));
    ready.unwrap_or_else(|problem| panic!("redis-sentinel does not become ready: {problem:?}"));
    (port, daemon, directory)
}

fn run_command<T: FromRedisValue>(port: u16, words: &[&str]) -> RedisResult<T> {
    let url = format!("redis://:{SENTINEL_PASSWORD}@127.0.0.1:{port}");
    let mut connection = Client::open(url)?.get_connection()?;
    redis::cmd(words[0]).arg(&words[1..]).query(&mut connection)
}
