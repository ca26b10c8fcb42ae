//! The kinds of metrics: registered by name, bound to the rules in force, or read at each scrape.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{self, Metric, MetricFamily, MetricType};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, Result,
};

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

pub(super) fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge> {
    let gauge = IntGauge::new(name, help)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

/// Upper bounds of duration buckets, seconds. 15 ms is the store's default deadline, 20 ms Envoy's own.
const DURATIONS: [f64; 15] =
    [50e-6, 100e-6, 200e-6, 500e-6, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];

pub(super) fn durations(registry: &Registry, name: &str, help: &str, label: &str) -> Result<HistogramVec> {
    let options = HistogramOpts::new(name, help).buckets(DURATIONS.to_vec());
    let durations = HistogramVec::new(options, &[label])?;
    registry.register(Box::new(durations.clone()))?;
    Ok(durations)
}

/// A histogram of counts, in powers of two up to 1,024.
pub(super) fn sizes(registry: &Registry, name: &str, help: &str) -> Result<Histogram> {
    let powers = (0..=10).map(|power| f64::from(1_u32 << power)).collect();
    let sizes = Histogram::with_opts(HistogramOpts::new(name, help).buckets(powers))?;
    registry.register(Box::new(sizes.clone()))?;
    Ok(sizes)
}

/// Counters whose series are added and removed with the rules. Clones share the same numbers.
#[derive(Clone, Debug)]
pub(super) struct RuleCounters {
    family: IntCounterVec,
    bound: Arc<Mutex<BTreeSet<Labels>>>,
}

type Labels = Vec<String>;

impl RuleCounters {
    pub(super) fn new(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<Self> {
        Ok(Self { family: counters(registry, name, help, labels)?, bound: Arc::default() })
    }

    /// Starts to bind the series of a new rule set. [`Binding::finish`] removes the series that the new rules do not
    /// have.
    pub(super) fn bind(&self) -> Binding<'_> {
        Binding { family: &self.family, before: self.bound.lock(), now: BTreeSet::new() }
    }
}

pub(super) struct Binding<'f> {
    family: &'f IntCounterVec,
    before: MutexGuard<'f, BTreeSet<Labels>>,
    now: BTreeSet<Labels>,
}

impl Binding<'_> {
    pub(super) fn counter(&mut self, labels: &[&str]) -> IntCounter {
        self.now.insert(labels.iter().copied().map(str::to_owned).collect());
        self.family.with_label_values(labels)
    }

    pub(super) fn finish(mut self) {
        for removed in self.before.difference(&self.now) {
            // Fails only if the series does not exist, which is the goal.
            let _ = self.family.remove_label_values(removed);
        }
        *self.before = self.now;
    }
}

/// The value of a pulled metric.
pub(super) enum Reading {
    Counter(u64),
    Gauge(u64),
    /// The value of another metric's histogram.
    Histogram(Box<proto::Histogram>),
}

/// Registers a metric whose value is read at each scrape. Its labels are constant.
pub(super) fn pulled(
    registry: &Registry,
    options: Opts,
    read: impl Fn() -> Reading + Send + Sync + 'static,
) -> Result<()> {
    registry.register(Box::new(Pulled { desc: options.describe()?, read }))
}

struct Pulled<R> {
    desc: Desc,
    read: R,
}

impl<R: Fn() -> Reading + Send + Sync> Collector for Pulled<R> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut metric = Metric::from_label(self.desc.const_label_pairs.clone());
        let kind = (self.read)().write_to(&mut metric);
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(kind);
        family.set_metric(vec![metric]);
        vec![family]
    }
}

impl Reading {
    fn write_to(self, metric: &mut Metric) -> MetricType {
        // The exposition format has floats only; integers are exact up to 2^53.
        match self {
            Self::Counter(value) => {
                let mut counter = proto::Counter::default();
                counter.set_value(value as f64);
                metric.set_counter(counter);
                MetricType::COUNTER
            }
            Self::Gauge(value) => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value as f64);
                metric.set_gauge(gauge);
                MetricType::GAUGE
            }
            Self::Histogram(histogram) => {
                metric.set_histogram(*histogram);
                MetricType::HISTOGRAM
            }
        }
    }
}
