//! Follows the rows in Redis, and restores what Redis lost.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{on_blocking_thread, ticks};
use engine::StoreError;
use store::redis::{RedisStore, RowPut, RowsPage};
use tokio::sync::Notify;

use super::table::KEPT_US;
use super::{Keeper, LiveError, LiveExceptions, State};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Rows in one call.
const PAGE: usize = 1_000;

impl LiveExceptions {
    /// Polls Redis, and drops what is over. Never returns. `news`: notified when there is something new to report.
    pub async fn run(self, news: Arc<Notify>) {
        let mut ticks = ticks(POLL_INTERVAL);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = news.notified() => {}
            }
            self.tick().await;
        }
    }

    /// What [`run`](Self::run) does once a second.
    pub async fn tick(&self) {
        // First: all instances drop a row at about the same time, so that their sums are equal.
        let (live, is_due) = (self.clone(), self.is_sweep_due());
        let over = if is_due { on_blocking_thread(move || live.sweep()).await } else { Vec::new() };
        if !over.is_empty()
            && let Err(error) = self.forget(over).await
        {
            tracing::debug!(%error, "cannot forget exceptions that are over");
        }
        if let Err(error) = self.sync().await {
            self.tell_failure(&error);
        }
        if is_due || self.is_sweep_due() {
            let live = self.clone();
            let view = on_blocking_thread(move || live.view()).await;
            self.0.options.metrics.families.exceptions.live(view.kinds.iter());
        }
        self.publish().await;
    }

    /// `true` if rows changed, started, ended or can be dropped since the last sweep, which reads all rows.
    fn is_sweep_due(&self) -> bool {
        let now_us = self.now_us();
        self.with_state(|state| {
            let is_due = |(generation, due_us)| generation != state.generation || due_us <= now_us;
            state.table.is_before_sweep(now_us) || state.swept.is_none_or(is_due)
        })
    }

    /// Drops rows that are over. Redis refuses a drop if another instance was first.
    async fn forget(&self, over: Vec<RowPut>) -> Result<(), LiveError> {
        self.put(over.clone()).await?;
        self.with_state(|state| over.iter().for_each(|put| state.table.forget_dropped(put)));
        Ok(())
    }

    /// Applies what others wrote to Redis, and restores what Redis lost.
    pub(super) async fn sync(&self) -> Result<(), StoreError> {
        let Keeper::Redis(redis) = &self.0.options.keeper else { return Ok(()) };
        let _turn = self.0.poll.lock().await;
        let mut changes = [0; 3];
        let (since, confirmed_us) = (self.with_state(|state| state.since), self.confirmed_us());
        let is_stale = confirmed_us > 0 && confirmed_us.saturating_add(KEPT_US) < self.now_us();
        let sum = self.read_pages(redis, since, &mut changes, |_| {}).await?;
        if is_stale || sum != self.with_state(|state| state.table.sum()) {
            self.recover(redis, is_stale, &mut changes).await?;
        }
        self.tell_changes(changes);
        self.publish().await;
        Ok(())
    }

    /// Reads the pages from `since` on. Returns the sum of versions in Redis.
    async fn read_pages(
        &self,
        redis: &RedisStore,
        mut since: u64,
        changes: &mut [usize; 3],
        mut on_page: impl FnMut(&RowsPage),
    ) -> Result<u64, StoreError> {
        let options = &self.0.options;
        loop {
            let status = (options.status)(self.with_state(|state| state.table.newest()));
            let page = redis.poll_rows(since, &options.instance, &status).await?;
            on_page(&page);
            for id in &page.skipped {
                tracing::warn!(id, "another program has changed a row of exceptions in Redis; ignoring it");
            }
            let RowsPage { sum, last, rows, is_full, .. } = page;
            let live = self.clone();
            let counts = on_blocking_thread(move || live.apply(rows)).await;
            changes.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            since = last;
            if !is_full {
                self.with_state(|state| state.since = since);
                return Ok(sum);
            }
        }
    }

    /// Compares all rows with the rows in Redis, and restores what Redis lacks.
    async fn recover(
        &self,
        redis: &RedisStore,
        is_stale: bool,
        changes: &mut [usize; 3],
    ) -> Result<(), StoreError> {
        let mut stored = HashMap::new();
        let on_page = |page: &RowsPage| {
            stored.extend(page.rows.iter().map(|row| (row.id.clone(), row.version)));
        };
        let sum = self.read_pages(redis, 0, changes, on_page).await?;
        let lost = self.with_state(|state| {
            state.table.forget_missing(&stored, is_stale, self.now_us());
            state.generation += 1;
            if state.table.sum() == sum { Vec::new() } else { state.table.lost(&stored) }
        });
        for rows in lost.chunks(PAGE) {
            let newest = self.with_state(|state| state.table.newest());
            redis.put_rows(newest, rows).await?;
            self.0.options.metrics.families.exceptions.restores.inc_by(rows.len() as u64);
        }
        if !lost.is_empty() {
            tracing::warn!(rows = lost.len(), "Redis has lost rows of exceptions; restored them");
        }
        Ok(())
    }

    /// Returns what can be forgotten.
    fn sweep(&self) -> Vec<RowPut> {
        let now_us = self.now_us();
        self.with_state(|state| {
            let (was_empty, went_back) = (state.table.live().is_empty(), state.table.is_before_sweep(now_us));
            let (over, due_us) = state.table.sweep(now_us);
            // Otherwise requests ignore them until the next change.
            state.generation += u64::from(went_back || !was_empty && state.table.live().is_empty());
            state.swept = Some((state.generation, due_us));
            over
        })
    }

    fn tell_changes(&self, [added, changed, removed]: [usize; 3]) {
        let is_first = self.0.options.confirmed_at.swap(self.now_us(), Ordering::Relaxed) == 0;
        let (version, was_away) =
            self.with_state(|state| (state.table.newest(), mem::take(&mut state.is_away)));
        if is_first || was_away {
            tracing::info!(version, "exceptions in Redis are known");
        }
        if added + changed + removed > 0 && !is_first {
            tracing::info!(added, changed, removed, version, "exceptions changed by another instance");
        }
    }

    fn tell_failure(&self, error: &StoreError) {
        let was_away = self.with_state(|state| mem::replace(&mut state.is_away, true));
        if was_away {
            return;
        }
        if self.confirmed_us() == 0 {
            tracing::warn!(%error, "exceptions in Redis are not known yet");
        } else {
            tracing::warn!(%error, "cannot read exceptions in Redis; keeping current ones");
        }
    }

    pub(super) fn with_state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.state.lock())
    }

    /// Reads Redis before a change.
    pub(super) async fn be_current(&self) -> Result<(), LiveError> {
        match &self.0.options.keeper {
            Keeper::Nowhere => Err(LiveError::Off),
            Keeper::Redis(_) | Keeper::Process => Ok(self.sync().await?),
        }
    }
}
