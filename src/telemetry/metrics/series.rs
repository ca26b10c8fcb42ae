//! The series of the limits in force, by their labels. They are not in the registry: a limit has twelve series, and the
//! registry keeps a copy of the labels and of the name for each, about 10 KB for a limit.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A counter that many threads add to.
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

/// Counts and their labels. No two have the same labels.
type Series<L, C> = Vec<(L, Arc<C>)>;

/// Counts by labels, for the rules in force.
#[derive(Debug)]
pub(crate) struct SeriesTable<L, C>(Mutex<Arc<Series<L, C>>>);

impl<L, C> Default for SeriesTable<L, C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L: Clone + Eq + Hash, C: Default> SeriesTable<L, C> {
    /// The series in force.
    pub(crate) fn in_force(&self) -> Arc<Series<L, C>> {
        Arc::clone(&self.0.lock())
    }

    /// Starts the series of new rules. Only one thread may do so at a time. The series of the rules before stay in
    /// force until [`SeriesBinding::finish`].
    pub(crate) fn bind(&self) -> SeriesBinding<'_, L, C> {
        let before = self.in_force();
        let known = before.iter().map(|(labels, counts)| (labels.clone(), Arc::clone(counts))).collect();
        SeriesBinding { table: self, known, taken: HashMap::new(), now: Vec::new() }
    }
}

pub(crate) struct SeriesBinding<'t, L, C> {
    table: &'t SeriesTable<L, C>,
    /// The counts of the rules before.
    known: HashMap<L, Arc<C>>,
    taken: HashMap<L, Arc<C>>,
    now: Series<L, C>,
}

impl<L: Clone + Eq + Hash, C: Default> SeriesBinding<'_, L, C> {
    /// The counts with these labels: those of the rules before, if they had them.
    pub(crate) fn counts(&mut self, labels: L) -> Arc<C> {
        if let Some(counts) = self.taken.get(&labels) {
            return Arc::clone(counts);
        }
        let counts = self.known.remove(&labels).unwrap_or_default();
        self.taken.insert(labels.clone(), Arc::clone(&counts));
        self.now.push((labels, Arc::clone(&counts)));
        counts
    }

    /// Puts the new series in force. The series of which no labels were asked for end.
    pub(crate) fn finish(mut self) {
        self.now.shrink_to_fit();
        *self.table.0.lock() = Arc::new(self.now);
    }
}
