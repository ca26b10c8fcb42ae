//! Reads facts about a server for operators (version, eviction policy, clock), and decides which are worth a warning.
//! No decision on a request depends on them.

use std::fmt;
use std::time::Duration;

use engine::StoreError;
use redis::{Cmd, FromRedisValue, InfoDict};
use tokio::time::{Instant, timeout_at};

use super::connect::{RawConnection, Target};
use super::error::store_error;
use base::clock::Clock;

/// Minimum time for all commands together, including connecting.
const INFO_TIMEOUT: Duration = Duration::from_secs(2);

/// Round trips: INFO, DBSIZE, CONFIG GET of two settings, TIME for each reading, and TIME in a script.
const INFO_ROUND_TRIPS: u32 = 5 + CLOCK_READINGS as u32;

/// Readings of both clocks. The one with the shortest round trip counts.
const CLOCK_READINGS: usize = 3;

const OLDEST_TESTED: u64 = 7;

/// Clock skew above this is worth a warning. Synchronised clocks differ by far less.
const MAX_SKEW_US: u64 = 500_000;

/// A full server evicts the counters that expire first.
const BEST_EVICTION: &str = "volatile-ttl";
/// A full server refuses to write. A server without `maxmemory` is never full.
const NO_EVICTION: &str = "noeviction";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// Name, as in [`RedisStore::nodes`](super::RedisStore::nodes).
    pub address: String,
    pub description: Result<ServerDescription, StoreError>,
}

/// Description of a server, for logs and the admin page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerDescription {
    /// Program and version.
    pub server: String,
    /// Identity of the running process, new after each restart; `None` if unknown.
    pub run_id: Option<String>,
    /// Number of keys; `None` if unknown.
    pub keys: Option<u64>,
    pub eviction: String,
    /// The server's clock compared with this machine's.
    pub clock: String,
    /// Microseconds by which the server's clock is ahead of this machine's; `None` if unknown.
    pub clock_ahead_us: Option<i64>,
    /// `true` if the clocks differ by more than half a second, which is one of the concerns.
    pub clocks_differ: bool,
    /// Problems that the operator should solve.
    pub concerns: Vec<String>,
}

/// Facts about a server. Any of them can be missing, because ACLs can forbid the command.
#[derive(Debug)]
struct ServerInfo {
    /// Name and version: `Redis 7.0.15` or `Valkey 8.0.1`.
    server: Result<String, StoreError>,
    /// `run_id`, new after each restart.
    run_id: Option<String>,
    /// Keys in the database.
    keys: Result<u64, StoreError>,
    /// `maxmemory-policy`.
    eviction: Result<String, StoreError>,
    /// `maxmemory`, bytes; 0 for unlimited.
    max_memory: Result<u64, StoreError>,
    clock: Result<Skew, StoreError>,
    /// `Ok` if scripts can call `TIME`, which every decision needs.
    scripts_read_the_clock: Result<(), StoreError>,
}

/// Difference between a server's clock and this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Skew {
    /// Microseconds; positive if the server's clock is ahead.
    ahead_us: i64,
    /// Maximum error of `ahead_us` in microseconds: half the round trip.
    uncertainty_us: u64,
}

