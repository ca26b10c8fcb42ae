//! Translates the metrics' port and labels.

use super::draft::Draft;
use super::go_syntax::parse_map;
use super::listeners::address_text;
use crate::settings::quoted;

const TAGS: &str = "EXTRA_TAGS";
const USE: &str = "USE_PROMETHEUS";
const DISABLE: &str = "DISABLE_STATS";
const ADDRESS: &str = "PROMETHEUS_ADDR";
const PATH: &str = "PROMETHEUS_PATH";
const MILLISECONDS: &str = "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS";

pub(super) fn translate(draft: &mut Draft) {
    translate_tags(draft);
    let path = draft.text(PATH).to_owned();
    if !path.is_empty() && !path.starts_with('/') {
        draft.refuse(PATH, "a path that begins with a slash");
    } else if draft.flag(DISABLE) {
        draft.set("metrics.address", "off", &[DISABLE]);
    } else if draft.flag(USE) {
        translate_port(draft, path);
    } else {
        draft.warn_without(&format!("{USE}=true"), &[ADDRESS, PATH, MILLISECONDS]);
    }
}

/// As in `envoyproxy/ratelimit`, the last value of a repeated tag counts. Tags without a value are dropped: Prometheus
/// treats a label without a value as missing.
fn translate_tags(draft: &mut Draft) {
    let written = parse_map(draft.text(TAGS)).unwrap_or_default();
    let mut tags: Vec<(String, String)> = Vec::new();
    for (name, value) in written {
        if let Some(place) = tags.iter().position(|(known, _)| *known == name) {
            let (_, unused) = tags.remove(place);
            let (name, unused) = (quoted(&name), quoted(&unused));
            draft.warn(format!("{TAGS}: {name} is set twice; ignoring its value {unused}"));
        }
        tags.push((name, value));
    }
    for (name, _) in tags.iter().filter(|(_, value)| value.is_empty()) {
        draft.warn(format!("{TAGS}: ignoring {}, which has no value", quoted(name)));
    }
    let used = tags.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<_> = used.map(|(name, value)| format!("{name}:{value}")).collect();
    draft.set_if_given("metrics.extra_tags", pairs.join(","), TAGS);
}

fn translate_port(draft: &mut Draft, path: String) {
    let address = draft.text(ADDRESS).to_owned();
    if address.is_empty() {
        draft.warn(format!("{ADDRESS} is empty; serving metrics on the HTTP port only"));
    } else {
        let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match parts.and_then(|(host, port)| address_text(host, port)) {
            Some(text) => draft.set("metrics.address", text, &[ADDRESS, USE]),
            None => draft.refuse(ADDRESS, "host:port or :port"),
        }
    }
    if path.is_empty() {
        draft.warn(format!("{PATH} is empty; using /metrics"));
    } else {
        draft.set_if_given("metrics.path", path, PATH);
    }
    let unit = if draft.flag(MILLISECONDS) { "milliseconds" } else { "seconds" };
    draft.set_if_given("metrics.response_time", unit, MILLISECONDS);
}

#[cfg(test)]
mod tests {
    use crate::cli::load_settings::{LoadedSettings, load_settings_with};
    use crate::settings::{Settings, SettingsError};

    fn load(variables: &[(&str, &str)]) -> Result<LoadedSettings, SettingsError> {
        let owned = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        load_settings_with(None, owned, Some("ratelimit"))
    }

    #[test]
    fn the_port_is_the_one_of_the_variables() {
        for (written, expected) in [
            (":19001", "[::]:19001"),
            ("0.0.0.0:9090", "[::]:9090"),
            ("[::1]:9090", "[::1]:9090"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("metrics.example:9090", "metrics.example:9090"),
        ] {
            let LoadedSettings { settings, .. } =
                load(&[("USE_PROMETHEUS", "1"), ("PROMETHEUS_ADDR", written)]).expect("valid");
            assert_eq!(
                settings.metrics.address.map(|address| address.to_string()),
                Some(expected.to_owned())
            );
        }
        let address = |variables: &[(&str, &str)]| load(variables).expect("valid").settings.metrics.address;
        assert_eq!(
            address(&[("USE_PROMETHEUS", "true")]).map(|address| address.to_string()),
            Some("[::]:9090".to_owned())
        );
        assert_eq!(address(&[("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", "")]), None);
        assert_eq!(address(&[("USE_PROMETHEUS", "true"), ("DISABLE_STATS", "true")]), None);
        assert_eq!(address(&[("PROMETHEUS_ADDR", ":19001")]), None);
    }

    #[test]
    fn a_port_that_cannot_be_read_is_an_error() {
        for written in ["nonsense", ":http", ":65536", "a b:80", "a:b:80"] {
            let error = load(&[("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", written)]);
            let error = error.expect_err(written).to_string();
            assert!(error.contains("PROMETHEUS_ADDR: expected host:port"), "{error}");
        }
    }

    #[test]
    fn tags_that_cannot_be_labels_are_refused_by_the_name_of_the_variable() {
        let error = load(&[("EXTRA_TAGS", "__name__:x")]).expect_err("no label").to_string();
        assert!(error.contains("EXTRA_TAGS"), "{error}");
        let LoadedSettings { settings, .. } = load(&[("EXTRA_TAGS", "env:prod,zone:eu")]).expect("valid");
        assert_ne!(settings.metrics.extra_tags, Settings::default().metrics.extra_tags);
    }

    #[test]
    fn a_tag_without_a_value_and_all_but_the_last_value_of_a_tag_are_warnings() {
        let tags = |text: &str| {
            let LoadedSettings { settings, report, .. } = load(&[("EXTRA_TAGS", text)]).expect("valid");
            let tags = settings.metrics.extra_tags;
            let pairs: Vec<_> = tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
            (pairs.join(" "), report.warnings)
        };
        let no_value = |name: &str| format!("EXTRA_TAGS: ignoring \"{name}\", which has no value");
        let twice =
            |value: &str| format!("EXTRA_TAGS: \"zone\" is set twice; ignoring its value \"{value}\"");
        let cases = [
            ("", "", vec![]),
            ("zone:", "", vec![no_value("zone")]),
            ("env:prod,zone:,rack:", "env=prod", vec![no_value("zone"), no_value("rack")]),
            ("zone:eu,env:prod,zone:us", "env=prod zone=us", vec![twice("eu")]),
            ("zone:eu,zone:", "", vec![twice("eu"), no_value("zone")]),
        ];
        for (text, used, warnings) in cases {
            assert_eq!(tags(text), (used.to_owned(), warnings), "{text}");
        }
    }
}
