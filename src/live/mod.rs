//! Exceptions that operators and the service set while it runs. They are kept in Redis, or in this process if its
//! counters are.
//!
//! One task polls Redis once a second and applies what others wrote. If Redis lost rows, it restores them. No decision
//! waits for any of this. Entry point: [`LiveExceptions`].

mod change;
mod error;
mod pause;
mod penalties;
mod poll;
mod show;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::clock::Clock;
use base::on_blocking_thread;
use engine::LiveRows;
use parking_lot::Mutex;
use store::redis::{PutResult, RedisStore, RowPut, StoredRow};
use tokio::time::timeout;

use crate::decide::limiter::Rulebook;
use crate::telemetry::metrics::Metrics;
use table::{Applied, LiveTable};

pub use change::{Author, RemovedRow, SetRow};
pub use error::LiveError;
pub use pause::{Pause, PauseEnd, Paused};
pub use penalties::Penalties;
pub use show::{ListRows, ListedRow, LiveView};

/// Maximum time of a change, including the poll before it.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Shows a value to people: domain, key, value.
pub type MaskValue = Arc<dyn Fn(&str, &str, &str) -> String + Send + Sync>;

/// Where the rows are kept.
#[derive(Clone, Debug)]
pub enum Keeper {
    Redis(RedisStore),
    Process,
    /// The counters are in Redis, and `exceptions.redis` is false.
    Nowhere,
}

/// What live exceptions need of the process.
pub struct LiveOptions {
    pub keeper: Keeper,
    pub rulebook: Arc<Rulebook>,
    pub metrics: Metrics,
    pub clock: Arc<dyn Clock>,
    /// Called after each change that requests can notice, on a thread that may block.
    pub on_change: Box<dyn Fn() + Send + Sync>,
    pub mask: MaskValue,
    /// When the rows last equalled the rows in Redis, microseconds since the epoch; 0: never.
    pub confirmed_at: Arc<AtomicU64>,
    /// The name of this process in Redis, and what it says of itself there, for the newest version of its rows.
    pub instance: String,
    pub status: Arc<dyn Fn(u64) -> String + Send + Sync>,
}

/// Exceptions set while the process runs. Clones share them.
#[derive(Clone)]
pub struct LiveExceptions(Arc<Shared>);

struct Shared {
    options: LiveOptions,
    state: Mutex<State>,
    /// Requests use this generation.
    published: Mutex<u64>,
    /// Held during a poll.
    poll: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    table: LiveTable,
    /// Rises with each change that requests can notice.
    generation: u64,
    /// Where the next page of Redis begins.
    since: u64,
    /// `true` while polls fail.
    is_away: bool,
    view: LiveView,
    /// The generation at the last count, and when a row next starts or ends.
    counted: Option<(u64, u64)>,
    /// The generation at the last sweep, and when the next one is due without a change.
    swept: Option<(u64, u64)>,
}

impl fmt::Debug for LiveExceptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveExceptions").field("keeper", &self.0.options.keeper).finish_non_exhaustive()
    }
}

impl LiveExceptions {
    pub fn new(options: LiveOptions) -> Self {
        let state = Mutex::new(State { view: LiveView::new(&options.keeper), ..State::default() });
        Self(Arc::new(Shared {
            options,
            state,
            published: Mutex::default(),
            poll: tokio::sync::Mutex::default(),
        }))
    }

    fn confirmed_us(&self) -> u64 {
        self.0.options.confirmed_at.load(Ordering::Relaxed)
    }

    fn now_us(&self) -> u64 {
        self.0.options.clock.now_us()
    }

    /// Writes rows, and applies what was written or found instead.
    async fn put(&self, puts: Vec<RowPut>) -> Result<Vec<PutResult>, LiveError> {
        match &self.0.options.keeper {
            Keeper::Nowhere => Err(LiveError::Off),
            Keeper::Process => Ok(self.put_here(&puts)),
            Keeper::Redis(redis) => {
                let known_version = self.0.state.lock().table.newest();
                let results = redis.put_rows(known_version, &puts).await?;
                self.apply(written_rows(puts, &results));
                Ok(results)
            }
        }
    }

    fn put_here(&self, puts: &[RowPut]) -> Vec<PutResult> {
        let mut state = self.0.state.lock();
        state.generation += 1;
        state.table.put_all(puts, self.now_us())
    }

    /// Applies rows of Redis. Returns how many were added, changed and removed.
    fn apply(&self, rows: impl IntoIterator<Item = StoredRow>) -> [usize; 3] {
        let mut counts = [0; 3];
        let mut state = self.0.state.lock();
        for row in rows {
            let id = row.id.clone();
            match state.table.apply(row) {
                Applied::Known => {}
                Applied::Added => counts[0] += 1,
                Applied::Changed => counts[1] += 1,
                Applied::Removed => counts[2] += 1,
                Applied::Unread => {
                    tracing::warn!(id, "cannot read a row of exceptions in Redis; ignoring it")
                }
            }
        }
        state.generation += u64::from(counts != [0; 3]);
        counts
    }

    /// Makes requests use the current rows. Returns once they do. Changes at the same time are published together.
    async fn publish(&self) {
        let live = self.clone();
        on_blocking_thread(move || live.publish_now()).await;
    }

    fn publish_now(&self) {
        let Shared { options, state, published, .. } = &*self.0;
        let mut published = published.lock();
        let (rows, generation): (LiveRows, u64) = {
            let state = state.lock();
            (state.table.live().clone(), state.generation)
        };
        if *published != generation {
            drop(options.rulebook.replace_live_rows(rows));
            *published = generation;
            (options.on_change)();
        }
    }

    /// # Errors
    /// [`LiveError::Unavailable`] if it lasts longer than a change may.
    async fn within_time<T>(
        &self,
        change: impl Future<Output = Result<T, LiveError>>,
    ) -> Result<T, LiveError> {
        timeout(CHANGE_TIMEOUT, change).await.unwrap_or(Err(engine::StoreError::Timeout.into()))
    }
}

/// Returns the rows that a call wrote, and the rows that it found instead.
fn written_rows(puts: Vec<RowPut>, results: &[PutResult]) -> Vec<StoredRow> {
    let row = |(put, result): (RowPut, &PutResult)| match result {
        &PutResult::Written { version: version @ 1.., until_us, level } => {
            let RowPut { id, is_automatic, json, .. } = put;
            Some(StoredRow { id, version, until_us, level, is_automatic, json })
        }
        PutResult::Kept(row) | PutResult::Conflict(Some(row)) => Some(row.clone()),
        _ => None,
    };
    puts.into_iter().zip(results).filter_map(row).collect()
}
