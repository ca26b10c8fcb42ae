//! Translates statsd and DogStatsD.

use std::time::Duration;

use regex::Regex;
use serde_json::json;

use super::draft::{Draft, MOGRIFIER_PREFIX};
use super::go_syntax::parse_map;
use super::listeners::host_text;
use crate::settings::{Fault, SettingProblem, quoted, variable_origin};

const DISABLE: &str = "DISABLE_STATS";
const STATSD: &str = "USE_STATSD";
const DOG_STATSD: &str = "USE_DOG_STATSD";
const PROMETHEUS: &str = "USE_PROMETHEUS";
const HOST: &str = "STATSD_HOST";
const PORT: &str = "STATSD_PORT";
const PROTOCOL: &str = "STATSD_PROTOCOL";
const INTERVAL: &str = "STATS_FLUSH_INTERVAL";
const MOGRIFIERS: &str = "USE_DOG_STATSD_MOGRIFIERS";

const ADDRESS_KEY: &str = "metrics.statsd.address";

/// Variables that the DogStatsD client turns into tags, and the tags.
const TAGS: [(&str, &str); 4] = [
    ("DD_ENTITY_ID", "dd.internal.entity_id"),
    ("DD_ENV", "env"),
    ("DD_SERVICE", "service"),
    ("DD_VERSION", "version"),
];

/// Range of `metrics.statsd.flush_interval`.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3_600));

/// Where metrics are sent.
enum Sink {
    /// With the variables that decide it.
    Off(&'static [&'static str]),
    Statsd,
    DogStatsd,
}

pub(super) fn translate(draft: &mut Draft) {
    match sink(draft) {
        Sink::Off(variables) => {
            draft.set(ADDRESS_KEY, "off", variables);
            draft.warn_without("statsd or DogStatsD", &[HOST, PORT, PROTOCOL, INTERVAL, MOGRIFIERS]);
        }
        Sink::Statsd => {
            draft.warn_without("DogStatsD", &[MOGRIFIERS]);
            let protocol = draft.text(PROTOCOL).to_owned();
            let scheme = match protocol.as_str() {
                "" | "tcp" | "tcp4" | "tcp6" => "tcp",
                "udp" | "udp4" | "udp6" => "udp",
                _ => {
                    let unknown = quoted(&protocol);
                    draft.warn(format!("{PROTOCOL}: expected tcp or udp, found {unknown}: nothing is sent"));
                    return draft.set(ADDRESS_KEY, "off", &[PROTOCOL]);
                }
            };
            translate_address(draft, scheme, &[STATSD, HOST, PORT, PROTOCOL]);
            translate_interval(draft);
        }
        Sink::DogStatsd => {
            draft.warn_without("statsd", &[PROTOCOL]);
            draft.set("metrics.statsd.format", "dogstatsd", &[DOG_STATSD]);
            translate_address(draft, "udp", &[DOG_STATSD, HOST, PORT]);
            translate_interval(draft);
            translate_tags(draft);
            translate_mogrifiers(draft);
        }
    }
}

/// As in `envoyproxy/ratelimit`, statsd is on unless a variable turns it off.
fn sink(draft: &mut Draft) -> Sink {
    let [is_disabled, statsd, dog_statsd, prometheus] =
        [DISABLE, STATSD, DOG_STATSD, PROMETHEUS].map(|name| draft.flag(name));
    let asks_for_statsd = statsd && draft.is_set(STATSD);
    if is_disabled {
        Sink::Off(&[DISABLE])
    } else if dog_statsd {
        if asks_for_statsd {
            draft.refuse(DOG_STATSD, format!("false, as {STATSD} is true: metrics go to one of them"));
        }
        Sink::DogStatsd
    } else if asks_for_statsd || (statsd && !prometheus) {
        Sink::Statsd
    } else if statsd {
        Sink::Off(&[PROMETHEUS])
    } else {
        Sink::Off(&[STATSD])
    }
}

