//! Who decides a replay: memory, or Redis with explicit time.

use crate::clock::{Clock, SystemClock};
use crate::engine::{Charges, Outcomes, StoreError};
use crate::store::memory::{Census, MemoryOptions, MemoryStore};
use crate::store::redis::{OptionsError, RedisOptions, ReplayClient, ReplayClientError, TimedBatch};

/// Keys of a replay on memory: enough for a day of a large site, and a bound all the same.
const MAX_KEYS: usize = 10_000_000;
/// Recorded time may step back as far as it likes; nothing is forgotten but for lack of room.
const SLACK_US: u64 = u64::MAX;

/// Decides requests at the times they carry, in order.
pub trait Judge {
    /// One outcome per request.
    ///
    /// # Errors
    /// [`JudgeError`] when the store behind it cannot answer.
    fn decide(&mut self, asked: &[(u64, &Charges)]) -> Result<Vec<Outcomes>, JudgeError>;
}

/// Why a judge could not decide.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// Redis cannot be reached.
    #[error("redis: {0}")]
    Connect(#[from] ReplayClientError),
    /// Redis gave no answer.
    #[error("redis: {0}")]
    Store(#[from] StoreError),
    /// No runtime to talk to Redis on.
    #[error("cannot start a runtime: {0}")]
    Runtime(#[from] std::io::Error),
}

/// The engine's own kernels.
#[derive(Debug)]
pub struct MemoryJudge {
    store: MemoryStore<SystemClock>,
}

impl MemoryJudge {
    /// An empty memory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            store: MemoryStore::new(MemoryOptions { max_keys: MAX_KEYS, slack_us: SLACK_US }, SystemClock),
        }
    }

    /// What it holds; evictions mean that answers may be too generous.
    #[must_use]
    pub fn census(&self) -> Census {
        self.store.census()
    }
}

impl Default for MemoryJudge {
    fn default() -> Self {
        Self::new()
    }
}

impl Judge for MemoryJudge {
    fn decide(&mut self, asked: &[(u64, &Charges)]) -> Result<Vec<Outcomes>, JudgeError> {
        Ok(asked.iter().map(|(t_us, charges)| self.store.decide_at(charges, *t_us)).collect())
    }
}

/// The Lua script, under a key prefix of its own that is removed afterwards.
#[derive(Debug)]
pub struct RedisJudge {
    runtime: tokio::runtime::Runtime,
    timeline: ReplayClient,
}

impl RedisJudge {
    /// Connects to the Redis at `url`.
    ///
    /// # Errors
    /// [`JudgeError`] when it cannot be reached.
    pub fn connect(url: &str) -> Result<Self, JudgeError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let unique = format!("{}-{}", std::process::id(), SystemClock.now_us());
        let url = url.parse().map_err(|error| ReplayClientError::from(OptionsError::from(error)))?;
        let options = RedisOptions {
            urls: vec![url],
            key_prefix: format!("ratelimitd:replay:{unique}:"),
            ..RedisOptions::default()
        };
        let timeline = runtime.block_on(ReplayClient::connect(&options))?;
        Ok(Self { runtime, timeline })
    }

    /// Removes every key of this replay.
    ///
    /// # Errors
    /// [`JudgeError`] when Redis does not answer; the keys then run out by themselves.
    pub fn clean(&mut self) -> Result<(), JudgeError> {
        self.runtime.block_on(self.timeline.remove_all())?;
        Ok(())
    }
}

impl Judge for RedisJudge {
    fn decide(&mut self, asked: &[(u64, &Charges)]) -> Result<Vec<Outcomes>, JudgeError> {
        // Each instant is one call.
        let charges: Vec<&Charges> = asked.iter().map(|(_, charges)| *charges).collect();
        let mut moments = Vec::new();
        let mut start = 0;
        for run in asked.chunk_by(|(a, _), (b, _)| a == b) {
            moments.push(TimedBatch { now_us: run[0].0, requests: &charges[start..start + run.len()] });
            start += run.len();
        }
        let decided = self.runtime.block_on(self.timeline.decide(&moments))?;
        Ok(decided.into_iter().flatten().collect())
    }
}
