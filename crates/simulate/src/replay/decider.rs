//! The stores that a replay can decide on: memory, or Redis with explicit time.

use std::path::PathBuf;

use base::clock::{Clock, SystemClock};
use engine::{Charges, Outcomes, StoreError};
use store::memory::{MemoryOptions, MemoryStats, MemoryStore};
use store::redis::{
    ClientTls, Credentials, OptionsError, Password, RedisOptions, ReplayClient, ReplayClientError, TimedBatch,
};

/// Keys of a replay in memory: enough for a day of a large site.
const MAX_KEYS: usize = 10_000_000;
/// Keys never expire, because recorded time may step back by any amount.
const GRACE_US: u64 = u64::MAX;

/// Decides requests at their recorded times, in order.
pub trait ReplayStore {
    /// Decides each request at its time in microseconds since the epoch; returns one [`Outcomes`] per request.
    ///
    /// # Errors
    /// [`ReplayStoreError`] if the store cannot answer.
    fn decide(&mut self, requests: &[(u64, &Charges)]) -> Result<Vec<Outcomes>, ReplayStoreError>;
}

/// Why a replay's store could not decide.
#[derive(Debug, thiserror::Error)]
pub enum ReplayStoreError {
    #[error("redis: {0}")]
    Connect(#[from] ReplayClientError),
    #[error("redis: {0}")]
    Store(#[from] StoreError),
    /// No runtime for the connection to Redis.
    #[error("cannot start a runtime: {0}")]
    Runtime(#[from] std::io::Error),
}

#[derive(Debug)]
pub struct MemoryReplay {
    store: MemoryStore<SystemClock>,
}

impl MemoryReplay {
    pub fn new() -> Self {
        Self::of_keys(MAX_KEYS)
    }

    /// Reproducible: the same requests have the same answers in every run, even after evictions.
    fn of_keys(max_keys: usize) -> Self {
        let options = MemoryOptions { max_keys, grace_us: GRACE_US };
        Self { store: MemoryStore::reproducible(options, SystemClock) }
    }

    /// Keys and evictions. After evictions, answers may admit too much.
    pub fn stats(&self) -> MemoryStats {
        self.store.stats()
    }
}

impl Default for MemoryReplay {
    fn default() -> Self {
        Self::new()
    }
}

impl ReplayStore for MemoryReplay {
    fn decide(&mut self, requests: &[(u64, &Charges)]) -> Result<Vec<Outcomes>, ReplayStoreError> {
        let decide = |now_us, charges: &Charges| {
            Outcomes::decided_in_parts(charges, |charges| self.store.decide_at(charges, now_us))
        };
        Ok(requests.iter().map(|(now_us, charges)| decide(*now_us, charges)).collect())
    }
}

/// The Redis of a replay, and the files that its connection needs.
#[derive(Clone, Debug, Default)]
pub struct RedisAccess {
    /// May contain a user and a password.
    pub url: String,
    /// The first line is the password, which overrides one in the URL.
    pub password_file: Option<PathBuf>,
    /// PEM files of trusted CAs, and of the client's certificate and key.
    pub ca_file: Option<PathBuf>,
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl RedisAccess {
    fn options(self) -> Result<RedisOptions, ReplayClientError> {
        let url = self.url.parse().map_err(OptionsError::from)?;
        let password = self.password_file.map_or(Password::FromUrl, Password::File);
        Ok(RedisOptions {
            urls: vec![url],
            credentials: Credentials { username: None, password },
            tls: ClientTls { ca_file: self.ca_file, identity: self.identity, ..ClientTls::default() },
            ..RedisOptions::default()
        })
    }
}

/// Replays through the Lua script, under a separate key prefix. Remove the keys with [`RedisReplay::remove_keys`].
#[derive(Debug)]
pub struct RedisReplay {
    runtime: tokio::runtime::Runtime,
    client: ReplayClient,
}

impl RedisReplay {
    /// Connects to the Redis.
    ///
    /// # Errors
    /// [`ReplayStoreError`] if Redis cannot be reached.
    pub fn connect(access: RedisAccess) -> Result<Self, ReplayStoreError> {
        let options = access.options()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let unique = format!("{}-{}", std::process::id(), SystemClock.now_us());
        let options = RedisOptions { key_prefix: format!("ratelimitd:replay:{unique}:"), ..options };
        let client = runtime.block_on(ReplayClient::connect(&options))?;
        Ok(Self { runtime, client })
    }

    /// Removes every key of this replay.
    ///
    /// # Errors
    /// [`ReplayStoreError`] if Redis does not answer; the keys then expire on their own.
    pub fn remove_keys(&mut self) -> Result<(), ReplayStoreError> {
        self.runtime.block_on(self.client.remove_all())?;
        Ok(())
    }
}

impl ReplayStore for RedisReplay {
    fn decide(&mut self, requests: &[(u64, &Charges)]) -> Result<Vec<Outcomes>, ReplayStoreError> {
        // A script call has one time, so consecutive requests of the same time share a call.
        let charges: Vec<&Charges> = requests.iter().map(|(_, charges)| *charges).collect();
        let mut batches = Vec::new();
        let mut start = 0;
        for run in requests.chunk_by(|(a, _), (b, _)| a == b) {
            batches.push(TimedBatch { now_us: run[0].0, requests: &charges[start..start + run.len()] });
            start += run.len();
        }
        let decided = self.runtime.block_on(self.client.decide(&batches))?;
        Ok(decided.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use engine::algorithm::{FixedWindow, Kernel};
    use engine::{Charge, Charging, Cost, FailurePolicy, Role};

    use super::*;

    #[test]
    fn a_replay_that_evicts_has_the_same_answers_in_every_run() {
        let charge = Charge {
            kernel: Kernel::FixedWindow(FixedWindow::new(3, 60_000_000)),
            cost: Cost::take(1),
            charging: Charging::Prepaid,
            role: Role::Enforce,
            on_store_failure: FailurePolicy::Error,
        };
        let charges = |user: u64| {
            let mut charges = Charges::default();
            charges.push(charge.clone(), |key| key.push_str(&format!("user{user}")));
            charges
        };
        let requests: Vec<Charges> = (0..10_000).map(|number| charges(number % 2_500)).collect();
        let requests: Vec<(u64, &Charges)> = requests.iter().map(|charges| (60_000_000, charges)).collect();
        let replayed = || {
            let mut store = MemoryReplay::of_keys(1_000);
            let answers = store.decide(&requests).expect("memory answers");
            assert!(store.stats().evictions > 0);
            answers
        };
        assert_eq!(replayed(), replayed());
    }
}
