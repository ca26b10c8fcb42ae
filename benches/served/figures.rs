//! The figures of a row, and their spread over several rounds.

use std::fmt;

use crate::scenario::Measured;

/// The figures of one measurement; a row has some of them. CPU and context switches are per call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub per_second: f64,
    pub service_us: Option<f64>,
    pub redis_us: Option<f64>,
    pub service_switches: Option<f64>,
    pub redis_switches: Option<f64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub denied: u64,
    pub failed: u64,
    /// CPU of the load generator.
    pub generator_us: Option<f64>,
    /// With a schedule: by how much calls were started after they were due.
    pub late_p50_us: Option<f64>,
    pub late_p99_us: Option<f64>,
    /// With a schedule: calls that the generator started together with an earlier one.
    pub bunched_percent: Option<f64>,
}

impl Figures {
    pub fn new(measured: &Measured) -> Self {
        let tally = &measured.tally;
        let calls = tally.answered.max(1) as f64;
        let us = |cpu: std::time::Duration| cpu.as_secs_f64() * 1e6 / calls;
        let quantile = |q| Some(tally.latency.value_at_quantile(q) as f64);
        let scheduled = (!tally.lateness.is_empty()).then_some(&tally.lateness);
        let late = |q| scheduled.map(|lateness| lateness.value_at_quantile(q) as f64);
        Self {
            per_second: tally.answered as f64 / tally.elapsed.as_secs_f64(),
            service_us: measured.service.map(|used| us(used.cpu)),
            redis_us: measured.redis.map(|used| us(used.cpu)),
            service_switches: measured.service.map(|used| used.switches as f64 / calls),
            redis_switches: measured.redis.map(|used| used.switches as f64 / calls),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            denied: tally.over_limit,
            failed: tally.failed + tally.broken,
            generator_us: Some(us(tally.generator)),
            late_p50_us: late(0.5),
            late_p99_us: late(0.99),
            bunched_percent: scheduled.map(|lateness| tally.bunched as f64 * 100.0 / lateness.len() as f64),
        }
    }
}

/// One figure in several rounds, in ascending order. It is shown as `least / median / most`, in one round as it is.
pub struct Spread(Vec<f64>);

impl Spread {
    pub fn new(figures: &[Figures], figure: fn(&Figures) -> Option<f64>) -> Self {
        let mut sorted: Vec<_> = figures.iter().filter_map(figure).collect();
        sorted.sort_by(f64::total_cmp);
        Self(sorted)
    }

    pub fn median(&self) -> Option<f64> {
        self.0.get(self.0.len() / 2).copied()
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = formatter.precision().unwrap_or(0);
        match (self.0.as_slice(), self.median()) {
            ([least, .., most], Some(median)) => {
                write!(formatter, "{least:.precision$} / {median:.precision$} / {most:.precision$}")
            }
            (_, Some(one)) => write!(formatter, "{one:.precision$}"),
            (_, None) => Ok(()),
        }
    }
}