fn translate_address(draft: &mut Draft, scheme: &str, variables: &[&'static str]) {
    let Some(port) = u16::try_from(draft.whole(PORT)).ok().filter(|&port| port > 0) else {
        return draft.refuse(PORT, "a port from 1 to 65535");
    };
    let Some(host) = host_text(draft.text(HOST), "localhost") else {
        return draft.refuse(HOST, "an IP address or a host name");
    };
    draft.set(ADDRESS_KEY, format!("{scheme}://{host}:{port}"), variables);
}

fn translate_interval(draft: &mut Draft) {
    let interval = draft.duration(INTERVAL);
    if (INTERVALS.0..=INTERVALS.1).contains(&interval) {
        let text = humantime::format_duration(interval).to_string();
        draft.set_if_given("metrics.statsd.flush_interval", text, INTERVAL);
    } else {
        draft.refuse(INTERVAL, "a duration from 100ms to 1h");
    }
}

fn translate_tags(draft: &mut Draft) {
    // A comma would start another tag.
    let value = |text: &str| text.replace(|letter: char| letter == ',' || letter.is_control(), "_");
    let set: Vec<_> = TAGS.into_iter().filter(|(name, _)| !draft.text(name).is_empty()).collect();
    let tags: Vec<_> = set.iter().map(|(name, tag)| format!("{tag}:{}", value(draft.text(name)))).collect();
    if !tags.is_empty() {
        let names: Vec<_> = set.iter().map(|(name, _)| *name).collect();
        draft.set("metrics.statsd.tags", tags.join(","), &names);
    }
}

fn translate_mogrifiers(draft: &mut Draft) {
    let names = draft.text(MOGRIFIERS).to_owned();
    let names = names.split(',').filter(|_| !names.is_empty());
    let rows: Vec<_> = names.filter_map(|name| mogrifier(draft, name)).collect();
    if !rows.is_empty() {
        draft.set("metrics.statsd.mogrifiers", json!(rows).to_string(), &[MOGRIFIERS]);
    }
}

/// Returns a table row; `None` after a problem.
fn mogrifier(draft: &mut Draft, name: &str) -> Option<serde_json::Value> {
    // As in `envoyproxy/ratelimit`, the name is in capitals.
    let variable = |part: &str| format!("{MOGRIFIER_PREFIX}{}_{part}", name.to_uppercase());
    let text = |draft: &Draft, part: &str| draft.mogrifier_text(&variable(part)).to_owned();
    let [pattern, new_name, tags] = ["PATTERN", "NAME", "TAGS"].map(|part| text(draft, part));
    let faults = [
        ("PATTERN", pattern.is_empty() || Regex::new(&pattern).is_err(), "a regular expression", &pattern),
        ("NAME", new_name.is_empty(), "the new name", &new_name),
        ("TAGS", parse_map(&tags).is_none(), "comma-separated tag:value pairs", &tags),
    ];
    let mut is_valid = true;
    for (part, _, expected, found) in faults.into_iter().filter(|(_, is_fault, ..)| *is_fault) {
        is_valid = false;
        let found = if found.is_empty() { "nothing".to_owned() } else { quoted(found) };
        draft.problems.push(SettingProblem {
            key: variable(part),
            origin: variable_origin(&format!("{MOGRIFIERS}, {}", variable(part))),
            fault: Fault::Malformed { expected: expected.to_owned(), found: Some(found) },
        });
    }
    is_valid.then(|| json!({"pattern": pattern, "name": new_name, "tags": tags}))
}

#[cfg(test)]
mod tests {
    use crate::cli::load_settings::{LoadedSettings, load_settings_with};
    use crate::settings::SettingsError;

    /// Reads the variables as an environment of `envoyproxy/ratelimit`, whichever are set.
    fn read(variables: &[(&str, &str)]) -> Result<LoadedSettings, SettingsError> {
        let owned = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        load_settings_with(None, owned, Some("ratelimit"))
    }

    /// The resulting statsd settings: address, format, interval, tags.
    fn statsd(variables: &[(&str, &str)]) -> [String; 4] {
        let LoadedSettings { report, .. } = read(variables).unwrap_or_else(|error| panic!("{error}"));
        ["address", "format", "flush_interval", "tags"].map(|key| {
            let key = format!("metrics.statsd.{key}");
            let setting = report.settings.iter().find(|setting| setting.key == key);
            setting.expect("a setting").value.clone()
        })
    }

    #[test]
    fn metrics_go_where_the_variables_say_and_to_statsd_if_none_does() {
        type Case<'c> = (&'c [(&'c str, &'c str)], [&'c str; 4]);
        let off = ["off", "statsd", "10s", ""];
        let cases: [Case<'_>; 16] = [
            (&[], ["tcp://localhost:8125", "statsd", "10s", ""]),
            (&[("USE_STATSD", "false")], off),
            (&[("DISABLE_STATS", "true")], off),
            (&[("DISABLE_STATS", "true"), ("USE_DOG_STATSD", "true")], off),
            (&[("USE_PROMETHEUS", "true")], off),
            (
                &[("USE_PROMETHEUS", "true"), ("USE_STATSD", "true")],
                ["tcp://localhost:8125", "statsd", "10s", ""],
            ),
            (
                &[("STATSD_HOST", "statsd"), ("STATSD_PORT", "9125")],
                ["tcp://statsd:9125", "statsd", "10s", ""],
            ),
            (&[("STATSD_HOST", "::1")], ["tcp://[::1]:8125", "statsd", "10s", ""]),
            (&[("STATSD_HOST", "")], ["tcp://localhost:8125", "statsd", "10s", ""]),
            (&[("STATSD_PROTOCOL", "udp")], ["udp://localhost:8125", "statsd", "10s", ""]),
            (&[("STATSD_PROTOCOL", "http")], off),
            (&[("STATS_FLUSH_INTERVAL", "1m30s")], ["tcp://localhost:8125", "statsd", "1m 30s", ""]),
            (&[("USE_DOG_STATSD", "true")], ["udp://localhost:8125", "dogstatsd", "10s", ""]),
            (
                &[("USE_DOG_STATSD", "true"), ("USE_STATSD", "false"), ("STATSD_HOST", "10.0.0.1")],
                ["udp://10.0.0.1:8125", "dogstatsd", "10s", ""],
            ),
            (
                &[("USE_DOG_STATSD", "true"), ("DD_ENV", "prod,eu"), ("DD_VERSION", "1"), ("DD_SERVICE", "")],
                ["udp://localhost:8125", "dogstatsd", "10s", "env:prod_eu,version:1"],
            ),
            (&[("DD_ENV", "prod"), ("USE_STATSD", "1")], ["tcp://localhost:8125", "statsd", "10s", ""]),
        ];
        for (variables, expected) in cases {
            assert_eq!(statsd(variables), expected, "{variables:?}");
        }
        let variables = [("USE_STATSD", "false"), ("STATSD_PORT", "1"), ("STATSD_PROTOCOL", "udp")];
        let LoadedSettings { report, .. } = read(&variables).unwrap_or_else(|error| panic!("{error}"));
        let expected = ["STATSD_PORT", "STATSD_PROTOCOL"]
            .map(|name| format!("{name} has no effect without statsd or DogStatsD"));
        assert_eq!(report.warnings, expected);
    }

    #[test]
    fn mogrifiers_are_read_by_their_names_and_in_their_order() {
        let loaded = read(&[
            ("USE_DOG_STATSD", "true"),
            ("USE_DOG_STATSD_MOGRIFIERS", "TWO,one"),
            ("DOG_STATSD_MOGRIFIER_ONE_PATTERN", r"^a\.(.*)$"),
            ("DOG_STATSD_MOGRIFIER_ONE_NAME", "b.$1"),
            ("DOG_STATSD_MOGRIFIER_ONE_TAGS", "c:$1,d:e"),
            ("DOG_STATSD_MOGRIFIER_TWO_PATTERN", "f"),
            ("DOG_STATSD_MOGRIFIER_TWO_NAME", "g\"h"),
        ]);
        let LoadedSettings { settings, .. } = loaded.unwrap_or_else(|error| panic!("{error}"));
        let mogrifiers = settings.metrics.statsd.expect("an address").mogrifiers.0;
        let found: Vec<_> =
            mogrifiers.iter().map(|one| (one.pattern.as_str(), one.name.as_str(), one.tags.len())).collect();
        assert_eq!(found, [("f", "g\"h", 0), (r"^a\.(.*)$", "b.$1", 2)]);
    }

    #[test]
    fn variables_of_statsd_that_cannot_work_are_refused() {
        let dog = ("USE_DOG_STATSD", "true");
        let cases: [(&[(&str, &str)], &str); 7] = [
            (&[dog, ("USE_STATSD", "true")], "USE_DOG_STATSD: expected false, as USE_STATSD is true"),
            (&[("STATSD_PORT", "65536")], "STATSD_PORT: expected a port"),
            (&[("STATSD_HOST", "a/b")], "STATSD_HOST: expected an IP address or a host name"),
            (&[("STATS_FLUSH_INTERVAL", "2h")], "STATS_FLUSH_INTERVAL: expected a duration from 100ms to 1h"),
            (
                &[dog, ("USE_DOG_STATSD_MOGRIFIERS", "nonsense")],
                "DOG_STATSD_MOGRIFIER_NONSENSE_PATTERN: expected a regular expression, found nothing",
            ),
            (
                &[dog, ("USE_DOG_STATSD_MOGRIFIERS", "A"), ("DOG_STATSD_MOGRIFIER_A_PATTERN", "(")],
                "DOG_STATSD_MOGRIFIER_A_NAME: expected the new name, found nothing",
            ),
            (
                &[dog, ("USE_DOG_STATSD_MOGRIFIERS", "A"), ("DOG_STATSD_MOGRIFIER_A_TAGS", "t")],
                "DOG_STATSD_MOGRIFIER_A_TAGS: expected comma-separated tag:value",
            ),
        ];
        for (variables, expected) in cases {
            let error = read(variables).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
