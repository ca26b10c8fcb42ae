//! Decides on Redis at given times: for recorded traffic, and for tests that compare the script with the engine. Uses
//! one connection without a batcher, and long timeouts.

use std::time::Duration;

use engine::{Charges, ChargesPart, Outcomes, StoreError};
use redis::Pipeline;
use tokio::time::{Instant, timeout};

use super::connect::{Connection, Target};
use super::error::OptionsError;
use super::options::RedisOptions;
use super::script::{BatchPlan, EncodedRequest, ScriptRef, When};

/// Long, because no caller's request waits for the reply.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Requests decided at one instant, in one script call.
#[derive(Clone, Copy, Debug)]
pub struct TimedBatch<'a> {
    /// Microseconds since the epoch, below 2^52.
    pub now_us: u64,
    /// Decided in this order.
    pub requests: &'a [&'a Charges],
}

/// A client that decides at given times. Counters are kept for an hour of real time after they equal empty ones.
#[derive(Debug)]
pub struct ReplayClient {
    connection: Connection,
    key_prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayClientError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReplayClient {
    /// Connects.
    ///
    /// # Errors
    /// [`ReplayClientError`] if the options are invalid or Redis does not answer.
    pub async fn connect(options: &RedisOptions) -> Result<Self, ReplayClientError> {
        let target = Target::new(&RedisOptions { timeout: REPLY_TIMEOUT, ..options.clone() })?;
        let connection = timeout(REPLY_TIMEOUT, Connection::open(&target)).await;
        Ok(Self {
            connection: connection.unwrap_or(Err(StoreError::Timeout))?,
            key_prefix: options.key_prefix.clone(),
        })
    }

    /// Decides the batches' requests in order, in one round trip.
    ///
    /// # Errors
    /// [`StoreError`] if a call fails. Any part of the requests may have been recorded.
    pub async fn decide(&mut self, batches: &[TimedBatch<'_>]) -> Result<Vec<Vec<Outcomes>>, StoreError> {
        if batches.iter().flat_map(|batch| batch.requests).any(|charges| charges.has_settles()) {
            return Box::pin(self.decide_parts(batches)).await;
        }
        self.decide_whole(batches).await
    }

    /// Decides requests some of which have settles, which the script decides one by one.
    async fn decide_parts(&mut self, batches: &[TimedBatch<'_>]) -> Result<Vec<Vec<Outcomes>>, StoreError> {
        let of_batch =
            |batch: &TimedBatch<'_>| batch.requests.iter().map(|charges| charges.parts()).collect();
        let parts: Vec<Vec<Vec<ChargesPart>>> = batches.iter().map(of_batch).collect();
        let sent: Vec<Vec<&Charges>> =
            parts.iter().map(|batch| batch.iter().flatten().map(|part| &part.charges).collect()).collect();
        let times = batches.iter().map(|batch| batch.now_us);
        let sent: Vec<_> =
            times.zip(&sent).map(|(now_us, requests)| TimedBatch { now_us, requests }).collect();
        let decided = self.decide_whole(&sent).await?;
        let of_batch = |(batch, decided): (&Vec<Vec<ChargesPart>>, Vec<Outcomes>)| {
            let mut decided = decided.into_iter();
            let joined = |parts: &Vec<ChargesPart>| Outcomes::of_parts(parts.iter().zip(decided.by_ref()));
            batch.iter().map(joined).collect()
        };
        Ok(parts.iter().zip(decided).map(of_batch).collect())
    }

    async fn decide_whole(&mut self, batches: &[TimedBatch<'_>]) -> Result<Vec<Vec<Outcomes>>, StoreError> {
        if batches.is_empty() {
            // An empty pipeline is an error of the client.
            return Ok(Vec::new());
        }
        let encode = |batch: &TimedBatch<'_>| -> (Vec<EncodedRequest>, BatchPlan) {
            let requests: Vec<_> =
                batch.requests.iter().map(|charges| EncodedRequest::new(charges, &self.key_prefix)).collect();
            let plan = BatchPlan::new(requests.iter());
            (requests, plan)
        };
        let encoded: Vec<_> = batches.iter().map(encode).collect();
        let mut calls = Pipeline::with_capacity(batches.len());
        for (batch, (requests, plan)) in batches.iter().zip(&encoded) {
            calls.add_command(plan.command(requests.iter(), When::At(batch.now_us), ScriptRef::Sha1));
        }
        let deadline = Instant::now() + REPLY_TIMEOUT;
        let replies: Vec<Vec<i64>> =
            self.connection.query_pipeline(&calls, deadline).await.map_err(StoreError::from)?;
        if replies.len() != batches.len() {
            return Err(StoreError::Malformed("not one reply for each call".to_owned()));
        }
        let sent = batches.iter().zip(&encoded).zip(&replies);
        sent.map(|((batch, (requests, plan)), numbers)| {
            let answers = plan.split_reply(requests.iter(), numbers)?;
            answers.iter().zip(batch.requests).map(|(answer, charges)| answer.outcomes(charges)).collect()
        })
        .collect()
    }

    /// Removes all keys with the prefix, and returns their number.
    ///
    /// # Errors
    /// [`StoreError`] if a command fails. Some keys may have been removed.
    pub async fn remove_all(&mut self) -> Result<u64, StoreError> {
        let pattern = format!("{}*", escape_pattern(&self.key_prefix));
        let (mut cursor, mut removed) = (0_u64, 0);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1_000);
            let deadline = Instant::now() + REPLY_TIMEOUT;
            let (next, keys): (u64, Vec<Vec<u8>>) =
                self.connection.query(&scan, deadline).await.map_err(StoreError::from)?;
            if !keys.is_empty() {
                let mut unlink = redis::cmd("UNLINK");
                unlink.arg(keys);
                removed += self.connection.query::<u64>(&unlink, deadline).await.map_err(StoreError::from)?;
            }
            if next == 0 {
                return Ok(removed);
            }
            cursor = next;
        }
    }
}

/// Returns a glob-style pattern that matches only this string.
pub(super) fn escape_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::redis::testing::{FakeServer, Reply};
    use engine::algorithm::{FixedWindow, Kernel};
    use engine::{Charge, Charging, Cost, FailurePolicy, Role};

