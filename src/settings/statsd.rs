//! `metrics.statsd.*`: where metrics are sent, and how they are named there.

use regex::Regex;

use super::error::Fault;
use super::parsers::{Parser, duration, one_of};
use super::reader::Reader;
use super::rows::{Row, Table};
use crate::reference::statsd::{Mogrifier, Mogrifiers, StatsdFormat, StatsdOptions, StatsdTarget};
use crate::telemetry::metrics::ExtraTags;

const MOGRIFIERS: Table = Table {
    key: "metrics.statsd.mogrifiers",
    columns: &["pattern", "name", "tags"],
    // Each name is compared with each pattern at each flush.
    max_rows: 100,
};

/// `extra_tags`: the tags of all metrics.
pub(super) fn statsd_from_reader(reader: &mut Reader, extra_tags: &ExtraTags) -> Option<StatsdOptions> {
    let address = Parser::new("tcp://host:port, udp://host:port, unix:///path/to/socket, or off", |text| {
        if text == "off" { Some(None) } else { StatsdTarget::parse(text).map(Some) }
    });
    let formats = [("statsd", StatsdFormat::Statsd), ("dogstatsd", StatsdFormat::DogStatsd)];
    let target = reader.take("metrics.statsd.address", "off", address);
    let format = reader.take("metrics.statsd.format", "statsd", one_of(formats));
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

/// Names and values. A value may contain colons.
fn tags() -> Parser<Vec<(String, String)>> {
    Parser::new("name:value pairs with commas between them, or nothing", |text| {
        let tags = text.split(',').filter(|_| !text.is_empty());
        let tag = |tag: &str| {
            let (name, value) = tag.split_once(':')?;
            let is_whole = !name.is_empty() && !value.is_empty() && !tag.contains(char::is_control);
            is_whole.then(|| (name.to_owned(), value.to_owned()))
        };
        tags.map(tag).collect()
    })
}

#[cfg(test)]
mod tests {
    use crate::settings::tests::load_layers;
    use crate::settings::{Settings, SettingsError};

    fn load(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let variables =
            variables.iter().map(|(key, value)| (format!("RATELIMITD__METRICS__{key}"), (*value).to_owned()));
        load_layers(None, variables)
    }

    #[test]
    fn nothing_is_sent_unless_there_is_an_address() {
        assert_eq!(Settings::default().metrics.statsd, None);
        let loaded = load(&[("STATSD__FORMAT", "dogstatsd")]).expect("valid");
        assert_eq!(loaded.metrics.statsd, None);
    }

    #[test]
    fn tags_of_all_metrics_come_before_those_of_statsd() {
        let loaded = load(&[
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
                "metrics.statsd.mogrifiers[0].tag: no such setting; known settings: pattern, name, tags",
            ),
        ];
        for (key, value, expected) in cases {
            let error = load(&[(key, value)]).expect_err(value).to_string();
            assert!(error.contains(expected), "{key}={value}: {error}");
        }
    }
}
