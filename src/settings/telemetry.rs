//! `metrics.*`, `traces.*` and `log.*`: what the process exports for operators, and where it is sent.

use regex::Regex;

use super::error::Fault;
use super::parsers::{
    Parser, count, duration, list, listen_address_or_off, named, optional_path, share, text,
};
use super::reader::{Reader, Row, Table};
use crate::net::ListenAddress;
use crate::telemetry::envoy_ratelimit::{
    Mogrifier, Mogrifiers, ResponseTimeUnit, StatsdOptions, StatsdTarget,
};
use crate::telemetry::logging::{Filter, Format};
use crate::telemetry::metrics::ExtraTags;
use crate::telemetry::traces::{OtlpHeaders, ServiceIdentity, TracesOptions, otlp_endpoint};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// `metrics.address`: a port for metrics only; `None`: `off`. The HTTP port always serves them.
    pub address: Option<ListenAddress>,
    /// `metrics.path`, on that port.
    pub path: String,
    pub extra_tags: ExtraTags,
    pub values_per_rule: usize,
    pub response_time: ResponseTimeUnit,
    /// `metrics.statsd.*`; `None` if the address is `off`.
    pub statsd: Option<StatsdOptions>,
}

impl Metrics {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        let path = Parser::new("a path that begins with a slash, without any of {}:*?#%", |text| {
            // Braces, colons and stars are special in the router's paths.
            let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"{}:*?#%".contains(&byte));
            (text.starts_with('/') && is_plain).then(|| text.to_owned())
        });
        let tags = "name:value pairs with commas between them, or nothing";
        let extra_tags = reader.take("metrics.extra_tags", "", Parser::new(tags, ExtraTags::parse));
        Self {
            address: reader.take("metrics.address", "off", listen_address_or_off()),
            path: reader.take("metrics.path", "/metrics", path),
            values_per_rule: reader.take("metrics.values_per_rule", "1000", count(0..=100_000)),
            response_time: reader.take("metrics.response_time", "seconds", named()),
            statsd: statsd_from_reader(reader, &extra_tags),
            extra_tags,
        }
    }
}

const MOGRIFIERS: Table<'static> = Table {
    key: "metrics.statsd.mogrifiers",
    columns: &["pattern", "name", "tags"],
    // Each name is compared with each pattern at each flush.
    max_rows: 100,
};

/// `extra_tags`: tags of all metrics.
fn statsd_from_reader(reader: &mut Reader, extra_tags: &ExtraTags) -> Option<StatsdOptions> {
    let address =
        Parser::new("tcp://host:port, udp://host:port, unix:///path/to/socket", StatsdTarget::parse);
    let target = reader.take("metrics.statsd.address", "off", address.or_off());
    let format = reader.take("metrics.statsd.format", "statsd", named());
    let flush_interval = reader.take("metrics.statsd.flush_interval", "10s", duration("100ms", "1h"));
    let own_tags = reader.take("metrics.statsd.tags", "", tags());
    let mogrifiers = Mogrifiers(MOGRIFIERS.read_rows(reader, mogrifier));
    let extra_tags = extra_tags.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let tags = extra_tags.chain(own_tags).collect();
    target.map(|target| StatsdOptions { target, format, flush_interval, tags, mogrifiers })
}

fn mogrifier(row: &mut Row<'_>) -> Option<Mogrifier> {
    for column in ["pattern", "name"] {
        if row.text(column).is_none_or(str::is_empty) {
            row.refuse_cell(column, Fault::Malformed { expected: "a text".to_owned(), found: None });
        }
    }
    let pattern = Parser::new("a regular expression", |text| Regex::new(text).ok());
    let pattern = row.cell("pattern", &pattern);
    let tags = row.cell("tags", &tags()).unwrap_or_default();
    Some(Mogrifier { pattern: pattern?, name: row.text("name")?.to_owned(), tags })
}

/// Names and values. A value can contain colons.
fn tags() -> Parser<Vec<(String, String)>> {
    list("name:value pairs", |tag| {
        let (name, value) = tag.split_once(':')?;
        let is_whole = !name.is_empty() && !value.is_empty() && !tag.contains(char::is_control);
        is_whole.then(|| (name.to_owned(), value.to_owned()))
    })
}

/// `None` if the endpoint is `off`.
pub(super) fn traces_from_reader(reader: &mut Reader) -> Option<TracesOptions> {
    let endpoint = Parser::new("http://host:port/path, https://host:port/path", otlp_endpoint);
    let headers = Parser::new(
        "name=value pairs with commas between them and percent-encoded values, or nothing",
        OtlpHeaders::parse,
    );
    let endpoint = reader.take("traces.endpoint", "off", endpoint.or_off());
    // Takes every setting, so that a malformed one is a problem even without an endpoint.
    let protocol = reader.take("traces.protocol", "http", named());
    let headers = reader.take("traces.headers", "", headers.secret());
    let timeout = reader.take("traces.timeout", "10s", duration("10ms", "1m"));
    let ca_file = reader.take("traces.ca_file", "", optional_path());
    let sampled_ppm = reader.take("traces.sampled_share", "1", share());
    let service = ServiceIdentity {
        name: reader.take("traces.service_name", "ratelimitd", text("a name")),
        namespace: reader.take("traces.service_namespace", "", text("a name").or_nothing()),
        instance_id: reader.take("traces.service_instance_id", "", text("a name").or_nothing()),
    };
    endpoint.map(|endpoint| TracesOptions {
        endpoint,
        protocol,
        headers,
        timeout,
        ca_file,
        sampled_ppm,
        service,
    })
}

