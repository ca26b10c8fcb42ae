//! The kinds of metrics in the registry: registered by name, or read at each scrape.

use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{Metric, MetricFamily, MetricType};
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
pub(super) const STORE_DURATIONS: [f64; 15] =
    [50e-6, 100e-6, 200e-6, 500e-6, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];

/// The same, and the bounds of envoyproxy/ratelimit, whose histogram is read from ours.
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

/// A histogram of counts, in powers of two up to 1,024.
pub(super) fn sizes(registry: &Registry, name: &str, help: &str) -> Result<Histogram> {
    let powers = (0..=10).map(|power| f64::from(1_u32 << power)).collect();
    let sizes = Histogram::with_opts(HistogramOpts::new(name, help).buckets(powers))?;
    registry.register(Box::new(sizes.clone()))?;
    Ok(sizes)
}

/// The value of a pulled metric.
pub(super) enum Reading {
    Counter(u64),
    Gauge(u64),
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
                let mut counter = prometheus::proto::Counter::default();
                counter.set_value(value as f64);
                metric.set_counter(counter);
                MetricType::COUNTER
            }
            Self::Gauge(value) => {
                let mut gauge = prometheus::proto::Gauge::default();
                gauge.set_value(value as f64);
                metric.set_gauge(gauge);
                MetricType::GAUGE
            }
        }
    }
}
