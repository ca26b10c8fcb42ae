//! What kind of server it is that decides: asked once, for people. Knows what to ask and what is worth a warning;
//! nothing depends on the answers.

use std::fmt;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, InfoDict};
use tokio::time::{Instant, timeout_at};

use super::connect::{RawConnection, Target};
use super::error::store_error;
use crate::clock::Clock;
use crate::engine::StoreError;

/// For all questions together, connecting included.
const INFO_TIMEOUT: Duration = Duration::from_secs(2);

/// How often both clocks are read: the closest pair counts.
const READINGS: usize = 3;

/// The oldest major version that is tested.
const OLDEST: u64 = 7;

/// What is a matter of course is not worth a warning: clocks that are synchronised differ by far less.
const BEARABLE_SKEW_US: u64 = 500_000;

/// Under these a server that is full does not forget counters that are needed before those that are not.
const GOOD_EVICTION: [&str; 2] = ["noeviction", "volatile-ttl"];

/// What a server says of itself. Each fact may be unknown: a user may be forbidden to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its name and version, `Redis 7.0.15`.
    pub server: Result<ServerVersion, StoreError>,
    /// Its `maxmemory-policy`.
    pub eviction: Result<String, StoreError>,
    /// Its clock.
    pub clock: Result<Skew, StoreError>,
    /// Whether scripts may read that clock, without which nothing is decided.
    pub scripts_read_the_clock: Result<(), StoreError>,
}

/// Which program it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    /// `Redis`, `Valkey`, or whatever it calls itself.
    pub name: String,
    /// As it is written, `7.0.15`.
    pub version: String,
}

/// How far a server's clock is from ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Microseconds; positive where the server's clock is ahead.
    pub ahead_us: i64,
    /// By how much that may be wrong, microseconds: half the round trip.
    pub uncertainty_us: u64,
}

/// Something about the server that is better put right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Concern {
    /// Older than what is tested.
    #[error("{0} is older than version {OLDEST}, the oldest that is tested")]
    Old(ServerVersion),
    /// Counters may go while they are needed.
    #[error(
        "maxmemory-policy {0}: when memory is short, counters in use may be evicted, and their limits begin anew; \
         volatile-ttl loses least"
    )]
    Eviction(String),
    /// The clocks disagree.
    #[error(
        "the server's clock differs from ours by {0}: limits are decided by the server's, so they stay exact, but those \
         that count in this process during an outage, and the times in our logs, go by ours"
    )]
    Skew(Skew),
    /// Nothing can be decided.
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
    /// What is worth a warning. What could not be learnt is none, except that scripts must be able to read the clock.
    #[must_use]
    pub fn concerns(&self) -> Vec<Concern> {
        let old = self.server.iter().filter(|server| server.major().is_some_and(|major| major < OLDEST));
        let eviction = self.eviction.iter().filter(|policy| !GOOD_EVICTION.contains(&policy.as_str()));
        let skew = self.clock.iter().filter(|skew| {
            skew.ahead_us.unsigned_abs() > BEARABLE_SKEW_US.saturating_add(skew.uncertainty_us)
        });
        let no_time = self.scripts_read_the_clock.as_ref().err();
        old.cloned()
            .map(Concern::Old)
            .chain(eviction.cloned().map(Concern::Eviction))
            .chain(skew.copied().map(Concern::Skew))
            .chain(no_time.cloned().map(Concern::NoTime))
            .collect()
    }
}

impl ServerVersion {
    fn major(&self) -> Option<u64> {
        self.version.split('.').next()?.parse().ok()
    }
}

/// Asks a server everything, over a connection of its own.
pub(super) async fn server_info(target: &Target, clock: &impl Clock) -> Result<ServerInfo, StoreError> {
    let deadline = Instant::now() + INFO_TIMEOUT;
    let connected = timeout_at(deadline, target.connect()).await;
    let (wire, _) = connected.unwrap_or(Err(StoreError::Timeout))?;
    let mut asking = Asking { wire, deadline };
    Ok(ServerInfo {
        server: asking.server().await,
        eviction: asking.eviction().await,
        clock: asking.clock(clock).await,
        scripts_read_the_clock: asking.script().await,
    })
}

struct Asking {
    wire: RawConnection,
    deadline: Instant,
}

