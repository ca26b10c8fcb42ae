//! Decisions on Redis at times of the caller's choosing: recorded traffic, and tests that compare the script with the
//! engine. One connection, no batcher, patient; not for serving.

use std::time::Duration;

use redis::Pipeline;
use tokio::time::{Instant, timeout};

use super::connect::{Connection, Target};
use super::error::OptionsError;
use super::options::RedisOptions;
use super::script::{self, Answer, By, Encoded, When};
use crate::engine::{Charges, Outcomes, StoreError};

/// Nobody waits for these answers with a request in hand.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Requests that are decided at one instant, in one call.
#[derive(Clone, Copy, Debug)]
pub struct TimedBatch<'a> {
    /// Microseconds since the epoch, below 2^52.
    pub now_us: u64,
    /// In the order in which they are decided.
    pub requests: &'a [&'a Charges],
}

/// A connection that decides at given times. Counters are kept for an hour of real time beyond their use.
#[derive(Debug)]
pub struct ReplayClient {
    connection: Connection,
    key_prefix: String,
}

/// Why nothing could be decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayClientError {
    /// The options cannot be meant.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Redis gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReplayClient {
    /// Connects.
    ///
    /// # Errors
    /// [`ReplayClientError`] where the URL is of no use or Redis does not answer.
    pub async fn connect(options: &RedisOptions) -> Result<Self, ReplayClientError> {
        let target = Target::new(options)?;
        let connection = timeout(ANSWER_TIMEOUT, Connection::open(&target)).await;
        Ok(Self {
            connection: connection.unwrap_or(Err(StoreError::Timeout))?,
            key_prefix: options.key_prefix.clone(),
        })
    }

    /// Decides the requests of each batch, batchs in the order given, all in one trip.
    ///
    /// # Errors
    /// [`StoreError`] when any call fails; what was recorded is then unknown.
    pub async fn decide(&mut self, batchs: &[TimedBatch<'_>]) -> Result<Vec<Vec<Outcomes>>, StoreError> {
        let mut calls = Pipeline::with_capacity(batchs.len());
        for batch in batchs {
            let requests: Vec<_> =
                batch.requests.iter().map(|charges| Encoded::new(charges, &self.key_prefix)).collect();
            calls.add_command(script::call(requests.iter(), When::At(batch.now_us), By::Hash));
        }
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let answers: Vec<Vec<i64>> =
            self.connection.query_pipeline(&calls, deadline).await.map_err(StoreError::from)?;
        if answers.len() != batchs.len() {
            return Err(StoreError::Malformed("not one answer for each call".to_owned()));
        }
        batchs.iter().zip(&answers).map(|(batch, numbers)| outcomes(batch, numbers)).collect()
    }

    /// Undoes what was recorded of a request's prepaid charges, as a request over several slots of a cluster does that
    /// turns out to be held back. `granted` are the outcomes of those charges. Returns how the counters stand then.
    ///
    /// # Errors
    /// As [`ReplayClient::decide`].
    pub async fn undo(
        &mut self,
        now_us: u64,
        charges: &Charges,
        granted: &Outcomes,
    ) -> Result<Outcomes, StoreError> {
        let mut outcomes = Outcomes::default();
        for ((key, charge), before) in charges.iter().zip(&granted.by_charge) {
            let undo = before.and_then(|before| Encoded::undo((key, charge), &before, &self.key_prefix));
            let Some(undo) = undo else {
                outcomes.by_charge.push(*before);
                continue;
            };
            let call = script::call(std::iter::once(&undo), When::At(now_us), By::Hash);
            let deadline = Instant::now() + ANSWER_TIMEOUT;
            let numbers: Vec<i64> = self.connection.query(&call, deadline).await.map_err(StoreError::from)?;
            let numbers = numbers.get(1..).unwrap_or_default();
            outcomes.by_charge.push(Some(script::outcome(charge, numbers, now_us)?));
        }
        Ok(outcomes)
    }

    /// Removes every key that starts with this store's prefix. Returns how many there were.
    ///
    /// # Errors
    /// [`StoreError`] when Redis gives no answer; some keys may then be gone.
    pub async fn remove_all(&mut self) -> Result<u64, StoreError> {
        let pattern = format!("{}*", literal(&self.key_prefix));
        let (mut cursor, mut removed) = (0_u64, 0);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1_000);
            let deadline = Instant::now() + ANSWER_TIMEOUT;
            let (next, keys): (u64, Vec<Vec<u8>>) =
                self.connection.query(&scan, deadline).await.map_err(StoreError::from)?;
            if !keys.is_empty() {
                let mut unconnection = redis::cmd("UNLINK");
                unconnection.arg(keys);
                removed +=
                    self.connection.query::<u64>(&unconnection, deadline).await.map_err(StoreError::from)?;
            }
            if next == 0 {
                return Ok(removed);
            }
            cursor = next;
        }
    }
}

fn outcomes(batch: &TimedBatch<'_>, numbers: &[i64]) -> Result<Vec<Outcomes>, StoreError> {
    let mut rest = numbers.get(1..).unwrap_or_default();
    let mut each = Vec::with_capacity(batch.requests.len());
    for charges in batch.requests {
        let numbers = rest.split_off(..script::reply_width(charges)).ok_or_else(too_few)?;
        let answer = Answer { now_us: batch.now_us, numbers: numbers.into() };
        each.push(answer.outcomes(charges)?);
    }
    Ok(each)
}

fn too_few() -> StoreError {
    StoreError::Malformed("too few numbers".to_owned())
}

/// The text as a pattern that matches nothing else.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
