//! Translates traces: the variables of `envoyproxy/ratelimit`, and the OpenTelemetry variables that its exporter reads.

use std::time::Duration;

use super::draft::Draft;

const ENABLED: &str = "TRACING_ENABLED";
const PROTOCOL: &str = "TRACING_EXPORTER_PROTOCOL";
const RATE: &str = "TRACING_SAMPLING_RATE";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// Range of `traces.timeout`.
const TIMEOUTS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));

pub(super) fn translate(draft: &mut Draft) {
    if !draft.flag(ENABLED) {
        let names = [
            "TRACING_SERVICE_NAME",
            "TRACING_SERVICE_NAMESPACE",
            "TRACING_SERVICE_INSTANCE_ID",
            PROTOCOL,
            RATE,
        ];
        draft.warn_without(&format!("{ENABLED}=true"), &names);
        return draft.set_if_given("traces.endpoint", "off", ENABLED);
    }
    let protocol = match draft.text(PROTOCOL) {
        "" | "http" => "http",
        "grpc" => "grpc",
        _ => return draft.refuse(PROTOCOL, "http or grpc"),
    };
    draft.set("traces.protocol", protocol, &[PROTOCOL]);
    translate_endpoint(draft, protocol);
    translate_identity(draft);
    translate_rate(draft);
    translate_exporter(draft);
    draft.warn_about_libraries("OTEL_EXPORTER_OTLP_");
}

fn translate_endpoint(draft: &mut Draft, protocol: &str) {
    let [of_traces, of_all] = [TRACES_ENDPOINT, ENDPOINT].map(|name| draft.text(name).to_owned());
    let (name, url) = match (of_traces.is_empty(), of_all.is_empty()) {
        // Only this variable has the complete path.
        (false, _) => (TRACES_ENDPOINT, of_traces),
        (true, false) if protocol == "http" => {
            (ENDPOINT, format!("{}/v1/traces", of_all.trim_end_matches('/')))
        }
        (true, false) => (ENDPOINT, of_all),
        (true, true) if protocol == "http" => (ENDPOINT, "https://localhost:4318/v1/traces".to_owned()),
        (true, true) => (ENDPOINT, "https://localhost:4317".to_owned()),
    };
    if url.starts_with("http://") || url.starts_with("https://") {
        draft.set("traces.endpoint", url, &[ENABLED, name]);
    } else {
        draft.refuse(name, "a URL that begins with http:// or https://");
    }
}

fn translate_identity(draft: &mut Draft) {
    if !draft.copy_if_not_empty("traces.service_name", "TRACING_SERVICE_NAME") {
        draft.warn("TRACING_SERVICE_NAME is empty; using ratelimitd");
    }
    for (variable, key) in [
        ("TRACING_SERVICE_NAMESPACE", "traces.service_namespace"),
        ("TRACING_SERVICE_INSTANCE_ID", "traces.service_instance_id"),
    ] {
        draft.copy_text(key, variable);
    }
}

fn translate_rate(draft: &mut Draft) {
    match draft.text(RATE).parse::<f64>() {
        // In `envoyproxy/ratelimit`, any value from 1 up samples everything, and any below 0 nothing.
        Ok(rate) => draft.set_if_given("traces.sampled_share", format!("{:.6}", rate.clamp(0.0, 1.0)), RATE),
        Err(_) => draft.refuse(RATE, "a number from 0 to 1"),
    }
}

/// OpenTelemetry has two variables for each, one of them for traces only.
fn translate_exporter(draft: &mut Draft) {
    for (of_traces, of_all, key) in [
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS", "traces.headers"),
        ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE", "traces.ca_file"),
    ] {
        if let Some(name) = given(draft, of_traces, of_all) {
            draft.copy_if_not_empty(key, name);
        }
    }
    if let Some(name) = given(draft, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT") {
        let timeout = draft.text(name).parse().map(Duration::from_millis).unwrap_or_default();
        if (TIMEOUTS.0..=TIMEOUTS.1).contains(&timeout) {
            draft.set("traces.timeout", humantime::format_duration(timeout).to_string(), &[name]);
        } else {
            draft.refuse(name, "milliseconds from 10 to 60000");
        }
    }
}

