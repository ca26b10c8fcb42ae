//! Facts about a server, read once for operators: version, eviction policy, clock. Knows which facts are worth a
//! warning. No decision depends on them.

use std::fmt;
use std::time::Duration;

use engine::StoreError;
use redis::{Cmd, FromRedisValue, InfoDict};
use tokio::time::{Instant, timeout_at};

use super::connect::{RawConnection, Target};
use super::error::store_error;
use crate::clock::Clock;

/// The least time of all commands together, including connecting.
const INFO_TIMEOUT: Duration = Duration::from_secs(2);

/// Round trips of the commands: INFO, DBSIZE, CONFIG GET of two settings, TIME for each reading, and the call of TIME
/// in a script.
const INFO_ROUND_TRIPS: u32 = 5 + CLOCK_READINGS as u32;

/// How often both clocks are read. The reading with the shortest round trip counts.
const CLOCK_READINGS: usize = 3;

/// The oldest major version that is tested.
const OLDEST_TESTED: u64 = 7;

/// A larger clock skew is worth a warning. Synchronised clocks differ by far less.
const MAX_SKEW_US: u64 = 500_000;

/// The eviction policy under which a full server evicts the counters that expire first.
const BEST_EVICTION: &str = "volatile-ttl";
/// The eviction policy under which a full server refuses to write. A server without `maxmemory` is never full.
const NO_EVICTION: &str = "noeviction";

/// Facts about a server. Each may be unknown, because ACLs can forbid the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Name and version, `Redis 7.0.15`.
    pub server: Result<ServerVersion, StoreError>,
    /// The `run_id`: another one after each restart.
    pub run_id: Option<String>,
    /// The number of keys in the database.
    pub keys: Result<u64, StoreError>,
    /// The `maxmemory-policy`.
    pub eviction: Result<String, StoreError>,
    /// The `maxmemory` in bytes; 0 is no bound.
    pub max_memory: Result<u64, StoreError>,
    /// The server's clock compared with ours.
    pub clock: Result<Skew, StoreError>,
    /// Whether scripts may call `TIME`. Every decision needs it.
    pub scripts_read_the_clock: Result<(), StoreError>,
}

/// Name and version of the server program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    /// `Redis` or `Valkey`.
    pub name: String,
    /// As the server reports it, `7.0.15`.
    pub version: String,
}

/// The difference between a server's clock and ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Microseconds; positive if the server's clock is ahead.
    pub ahead_us: i64,
    /// Maximum error of `ahead_us` in microseconds: half the round trip.
    pub uncertainty_us: u64,
}

/// A fact about a server that operators should change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Concern {
    /// The version is older than the tested ones.
    #[error("{0} is older than version {OLDEST_TESTED}, the oldest that is tested")]
    Old(ServerVersion),
    /// The server may evict counters in use.
    #[error(
        "maxmemory-policy {0}: when memory is short, counters in use may be evicted, and their limits start from zero; \
         volatile-ttl loses least"
    )]
    Eviction(String),
    /// The server refuses to write when it is full.
    #[error(
        "maxmemory-policy noeviction with a maxmemory of {0} bytes: when memory is full, Redis refuses every decision that \
         writes, and every limit answers by its on_store_failure; use volatile-ttl"
    )]
    NoEviction(u64),
    /// The clocks differ.
    #[error(
        "the server's clock differs from ours by {0}: limits use the server's clock and stay exact, but limits that \
         this process counts during an outage, and the times in our logs, use our clock"
    )]
    Skew(Skew),
    /// Scripts may not read the clock.
    #[error("scripts may not call TIME, so nothing can be decided: {0}")]
    NoTime(StoreError),
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.ahead_us < 0 { "-" } else { "+" };
        let ms = |us: u64| format!("{}.{:03} ms", us / 1_000, us % 1_000);
        write!(f, "{sign}{} (within {})", ms(self.ahead_us.unsigned_abs()), ms(self.uncertainty_us))
    }
}