impl Asking {
    async fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> Result<T, StoreError> {
        let mut command = Cmd::new();
        command.arg(words);
        let answer = timeout_at(self.deadline, command.query_async(&mut self.wire.connection)).await;
        answer.map_err(|_elapsed| StoreError::Timeout)?.map_err(store_error)
    }

    async fn server(&mut self) -> Result<ServerVersion, StoreError> {
        let said: InfoDict = self.ask(&["INFO", "server"]).await?;
        // Valkey also gives the version of the Redis that it can stand in for.
        let told = |name: &str, key| {
            let version: Option<String> = said.get(key);
            version.map(|version| ServerVersion { name: name.to_owned(), version })
        };
        let server = told("Valkey", "valkey_version").or_else(|| told("Redis", "redis_version"));
        server.ok_or_else(|| StoreError::Malformed("INFO server tells no version".to_owned()))
    }

    /// CONFIG is often forbidden or renamed; INFO says the same.
    async fn eviction(&mut self) -> Result<String, StoreError> {
        let told: Result<Vec<String>, _> = self.ask(&["CONFIG", "GET", "maxmemory-policy"]).await;
        if let Some(policy) = told.ok().and_then(|pair| pair.into_iter().nth(1)) {
            return Ok(policy);
        }
        let said: InfoDict = self.ask(&["INFO", "memory"]).await?;
        let missing = || StoreError::Malformed("INFO memory tells no maxmemory_policy".to_owned());
        said.get("maxmemory_policy").ok_or_else(missing)
    }

    async fn clock(&mut self, clock: &impl Clock) -> Result<Skew, StoreError> {
        let mut closest = None;
        for _ in 0..READINGS {
            let sent_us = clock.now_us();
            let (seconds, micros): (u64, u64) = self.ask(&["TIME"]).await?;
            let server_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
            let reading = skew(sent_us, server_us, clock.now_us());
            closest = closest.into_iter().chain([reading]).min_by_key(|skew: &Skew| skew.uncertainty_us);
        }
        closest.ok_or_else(|| StoreError::Malformed("the clock was not read".to_owned()))
    }

    async fn script(&mut self) -> Result<(), StoreError> {
        self.ask::<i64>(&["EVAL", "redis.call('TIME') return 1", "0"]).await.map(|_| ())
    }
}

/// The server read its clock somewhere between our two readings.
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

    fn calm() -> ServerInfo {
        ServerInfo {
            server: Ok(server("Redis", "7.0.15")),
            eviction: Ok("noeviction".to_owned()),
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
            (1_000, 500, 900, -500, 0), // our clock was set back meanwhile
        ];
        for (sent, at_server, received, ahead_us, uncertainty_us) in cases {
            assert_eq!(skew(sent, at_server, received), Skew { ahead_us, uncertainty_us });
        }
        let shown = Skew { ahead_us: -1_002_003, uncertainty_us: 70 }.to_string();
        assert_eq!(shown, "-1002.003 ms (within 0.070 ms)");
    }

    #[test]
    fn only_what_is_better_put_right_is_a_concern() {
        let forbidden = || StoreError::Refused("NOPERM".to_owned());
        let silent = ServerInfo {
            server: Err(forbidden()),
            eviction: Err(forbidden()),
            clock: Err(forbidden()),
            scripts_read_the_clock: Ok(()),
        };
        assert_eq!((calm().concerns(), silent.concerns()), (vec![], vec![]));
        let far = Skew { ahead_us: -500_101, uncertainty_us: 100 };
        let cases = [
            (
                ServerInfo { server: Ok(server("Redis", "6.2.14")), ..calm() },
                Concern::Old(server("Redis", "6.2.14")),
            ),
            (
                ServerInfo { eviction: Ok("allkeys-lru".to_owned()), ..calm() },
                Concern::Eviction("allkeys-lru".to_owned()),
            ),
            (ServerInfo { clock: Ok(far), ..calm() }, Concern::Skew(far)),
            (ServerInfo { scripts_read_the_clock: Err(forbidden()), ..calm() }, Concern::NoTime(forbidden())),
        ];
        for (info, concern) in cases {
            assert_eq!(info.concerns(), [concern]);
        }
    }
}