    /// A client with the key prefix `a*`, connected to `redis.test:6379`.
    async fn client() -> ReplayClient {
        let urls = vec!["redis://redis.test:6379".parse().expect("a URL")];
        let options = RedisOptions { urls, key_prefix: "a*".to_owned(), ..RedisOptions::default() };
        ReplayClient::connect(&options).await.expect("a connection")
    }

    /// A hit on the counter with this key.
    fn charges(key: char) -> Charges {
        let mut charges = Charges::default();
        let hit = Charge {
            kernel: Kernel::FixedWindow(FixedWindow::new(5, 1_000_000)),
            cost: Cost::take(1),
            charging: Charging::Prepaid,
            role: Role::Enforce,
            on_store_failure: FailurePolicy::Error,
        };
        charges.push(hit, |text| text.push(key));
        charges
    }

    #[test]
    fn a_pattern_matches_its_text_alone() {
        assert_eq!(escape_pattern("rl:{a*b?[c]\\^"), "rl:{a\\*b\\?\\[c\\]\\\\\\^");
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_calls_of_one_round_trip_at_their_times() {
        let server = FakeServer::listen("redis.test", 6_379, |_| None);
        let (first, second) = (charges('k'), charges('l'));
        let batches = [
            TimedBatch { now_us: 7, requests: &[&first, &second] },
            TimedBatch { now_us: 8, requests: &[&first] },
        ];
        let outcomes = client().await.decide(&batches).await.expect("answers");
        assert_eq!(outcomes.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        let calls = server.commands("EVALSHA");
        let keys_and_times = calls.iter().map(|call| {
            let (requests, words) = call.split_last().expect("the requests");
            let time = requests.as_bytes().first_chunk().expect("the time");
            (words[3..].join(" "), f64::from_le_bytes(*time))
        });
        let expected = [("a*k a*l".to_owned(), 7.0), ("a*k".to_owned(), 8.0)];
        assert_eq!(keys_and_times.collect::<Vec<_>>(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn no_batches_are_no_call() {
        let server = FakeServer::listen("redis.test", 6_379, |_| None);
        assert_eq!(client().await.decide(&[]).await, Ok(Vec::new()));
        assert!(server.commands("EVALSHA").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_with_too_few_numbers_is_malformed() {
        let reply = |command: &[String]| (command[0] == "EVALSHA").then(|| Reply::Array(vec![Reply::Int(7)]));
        FakeServer::listen("redis.test", 6_379, reply);
        let charges = charges('k');
        let result = client().await.decide(&[TimedBatch { now_us: 7, requests: &[&charges] }]).await;
        assert!(matches!(result, Err(StoreError::Malformed(_))), "{result:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn all_pages_of_keys_are_removed_and_the_prefix_is_no_pattern() {
        let cursors = Mutex::new(vec!["0", "17"]);
        let page = move |_: &[String]| {
            let keys = ["a*1", "a*2"].map(|key| Reply::Bulk(key.to_owned()));
            let cursor = cursors.lock().pop().expect("two pages");
            Reply::Array(vec![Reply::Bulk(cursor.to_owned()), Reply::Array(keys.to_vec())])
        };
        let server = FakeServer::listen("redis.test", 6_379, move |command| match command[0].as_str() {
            "SCAN" => Some(page(command)),
            "UNLINK" => Some(Reply::Int(2)),
            _ => None,
        });
        assert_eq!(client().await.remove_all().await, Ok(4));
        let scans = server.commands("SCAN");
        assert_eq!(scans.iter().map(|scan| scan[1].as_str()).collect::<Vec<_>>(), ["0", "17"]);
        assert_eq!(scans[0][3], "a\\**");
        assert_eq!(server.commands("UNLINK")[0][1..], ["a*1", "a*2"]);
    }
}
