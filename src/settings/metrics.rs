//! `metrics.*`: where the metrics are and go, and their labels.

use super::parsers::{Parser, count, listen_address_or_off, one_of};
use super::reader::Reader;
use super::statsd::statsd_from_reader;
use crate::net::ListenAddress;
use crate::reference::statsd::StatsdOptions;
use crate::telemetry::metrics::{ExtraTags, ResponseTimeUnit};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// `metrics.address`: a port for the metrics alone; `None` is `off`. The HTTP port has them in any case.
    pub address: Option<ListenAddress>,
    /// `metrics.path`, on that port.
    pub path: String,
    /// `metrics.extra_tags`
    pub extra_tags: ExtraTags,
    /// `metrics.values_per_rule`
    pub values_per_rule: usize,
    /// `metrics.response_time`
    pub response_time: ResponseTimeUnit,
    /// `metrics.statsd.*`; `None` if the address is `off`.
    pub statsd: Option<StatsdOptions>,
}

impl Metrics {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        let path = Parser::new("a path that begins with a slash", |text| {
            // Braces have a meaning in the paths of the router.
            let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"{}?#%".contains(&byte));
            (text.starts_with('/') && is_plain).then(|| text.to_owned())
        });
        let tags = "name:value pairs with commas between them, or nothing";
        let units =
            [("seconds", ResponseTimeUnit::Seconds), ("milliseconds", ResponseTimeUnit::Milliseconds)];
        let extra_tags = reader.take("metrics.extra_tags", "", Parser::new(tags, ExtraTags::parse));
        Self {
            address: reader.take("metrics.address", "off", listen_address_or_off()),
            path: reader.take("metrics.path", "/metrics", path),
            values_per_rule: reader.take("metrics.values_per_rule", "1000", count(0..=100_000)),
            response_time: reader.take("metrics.response_time", "seconds", one_of(units)),
            statsd: statsd_from_reader(reader, &extra_tags),
            extra_tags,
        }
    }
}