impl ServerInfo {
    /// The facts that operators should change. An unknown fact is no concern, except that scripts must be able to read
    /// the clock.
    #[must_use]
    pub fn concerns(&self) -> Vec<Concern> {
        let old =
            self.server.iter().filter(|server| server.major().is_some_and(|major| major < OLDEST_TESTED));
        let skew = self
            .clock
            .iter()
            .filter(|skew| skew.ahead_us.unsigned_abs() > MAX_SKEW_US.saturating_add(skew.uncertainty_us));
        let no_time = self.scripts_read_the_clock.as_ref().err();
        old.cloned()
            .map(Concern::Old)
            .chain(self.eviction_concern())
            .chain(skew.copied().map(Concern::Skew))
            .chain(no_time.cloned().map(Concern::NoTime))
            .collect()
    }

    fn eviction_concern(&self) -> Option<Concern> {
        match self.eviction.as_deref().ok()? {
            BEST_EVICTION => None,
            NO_EVICTION => {
                let max_memory = *self.max_memory.as_ref().ok()?;
                (max_memory > 0).then_some(Concern::NoEviction(max_memory))
            }
            other => Some(Concern::Eviction(other.to_owned())),
        }
    }
}

impl ServerVersion {
    fn major(&self) -> Option<u64> {
        self.version.split('.').next()?.parse().ok()
    }
}

/// Reads all facts over a new connection.
pub(super) async fn server_info(target: &Target, clock: &impl Clock) -> Result<ServerInfo, StoreError> {
    let deadline = Instant::now() + target.connect_time(INFO_TIMEOUT, INFO_ROUND_TRIPS);
    let connected = timeout_at(deadline, target.connect()).await;
    let (connection, _) = connected.unwrap_or(Err(StoreError::Timeout))?;
    let mut session = InfoSession { connection, deadline };
    let server: Result<InfoDict, StoreError> = session.query(&["INFO", "server"]).await;
    Ok(ServerInfo {
        server: server.as_ref().map_err(Clone::clone).and_then(server_version),
        run_id: server.ok().and_then(|info| info.get("run_id")),
        keys: session.query(&["DBSIZE"]).await,
        eviction: session.memory_setting("maxmemory-policy", "maxmemory_policy").await,
        max_memory: session.memory_setting("maxmemory", "maxmemory").await,
        clock: session.clock_skew(clock).await,
        scripts_read_the_clock: session.call_time_in_script().await,
    })
}

struct InfoSession {
    connection: RawConnection,
    deadline: Instant,
}

impl InfoSession {
    async fn query<T: FromRedisValue>(&mut self, words: &[&str]) -> Result<T, StoreError> {
        let mut command = Cmd::new();
        command.arg(words);
        let reply = timeout_at(self.deadline, command.query_async(&mut self.connection.connection)).await;
        reply.map_err(|_elapsed| StoreError::Timeout)?.map_err(store_error)
    }

    /// From CONFIG, or if CONFIG is forbidden or renamed, from INFO.
    async fn memory_setting<T: FromRedisValue>(
        &mut self,
        in_config: &str,
        in_info: &str,
    ) -> Result<T, StoreError> {
        let config: Result<(String, T), _> = self.query(&["CONFIG", "GET", in_config]).await;
        if let Ok((_, setting)) = config {
            return Ok(setting);
        }
        let info: InfoDict = self.query(&["INFO", "memory"]).await?;
        let missing = || StoreError::Malformed(format!("INFO memory has no {in_info}"));
        info.get(in_info).ok_or_else(missing)
    }

    async fn clock_skew(&mut self, clock: &impl Clock) -> Result<Skew, StoreError> {
        let mut closest = None;
        for _ in 0..CLOCK_READINGS {
            let sent_us = clock.now_us();
            let (seconds, micros): (u64, u64) = self.query(&["TIME"]).await?;
            let server_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
            let reading = skew(sent_us, server_us, clock.now_us());
            closest = closest.into_iter().chain([reading]).min_by_key(|skew: &Skew| skew.uncertainty_us);
        }
        closest.ok_or_else(|| StoreError::Malformed("the clock was not read".to_owned()))
    }

    async fn call_time_in_script(&mut self) -> Result<(), StoreError> {
        self.query::<i64>(&["EVAL", "redis.call('TIME') return 1", "0"]).await.map(|_| ())
    }
}

