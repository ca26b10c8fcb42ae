//! Reads the text format of Prometheus.

use std::collections::BTreeMap;

use super::behaviour::Values;
use crate::support::http;

/// The metrics of envoyproxy/ratelimit on a page. Durations are left out but for their number.
#[derive(Debug, Default)]
pub struct Exposition {
    /// The kind of each family that has a series.
    pub types: BTreeMap<String, String>,
    pub values: Values,
}

impl Exposition {
    /// Reads `/metrics` of the HTTP port.
    pub fn of(port: u16) -> Self {
        Self::read(&http::get(port, "/metrics", &[]).expect("an answer").body)
    }

    pub fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut family = ("", "");
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                family = kind.split_once(' ').expect("a name and a kind");
                continue;
            }
            if line.starts_with('#') || !is_of_envoy_ratelimit(line) {
                continue;
            }
            let (series, value) = line.rsplit_once(' ').expect("a series and its value");
            let name = series.split('{').next().unwrap_or_default();
            page.types.insert(family.0.to_owned(), family.1.to_owned());
            let is_duration = family.1 == "histogram" && !name.ends_with("_count");
            if !is_duration {
                let value = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
                assert_eq!(page.values.insert(series.to_owned(), value), None, "{series} is there twice");
            }
        }
        page
    }
}

fn is_of_envoy_ratelimit(line: &str) -> bool {
    line.starts_with("ratelimit_") || line.starts_with("runtime_")
}
