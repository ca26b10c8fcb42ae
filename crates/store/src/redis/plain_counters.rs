//! Reads the counters of a service that keeps each as a plain number under its own key, such as envoyproxy/ratelimit.

use engine::StoreError;
use redis::Pipeline;
use tokio::time::Instant;

use super::connect::{Connection, Target};
use super::replay::{REPLY_TIMEOUT, ReplayClientError, escape_pattern};
use super::{RedisOptions, Topology};

/// Keys that a step of SCAN passes: short enough to delay no other client.
const KEYS_IN_A_STEP: usize = 500;

/// Lists the keys of one server, page by page.
#[derive(Debug)]
pub struct PlainCounters {
    connection: Connection,
    pattern: String,
    /// `None` after the last page.
    cursor: Option<u64>,
}

impl PlainCounters {
    /// Connects to the server, or to the primary that the sentinels name. Finds keys with the prefix of the options
    /// that end with `_` and digits.
    ///
    /// # Errors
    /// [`ReplayClientError`] if the options are invalid, name a cluster, or Redis does not answer.
    pub async fn connect(options: &RedisOptions) -> Result<Self, ReplayClientError> {
        if options.topology == Topology::Cluster {
            let reason = "keys of a cluster are listed from each primary".to_owned();
            return Err(StoreError::Refused(reason).into());
        }
        let target = Target::new(&RedisOptions { timeout: REPLY_TIMEOUT, ..options.clone() })?;
        let connection = tokio::time::timeout(REPLY_TIMEOUT, Connection::open(&target)).await;
        Ok(Self {
            connection: connection.unwrap_or(Err(StoreError::Timeout))?,
            pattern: format!("{}*_[0-9]*", escape_pattern(&options.key_prefix)),
            cursor: Some(0),
        })
    }

    /// Returns the next keys, with the stored text; `None` after the last page. A key may be on several pages.
    ///
    /// # Errors
    /// [`StoreError`] if a command fails.
    pub async fn next_page(&mut self) -> Result<Option<Vec<(Vec<u8>, Vec<u8>)>>, StoreError> {
        let Some(cursor) = self.cursor else { return Ok(None) };
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(KEYS_IN_A_STEP);
        let deadline = Instant::now() + REPLY_TIMEOUT;
        let (next, keys): (u64, Vec<Vec<u8>>) =
            self.connection.query(&scan, deadline).await.map_err(StoreError::from)?;
        self.cursor = (next > 0).then_some(next);
        if keys.is_empty() {
            return Ok(Some(Vec::new()));
        }
        // One key per command, because keys of a cluster are in several slots; and no GET, which fails for a list.
        let mut reads = Pipeline::with_capacity(keys.len());
        keys.iter().for_each(|key| _ = reads.cmd("MGET").arg(key));
        let texts: Vec<[Option<Vec<u8>>; 1]> =
            self.connection.query_pipeline(&reads, deadline).await.map_err(StoreError::from)?;
        let found = keys.into_iter().zip(texts).filter_map(|(key, [text])| Some((key, text?)));
        Ok(Some(found.collect()))
    }
}