/// From the section `server` of INFO.
fn server_version(info: &InfoDict) -> Result<ServerVersion, StoreError> {
    // Valkey also reports a redis_version, of the Redis with which it is compatible.
    let version_of = |name: &str, key| {
        let version: Option<String> = info.get(key);
        version.map(|version| ServerVersion { name: name.to_owned(), version })
    };
    let server = version_of("Valkey", "valkey_version").or_else(|| version_of("Redis", "redis_version"));
    server.ok_or_else(|| StoreError::Malformed("INFO server has no version".to_owned()))
}

/// The server read its clock at some time between our two readings: the middle is assumed.
fn skew(sent_us: u64, server_us: u64, received_us: u64) -> Skew {
    let uncertainty_us = received_us.saturating_sub(sent_us) / 2;
    let middle_us = sent_us.saturating_add(uncertainty_us);
    let distance_us = i64::try_from(server_us.abs_diff(middle_us)).unwrap_or(i64::MAX);
    let ahead_us = if server_us < middle_us { -distance_us } else { distance_us };
    Skew { ahead_us, uncertainty_us }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, version: &str) -> ServerVersion {
        ServerVersion { name: name.to_owned(), version: version.to_owned() }
    }

    fn good_info() -> ServerInfo {
        ServerInfo {
            server: Ok(server("Redis", "7.0.15")),
            run_id: None,
            keys: Ok(0),
            eviction: Ok("noeviction".to_owned()),
            max_memory: Ok(0),
            clock: Ok(Skew { ahead_us: 1_200, uncertainty_us: 100 }),
            scripts_read_the_clock: Ok(()),
        }
    }

    #[test]
    fn a_skew_is_measured_from_the_middle_of_the_round_trip() {
        let cases = [
            // (sent, server, received, ahead, uncertainty)
            (1_000, 1_050, 1_100, 0, 50),
            (1_000, 1_000, 1_100, -50, 50),
            (1_000, 9_000, 1_000, 8_000, 0),
            (1_000, 500, 900, -500, 0), // our clock was set back in between
        ];
        for (sent, at_server, received, ahead_us, uncertainty_us) in cases {
            assert_eq!(skew(sent, at_server, received), Skew { ahead_us, uncertainty_us });
        }
        let shown = Skew { ahead_us: -1_002_003, uncertainty_us: 70 }.to_string();
        assert_eq!(shown, "-1002.003 ms (within 0.070 ms)");
    }

    #[test]
    fn each_bad_fact_is_a_concern() {
        let forbidden = || StoreError::Refused("NOPERM".to_owned());
        let unknown = ServerInfo {
            server: Err(forbidden()),
            run_id: None,
            keys: Err(forbidden()),
            eviction: Err(forbidden()),
            max_memory: Err(forbidden()),
            clock: Err(forbidden()),
            scripts_read_the_clock: Ok(()),
        };
        assert_eq!((good_info().concerns(), unknown.concerns()), (vec![], vec![]));
        let best =
            ServerInfo { eviction: Ok("volatile-ttl".to_owned()), max_memory: Ok(1 << 30), ..good_info() };
        assert_eq!(best.concerns(), vec![]);
        let far = Skew { ahead_us: -500_101, uncertainty_us: 100 };
        let cases = [
            (
                ServerInfo { server: Ok(server("Redis", "6.2.14")), ..good_info() },
                Concern::Old(server("Redis", "6.2.14")),
            ),
            (
                ServerInfo { eviction: Ok("allkeys-lru".to_owned()), ..good_info() },
                Concern::Eviction("allkeys-lru".to_owned()),
            ),
            (ServerInfo { max_memory: Ok(1 << 30), ..good_info() }, Concern::NoEviction(1 << 30)),
            (ServerInfo { clock: Ok(far), ..good_info() }, Concern::Skew(far)),
            (
                ServerInfo { scripts_read_the_clock: Err(forbidden()), ..good_info() },
                Concern::NoTime(forbidden()),
            ),
        ];
        for (info, concern) in cases {
            assert_eq!(info.concerns(), [concern]);
        }
    }
}