#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// `log.level`: one level for the process, or levels by module.
    pub level: Filter,
    pub format: Format,
}

impl Log {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        let level = Parser::new(
            "one of off, error, warn, info, debug, trace, or levels by module like info,ratelimitd=debug",
            Filter::parse,
        );
        Self {
            level: reader.take("log.level", "info", level),
            format: reader.take("log.format", "text", named()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::tests::load_layers;
    use crate::settings::{Settings, SettingsError};

    fn load_metrics(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let variables =
            variables.iter().map(|(key, value)| (format!("RATELIMITD__METRICS__{key}"), (*value).to_owned()));
        load_layers(None, variables)
    }

    #[test]
    fn nothing_is_sent_unless_there_is_an_address() {
        assert_eq!(Settings::default().metrics.statsd, None);
        let loaded = load_metrics(&[("STATSD__FORMAT", "dogstatsd")]).expect("valid");
        assert_eq!(loaded.metrics.statsd, None);
    }

    #[test]
    fn tags_of_all_metrics_come_before_those_of_statsd() {
        let loaded = load_metrics(&[
            ("STATSD__ADDRESS", "udp://statsd:8125"),
            ("EXTRA_TAGS", "env:prod"),
            ("STATSD__TAGS", "version:1:2,dd.internal.entity_id:x"),
        ]);
        let tags = loaded.expect("valid").metrics.statsd.expect("an address").tags;
        let expected = [("env", "prod"), ("version", "1:2"), ("dd.internal.entity_id", "x")];
        assert_eq!(tags, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn each_problem_names_the_key_and_what_was_expected() {
        let cases = [
            ("STATSD__ADDRESS", "statsd:8125", "metrics.statsd.address: expected tcp://"),
            ("STATSD__FORMAT", "graphite", "metrics.statsd.format: expected one of"),
            ("STATSD__FLUSH_INTERVAL", "1ms", "metrics.statsd.flush_interval: expected a duration"),
            ("STATSD__TAGS", "a", "metrics.statsd.tags: expected name:value"),
            (
                "STATSD__MOGRIFIERS",
                "[{pattern: '(', name: x}]",
                "metrics.statsd.mogrifiers[0].pattern: expected a regular expression, found \"(\"",
            ),
            ("STATSD__MOGRIFIERS", "[{pattern: a}]", "metrics.statsd.mogrifiers[0].name: expected a text"),
            (
                "STATSD__MOGRIFIERS",
                "[{pattern: a, name: b, tags: c}]",
                "metrics.statsd.mogrifiers[0].tags: expected name:value",
            ),
            (
                "STATSD__MOGRIFIERS",
                "[{pattern: a, name: b, tag: c:d}]",
                "metrics.statsd.mogrifiers[0].tag: no such setting; did you mean 'tags'?",
            ),
        ];
        for (key, value, expected) in cases {
            let error = load_metrics(&[(key, value)]).expect_err(value).to_string();
            assert!(error.contains(expected), "{key}={value}: {error}");
        }
    }

    fn load_traces(key: &str, value: &str) -> Result<Settings, SettingsError> {
        let variables = [("ENDPOINT", "http://collector:4318"), (key, value)];
        let variables =
            variables.map(|(key, value)| (format!("RATELIMITD__TRACES__{key}"), value.to_owned()));
        load_layers(None, variables)
    }

    #[test]
    fn there_are_no_traces_without_an_endpoint() {
        assert_eq!(Settings::default().traces, None);
        let traces = load_traces("SAMPLED_SHARE", "0.25").expect("valid").traces.expect("an endpoint");
        assert_eq!((traces.sampled_ppm, traces.service.name.as_str()), (250_000, "ratelimitd"));
    }

    #[test]
    fn a_bad_value_is_told_and_a_header_is_not() {
        for (key, value) in [
            ("ENDPOINT", "collector:4318"),
            ("PROTOCOL", "udp"),
            ("TIMEOUT", "1ms"),
            ("SAMPLED_SHARE", "1.5"),
            ("SERVICE_NAME", ""),
        ] {
            let error = load_traces(key, value).expect_err(value).to_string();
            assert!(error.contains(&format!("traces.{}: expected", key.to_lowercase())), "{error}");
        }
        let error = load_traces("HEADERS", "s3cret").expect_err("no pair").to_string();
        assert!(error.contains("traces.headers") && !error.contains("s3cret"), "{error}");
    }
}
