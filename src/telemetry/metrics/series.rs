//! Counts of the current rules, read at each scrape. A limit has twelve series, and counters of the registry would each
//! copy the labels and the name, about 10 KB per limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A counter shared by many threads.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, units: u64) {
        self.0.fetch_add(units, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts by labels. In order, because the registry sorts each scrape's series, which is then faster.
pub(crate) type Series<L, C> = BTreeMap<L, Arc<C>>;

/// Counts of the current rules.
#[derive(Debug)]
pub(crate) struct SeriesTable<L, C>(Mutex<Arc<Series<L, C>>>);

impl<L, C> Default for SeriesTable<L, C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L: Ord, C: Default> SeriesTable<L, C> {
    pub(crate) fn in_force(&self) -> Arc<Series<L, C>> {
        Arc::clone(&self.0.lock())
    }

    /// Starts the series of new rules. Only one thread may do so at a time. The old rules' series stay until
    /// [`SeriesBinding::finish`].
    pub(crate) fn bind(&self) -> SeriesBinding<'_, L, C> {
        SeriesBinding { table: self, before: self.in_force(), now: Series::new() }
    }
}

pub(crate) struct SeriesBinding<'t, L, C> {
    table: &'t SeriesTable<L, C>,
    /// Counts of the old rules.
    before: Arc<Series<L, C>>,
    now: Series<L, C>,
}

impl<L: Ord, C: Default> SeriesBinding<'_, L, C> {
    /// Returns the counts with these labels. Counts that the old rules had continue.
    pub(crate) fn counts(&mut self, labels: L) -> Arc<C> {
        let before = &self.before;
        let counts = self
            .now
            .entry(labels)
            .or_insert_with_key(|labels| before.get(labels).cloned().unwrap_or_default());
        Arc::clone(counts)
    }

    /// Switches to the new series. The old rules' other series end.
    pub(crate) fn finish(self) {
        *self.table.0.lock() = Arc::new(self.now);
    }
}
