//! Families in the registry: with series that count themselves, or that are read at each scrape.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, Result,
    proto,
};
use strum::{IntoStaticStr, VariantArray};

use super::options::PulledStats;

pub(super) fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter> {
    let counter = IntCounter::new(name, help)?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

pub(super) fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec> {
    let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(counters.clone()))?;
    Ok(counters)
}

/// Counters by an enum's variants, whose names are the last label's values. Clones share the counts.
#[derive(Clone, Debug)]
pub struct CountersBy<E> {
    /// In the variants' order.
    each: Vec<IntCounter>,
    cases: PhantomData<E>,
}

impl<E: VariantArray + Copy + PartialEq + Into<&'static str>> CountersBy<E> {
    /// Creates every series immediately, so that the first count is an increase. `labels`: values of the other labels.
    pub(super) fn new(family: &IntCounterVec, labels: &[&str]) -> Self {
        let counter = |case: &E| family.with_label_values(&[labels, &[(*case).into()]].concat());
        Self { each: E::VARIANTS.iter().map(counter).collect(), cases: PhantomData }
    }

    pub fn count(&self, case: E) {
        self.counter(case).inc();
    }

    pub(super) fn counter(&self, case: E) -> &IntCounter {
        let place = E::VARIANTS.iter().position(|known| *known == case);
        &self.each[place.expect("every case is one of the variants")]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum LoadResult {
    Success,
    Failure,
}

impl LoadResult {
    pub(super) fn of(is_success: bool) -> Self {
        if is_success { Self::Success } else { Self::Failure }
    }
}

pub(super) fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge> {
    let gauge = IntGauge::new(name, help)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

/// Upper bounds of duration buckets, seconds. 15 ms is the store's default deadline, 20 ms Envoy's own.
pub(super) const STORE_DURATIONS: [f64; 15] =
    [50e-6, 100e-6, 200e-6, 500e-6, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];

/// The same, and the bounds of envoyproxy/ratelimit, whose histogram is read from this one.
pub(crate) const REQUEST_DURATIONS: [f64; 20] = [
    50e-6, 100e-6, 200e-6, 500e-6, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.1, 0.2, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];

/// A histogram of seconds with one label.
pub(super) fn durations(registry: &Registry, options: HistogramOpts, label: &str) -> Result<HistogramVec> {
    let durations = HistogramVec::new(options, &[label])?;
    registry.register(Box::new(durations.clone()))?;
    Ok(durations)
}

/// Counts of a histogram of seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DurationBuckets {
    pub calls: u64,
    /// Each bucket's upper bound in seconds, with the calls up to it.
    pub up_to: Vec<(f64, u64)>,
}

/// Sums histograms with equal buckets.
pub(super) fn duration_buckets<'h>(histograms: impl IntoIterator<Item = &'h Histogram>) -> DurationBuckets {
    let mut sum = DurationBuckets::default();
    for histogram in histograms {
        let proto = prometheus::core::Metric::metric(histogram);
        let proto = proto.get_histogram();
        let buckets =
            proto.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
        if sum.up_to.is_empty() {
            sum.up_to = buckets.collect();
        } else {
            sum.up_to.iter_mut().zip(buckets).for_each(|(all, (_, calls))| all.1 += calls);
        }
        sum.calls += proto.get_sample_count();
    }
    sum
}

/// A family whose series are read at each scrape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReadFamily {
    pub(crate) name: &'static str,
    kind: MetricType,
    pub(crate) help: &'static str,
}

impl ReadFamily {
    pub(crate) const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricType::COUNTER, help }
    }

    pub(crate) const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricType::GAUGE, help }
    }

    pub(crate) const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricType::HISTOGRAM, help }
    }

    pub(crate) fn empty(self) -> MetricFamily {
        empty_family(self.name, self.kind, self.help)
    }

    /// Registers the family with one series, whose labels are constant.
    pub(super) fn register(
        self,
        registry: &Registry,
        labels: &'static [(&str, &str)],
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<()> {
        let read = move || {
            let mut family = self.empty();
            add_series(&mut family, labels, read());
            vec![family]
        };
        register_read(registry, &[self], read)
    }

    /// Start of a family's exposition text.
    pub(super) fn head(self) -> String {
        let kind = format!("{:?}", self.kind).to_lowercase();
        format!("# HELP {name} {help}\n# TYPE {name} {kind}\n", name = self.name, help = self.help)
    }
}

/// A family with one series, and how it is read from a part of the process.
pub(super) type Reading<S> = (ReadFamily, fn(&S) -> u64);

/// Registers families with one series each, which are read from a part; none if the process does not have the part.
pub(super) fn watch<S: 'static, const N: usize>(
    registry: &Registry,
    stats: &Option<PulledStats<S>>,
    readings: [Reading<S>; N],
) -> Result<()> {
    let Some(stats) = stats else { return Ok(()) };
    readings.into_iter().try_for_each(|(family, value)| {
        let stats = Arc::clone(stats);
        family.register(registry, &[], move || value(&stats()))
    })
}

pub(crate) fn empty_family(name: &str, kind: MetricType, help: &str) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family
}

/// Adds a series to a family of counters or gauges.
pub(crate) fn add_series(family: &mut MetricFamily, labels: &[(&str, &str)], value: u64) {
    let mut metric = Metric::from_label(label_pairs(labels));
    // The exposition format has only floats; integers are exact up to 2^53.
    let value = value as f64;
    if family.get_field_type() == MetricType::COUNTER {
        let mut counter = proto::Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        let mut gauge = proto::Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    }
    family.mut_metric().push(metric);
}

/// Labels in the given order, which is kept in the output.
pub(crate) fn label_pairs(labels: &[(&str, &str)]) -> Vec<LabelPair> {
    let pair = |&(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.to_owned());
        pair
    };
    labels.iter().map(pair).collect()
}

/// Turns a string into a metric or label name.
pub(crate) fn metric_name(text: &str) -> String {
    text.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_', "_")
}

/// Registers families that `read` returns at each scrape.
pub(super) fn register_read(
    registry: &Registry,
    families: &[ReadFamily],
    read: impl Fn() -> Vec<MetricFamily> + Send + Sync + 'static,
) -> Result<()> {
    let desc = |family: &ReadFamily| {
        Desc::new(family.name.to_owned(), family.help.to_owned(), Vec::new(), HashMap::new())
    };
    let descs = families.iter().map(desc).collect::<Result<_>>()?;
    registry.register(Box::new(ReadAtScrape { descs, read }))
}

struct ReadAtScrape<R> {
    descs: Vec<Desc>,
    read: R,
}

impl<R: Fn() -> Vec<MetricFamily> + Send + Sync> Collector for ReadAtScrape<R> {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        (self.read)()
    }
}