impl Skew {
    fn is_large(&self) -> bool {
        self.ahead_us.unsigned_abs() > MAX_SKEW_US.saturating_add(self.uncertainty_us)
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
    /// Returns what operators should change. A missing fact is not a concern, except that scripts must be able to read
    /// the clock.
    fn concerns(&self) -> Vec<String> {
        let old = self.server.iter().filter(|server| major_version(server) < OLDEST_TESTED).map(|server| {
            format!("{server} is older than version {OLDEST_TESTED}, the oldest that is tested")
        });
        let skew = self.clock.iter().filter(|skew| skew.is_large()).map(|skew| {
            format!(
                "the server's clock differs from the local clock by {skew}: limits use the server's clock \
                 and stay exact, except calendar windows if the difference exceeds half a window; limits \
                 counted locally in an outage, exception end times and log times use the local clock"
            )
        });
        let no_time = self.scripts_read_the_clock.as_ref().err();
        let no_time =
            no_time.map(|error| format!("scripts may not call TIME, so no request can be decided: {error}"));
        old.chain(self.eviction_concern()).chain(skew).chain(no_time).collect()
    }

    fn eviction_concern(&self) -> Option<String> {
        match (self.eviction.as_deref().ok()?, &self.max_memory) {
            (BEST_EVICTION, _) | (NO_EVICTION, Err(_) | Ok(0)) => None,
            (NO_EVICTION, Ok(max_memory)) => Some(format!(
                "maxmemory-policy noeviction with a maxmemory of {max_memory} bytes: when memory is full, Redis \
                 refuses every decision that writes, and every limit answers by its on_store_failure; use \
                 volatile-ttl"
            )),
            (policy, _) => Some(format!(
                "maxmemory-policy {policy}: when memory is short, Redis may evict counters in use, and \
                 their limits start from zero; use volatile-ttl, which loses least"
            )),
        }
    }
}

impl From<ServerInfo> for ServerDescription {
    fn from(info: ServerInfo) -> Self {
        Self {
            concerns: info.concerns(),
            server: known_or_reason(&info.server),
            run_id: info.run_id,
            keys: info.keys.ok(),
            eviction: known_or_reason(&info.eviction),
            clock: known_or_reason(&info.clock),
            clock_ahead_us: info.clock.as_ref().ok().map(|skew| skew.ahead_us),
            clocks_differ: info.clock.as_ref().is_ok_and(Skew::is_large),
        }
    }
}

/// Returns a fact, or why it is unknown.
fn known_or_reason(fact: &Result<impl ToString, StoreError>) -> String {
    fact.as_ref().map_or_else(|error| format!("unknown ({error})"), ToString::to_string)
}

/// The major version in `Redis 7.0.15`; `u64::MAX` if it is not an integer.
fn major_version(server: &str) -> u64 {
    let major = server.rsplit(' ').next().and_then(|version| version.split('.').next());
    major.and_then(|major| major.parse().ok()).unwrap_or(u64::MAX)
}

/// Reads all facts over a new connection.
pub(super) async fn describe(target: &Target, clock: &impl Clock) -> Result<ServerDescription, StoreError> {
    let deadline = Instant::now() + target.connect_time(INFO_TIMEOUT, INFO_ROUND_TRIPS);
    let connected = timeout_at(deadline, target.connect()).await;
    let (connection, _) = connected.unwrap_or(Err(StoreError::Timeout))?;
    let mut session = InfoSession { connection, deadline };
    let server: Result<InfoDict, StoreError> = session.query(&["INFO", "server"]).await;
    let info = ServerInfo {
        server: server.as_ref().map_err(Clone::clone).and_then(server_version),
        run_id: server.ok().and_then(|info| info.get("run_id")),
        keys: session.query(&["DBSIZE"]).await,
        eviction: session.memory_setting("maxmemory-policy", "maxmemory_policy").await,
        max_memory: session.memory_setting("maxmemory", "maxmemory").await,
        clock: session.clock_skew(clock).await,
        scripts_read_the_clock: session.call_time_in_script().await,
    };
    Ok(info.into())
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

    /// From CONFIG, or from INFO if CONFIG is forbidden or renamed.
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

/// Name and version, from the INFO section `server`.
fn server_version(info: &InfoDict) -> Result<String, StoreError> {
    // Valkey also reports a redis_version: the Redis version with which it is compatible.
    let version_of = |name: &str, key| info.get::<String>(key).map(|version| format!("{name} {version}"));
    let server = version_of("Valkey", "valkey_version").or_else(|| version_of("Redis", "redis_version"));
    server.ok_or_else(|| StoreError::Malformed("INFO server has no version".to_owned()))
}

/// The server read its clock at some time between the two local readings: assumes the middle.
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
    use crate::redis::options::RedisOptions;
    use crate::redis::testing::{FakeServer, Reply};
    use base::clock::ManualClock;

    fn good_info() -> ServerInfo {
        ServerInfo {
            server: Ok("Redis 7.0.15".to_owned()),
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
            (1_000, 500, 900, -500, 0), // the local clock was set back in between
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
        let none: Vec<String> = Vec::new();
        assert_eq!((good_info().concerns(), unknown.concerns()), (none.clone(), none.clone()));
        let best =
            ServerInfo { eviction: Ok("volatile-ttl".to_owned()), max_memory: Ok(1 << 30), ..good_info() };
        assert_eq!(best.concerns(), none);
        let of_no_version = ServerInfo { server: Ok("Redis unstable".to_owned()), ..good_info() };
        assert_eq!(of_no_version.concerns(), none);
        let far = Skew { ahead_us: -500_101, uncertainty_us: 100 };
        let cases = [
            (
                ServerInfo { server: Ok("Redis 6.2.14".to_owned()), ..good_info() },
                "Redis 6.2.14 is older than version 7,",
            ),
            (
                ServerInfo { eviction: Ok("allkeys-lru".to_owned()), ..good_info() },
                "maxmemory-policy allkeys-lru: when memory is short,",
            ),
            (
                ServerInfo { max_memory: Ok(1 << 30), ..good_info() },
                "maxmemory-policy noeviction with a maxmemory of 1073741824 bytes:",
            ),
            (
                ServerInfo { clock: Ok(far), ..good_info() },
                "the server's clock differs from the local clock by -500.101 ms (within 0.100 ms):",
            ),
            (
                ServerInfo { scripts_read_the_clock: Err(forbidden()), ..good_info() },
                "scripts may not call TIME, so no request can be decided:",
            ),
        ];
        for (info, concern) in cases {
            let concerns = info.concerns();
            assert!(concerns.len() == 1 && concerns[0].starts_with(concern), "{concerns:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_of_a_server_is_compared_with_ours() {
        FakeServer::listen("redis.test", 6_379, |command| {
            let time = || ["1700000003", "250000"].map(|number| Reply::Bulk(number.to_owned()));
            (command[0] == "TIME").then(|| Reply::Array(time().to_vec()))
        });
        let urls = vec!["redis://redis.test:6379".parse().expect("a Redis URL")];
        let options = RedisOptions { urls, ..RedisOptions::default() };
        let target = Target::new(&options).expect("good options");
        let table = [(1_700_000_000_000_000, 3_250_000, true), (1_700_000_003_000_000, 250_000, false)];
        for (our_clock_us, ahead_us, clocks_differ) in table {
            let clock = ManualClock::at(our_clock_us);
            let described = describe(&target, &clock).await.expect("it answers");
            assert_eq!((described.clock_ahead_us, described.clocks_differ), (Some(ahead_us), clocks_differ));
            assert_eq!(described.concerns.iter().any(|text| text.contains("clock")), clocks_differ);
        }
    }
}