fn given(draft: &Draft, of_traces: &'static str, of_all: &'static str) -> Option<&'static str> {
    [of_traces, of_all].into_iter().find(|name| !draft.text(name).is_empty())
}

#[cfg(test)]
mod tests {
    use crate::cli::load_settings::{LoadedSettings, load_settings_with};
    use crate::settings::SettingsError;

    fn read(variables: &[(&str, &str)]) -> Result<LoadedSettings, SettingsError> {
        let enabled = [("TRACING_ENABLED", "true")];
        let owned = enabled.iter().chain(variables).map(|&(name, value)| (name.to_owned(), value.to_owned()));
        load_settings_with(None, owned, Some("ratelimit"))
    }

    #[test]
    fn traces_go_where_the_variables_of_opentelemetry_say() {
        let grpc = ("TRACING_EXPORTER_PROTOCOL", "grpc");
        let cases: [(&[(&str, &str)], &str); 6] = [
            (&[], "https://localhost:4318/v1/traces"),
            (&[grpc], "https://localhost:4317/v1/traces"),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1/a/")], "http://c:1/a/v1/traces"),
            (&[grpc, ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1")], "http://c:1/v1/traces"),
            (&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1/a")], "http://c:1/a"),
            (
                &[
                    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/a"),
                    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"),
                ],
                "http://t:1/a",
            ),
        ];
        for (variables, expected) in cases {
            let LoadedSettings { settings, .. } = read(variables).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(settings.traces.expect("on").endpoint.to_string(), expected, "{variables:?}");
        }
    }

    #[test]
    fn the_other_variables_are_taken_over() {
        let LoadedSettings { settings, report, .. } = read(&[
            ("TRACING_SAMPLING_RATE", "0.25"),
            ("TRACING_SERVICE_NAMESPACE", "edge"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1500"),
        ])
        .unwrap_or_else(|error| panic!("{error}"));
        let traces = settings.traces.as_ref().expect("on");
        assert_eq!((traces.sampled_ppm, traces.timeout.as_millis()), (250_000, 1_500));
        let service = &traces.service;
        assert_eq!((service.name.as_str(), service.namespace.as_deref()), ("RateLimit", Some("edge")));
        assert!(!format!("{settings:?} {report:?}").contains("s3cret"));
    }

    #[test]
    fn variables_of_the_exporter_without_a_meaning_are_warnings_if_there_are_traces() {
        let set = [
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "/tls.key"),
            ("OTEL_EXPORTER_OTLP_INSECURE", "true"),
        ];
        let LoadedSettings { report, .. } = read(&set).unwrap_or_else(|error| panic!("{error}"));
        let expected = [
            "OTEL_EXPORTER_OTLP_COMPRESSION is ignored: spans are sent uncompressed, which every collector takes",
            "OTEL_EXPORTER_OTLP_INSECURE is ignored: the scheme of the endpoint decides",
            "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY is ignored: a collector that asks for a client certificate \
             gets no spans",
        ];
        assert_eq!(report.warnings, expected);
        let off = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let LoadedSettings { report, .. } = load_settings_with(None, off, Some("ratelimit")).expect("off");
        assert_eq!(report.warnings, [""; 0]);
    }

    #[test]
    fn variables_of_traces_that_cannot_work_are_refused() {
        for (name, value) in [
            ("TRACING_EXPORTER_PROTOCOL", "udp"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ] {
            let error = read(&[(name, value)]).expect_err(value).to_string();
            assert!(error.contains(&format!("{name}: expected")), "{error}");
        }
        let owned = [("TRACING_SERVICE_NAME".to_owned(), "x".to_owned())];
        let LoadedSettings { settings, report, .. } =
            load_settings_with(None, owned, Some("ratelimit")).expect("off");
        assert_eq!(settings.traces, None);
        assert_eq!(report.warnings, ["TRACING_SERVICE_NAME has no effect without TRACING_ENABLED=true"]);
    }
}
