//! `traces.*`: where the spans of calls are sent.

use super::parsers::{Parser, duration, one_of, optional_path, optional_text, share};
use super::reader::Reader;
use crate::telemetry::traces::{OtlpEndpoint, OtlpHeaders, OtlpProtocol, ServiceIdentity, TracesOptions};

/// The options; `None` if the endpoint is `off`.
pub(super) fn traces_from_reader(reader: &mut Reader) -> Option<TracesOptions> {
    let endpoint = Parser::new("http://host:port/path, https://host:port/path, or off", |text| {
        if text == "off" { Some(None) } else { OtlpEndpoint::parse(text).map(Some) }
    });
    let protocols = [("http", OtlpProtocol::Http), ("grpc", OtlpProtocol::Grpc)];
    let headers = Parser::new(
        "name=value pairs with commas between them and percent-encoded values, or nothing",
        OtlpHeaders::parse,
    );
    let name = Parser::new("a name", |text| (!text.is_empty()).then(|| text.to_owned()));
    let endpoint = reader.take("traces.endpoint", "off", endpoint);
    // Every setting is taken, so that a malformed one is a problem also without an endpoint.
    let protocol = reader.take("traces.protocol", "http", one_of(protocols));
    let headers = reader.take("traces.headers", "", headers.secret());
    let timeout = reader.take("traces.timeout", "10s", duration("10ms", "1m"));
    let ca_file = reader.take("traces.ca_file", "", optional_path());
    let sampled_ppm = reader.take("traces.sampled_share", "1", share());
    let service = ServiceIdentity {
        name: reader.take("traces.service_name", "ratelimitd", name),
        namespace: reader.take("traces.service_namespace", "", optional_text("a name")),
        instance_id: reader.take("traces.service_instance_id", "", optional_text("a name")),
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

#[cfg(test)]
mod tests {
    use crate::settings::tests::load_layers;
    use crate::settings::{Settings, SettingsError};

    fn load(key: &str, value: &str) -> Result<Settings, SettingsError> {
        let variables = [("ENDPOINT", "http://collector:4318"), (key, value)];
        let variables =
            variables.map(|(key, value)| (format!("RATELIMITD__TRACES__{key}"), value.to_owned()));
        load_layers(None, variables)
    }

    #[test]
    fn there_are_no_traces_without_an_endpoint() {
        assert_eq!(Settings::default().traces, None);
        let traces = load("SAMPLED_SHARE", "0.25").expect("valid").traces.expect("an endpoint");
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
            let error = load(key, value).expect_err(value).to_string();
            assert!(error.contains(&format!("traces.{}: expected", key.to_lowercase())), "{error}");
        }
        let error = load("HEADERS", "s3cret").expect_err("no pair").to_string();
        assert!(error.contains("traces.headers") && !error.contains("s3cret"), "{error}");
    }
}
