//! A primary, a replica and three sentinels that watch over them.

use std::process::Command;

use redis::{Client, FromRedisValue, RedisResult};
use tempfile::TempDir;

use super::{Redis, program};
use crate::support::daemon::Daemon;
use crate::support::{ports, wait};

/// What the sentinels call the primary.
pub const MASTER: &str = "counters";

/// The password of the sentinels themselves.
pub const SENTINEL_PASSWORD: &str = "watchword";

/// Servers and sentinels, gone when this is dropped.
pub struct Watched {
    pub primary: Redis,
    pub replica: Redis,
    sentinels: Vec<Sentinel>,
}

impl Watched {
    /// Starts everything and waits until the sentinels know each other and the replica.
    pub fn start() -> Self {
        let primary = Redis::start();
        let port = primary.port().to_string();
        let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port]);
        wait::expect("a replica that is up to date", || {
            primary.run::<String>(&["INFO", "replication"]).is_ok_and(|text| text.contains("state=online"))
        });
        let sentinels = (0..3).map(|_| sentinel(primary.port())).collect();
        let watched = Self { primary, replica, sentinels };
        for (port, _, _) in &watched.sentinels {
            wait::expect("a sentinel that knows the others", || {
                let known: RedisResult<Vec<String>> = ask(*port, &["SENTINEL", "MASTER", MASTER]);
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
        watched
    }

    /// One URL for each sentinel.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(|(port, _, _)| format!("redis://127.0.0.1:{port}")).collect()
    }

    /// Whether every sentinel that lives names this server as the primary.
    pub fn is_named(&self, server: &Redis) -> bool {
        let named = |port: u16| -> RedisResult<(String, u16)> {
            ask(port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])
        };
        let named = self.sentinels.iter().filter_map(|(port, _, _)| named(*port).ok());
        let ports: Vec<u16> = named.map(|(_, port)| port).collect();
        !ports.is_empty() && ports.iter().all(|port| *port == server.port())
    }

    /// Has the sentinels make the replica the primary, as an operator would.
    pub fn fail_over(&mut self) {
        let (port, _, _) = &self.sentinels[0];
        let _: String = ask(*port, &["SENTINEL", "FAILOVER", MASTER]).expect("SENTINEL FAILOVER");
    }

    /// Ends a sentinel as a crash would.
    pub fn stop_sentinel(&mut self, number: usize) {
        self.sentinels[number].1.kill();
    }
}

/// A sentinel, its port first.
pub type Sentinel = (u16, Daemon, TempDir);

/// Starts a sentinel that watches over the server at that port, alone: it names that one for ever.
pub fn sentinel(primary: u16) -> Sentinel {
    let (port, directory) = (ports::free(), TempDir::new().expect("a temporary directory"));
    // It rewrites its file, so each has its own.
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
    let ready = daemon.wait_ready(|_| ask::<String>(port, &["PING"]).ok().map(|_| ()));
    ready.unwrap_or_else(|problem| panic!("redis-sentinel does not get ready: {problem:?}"));
    (port, daemon, directory)
}

fn ask<T: FromRedisValue>(port: u16, words: &[&str]) -> RedisResult<T> {
    let url = format!("redis://:{SENTINEL_PASSWORD}@127.0.0.1:{port}");
    let mut connection = Client::open(url)?.get_connection()?;
    redis::cmd(words[0]).arg(&words[1..]).query(&mut connection)
}
