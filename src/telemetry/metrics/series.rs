//! The series that are not in the registry, and how they are written in the text exposition format of Prometheus. A
//! limit has twelve series, and the registry would keep a copy of the labels and of the name for each, about 10 KB for
//! a limit.

use std::collections::HashMap;
use std::fmt::{Arguments, Display, Write as _};
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
    /// The counts with these labels. Counts that the rules before had go on.
    pub(crate) fn counts(&mut self, labels: L) -> Arc<C> {
        if let Some(counts) = self.taken.get(&labels) {
            return Arc::clone(counts);
        }
        let counts = self.known.remove(&labels).unwrap_or_default();
        self.taken.insert(labels.clone(), Arc::clone(&counts));
        self.now.push((labels, Arc::clone(&counts)));
        counts
    }

    /// Puts the new series in force. The other series of the rules before end.
    pub(crate) fn finish(mut self) {
        self.now.shrink_to_fit();
        *self.table.0.lock() = Arc::new(self.now);
    }
}

/// Text in the exposition format.
#[derive(Debug)]
pub(crate) struct Exposition<'e> {
    text: String,
    /// The labels of every series, from [`labels`].
    extra_labels: &'e str,
}

impl<'e> Exposition<'e> {
    /// Continues `text`.
    pub(crate) fn new(text: String, extra_labels: &'e str) -> Self {
        Self { text, extra_labels }
    }

    /// Starts a family. One without series is written too, so that its name can be found before it counts.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    /// Adds a series to the family. `labels` are from [`labels`].
    pub(crate) fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let extra = self.extra_labels;
        let all = match (labels.is_empty(), extra.is_empty()) {
            (true, true) => String::new(),
            (false, true) => format!("{{{labels}}}"),
            (true, false) => format!("{{{extra}}}"),
            (false, false) => format!("{{{labels},{extra}}}"),
        };
        self.line(format_args!("{name}{all} {value}"));
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, line: Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a String takes any text");
    }
}

/// Labels in the given order, as they stand between the braces.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    pairs.collect::<Vec<_>>().join(",")
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('\n', r"\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_written_in_the_exposition_format() {
        let mut exposition = Exposition::new(String::new(), "");
        exposition.family("hits_total", "counter", "Hits");
        exposition.sample("hits_total", &labels(&[("a", "x"), ("b", "")]), 7);
        exposition.sample("hits_total", &labels(&[("a", "line\n\"1\\2\"")]), u64::MAX);
        exposition.sample("hits_total", "", 0);
        let lines = [
            "# HELP hits_total Hits",
            "# TYPE hits_total counter",
            r#"hits_total{a="x",b=""} 7"#,
            r#"hits_total{a="line\n\"1\\2\""} 18446744073709551615"#,
            "hits_total 0",
        ];
        assert_eq!(exposition.into_text().lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn every_series_has_the_extra_labels() {
        let extra = labels(&[("env", "prod")]);
        let mut exposition = Exposition::new(String::new(), &extra);
        exposition.sample("hits_total", &labels(&[("a", "x")]), 1);
        exposition.sample("hits_total", "", 2);
        assert_eq!(
            exposition.into_text(),
            "hits_total{a=\"x\",env=\"prod\"} 1\nhits_total{env=\"prod\"} 2\n"
        );
    }
}
