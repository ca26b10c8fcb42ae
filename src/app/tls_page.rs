//! The page `/tls` of the admin port, as a pure function of the state that it shows.

use serde_json::{Map, Value, json};
use tls::CertificateFacts;

use super::status::timestamp;
use super::tls::{TlsStatus, date};

/// One section for each port with TLS.
pub(super) fn tls_page(statuses: &[TlsStatus]) -> Value {
    let sections = statuses.iter().map(|status| (status.port.name().to_owned(), section(status)));
    Value::Object(sections.collect::<Map<_, _>>())
}

fn section(status: &TlsStatus) -> Value {
    let settings = &status.settings;
    let load = &status.load;
    let last_error =
        load.last_error.as_ref().map(|error| json!({"at": timestamp(error.at_us), "error": error.reason}));
    let client_ca = settings.client_ca_file.as_ref().map(|path| {
        let authorities: Vec<_> = status.authorities.iter().map(certificate_section).collect();
        json!({"file": path.display().to_string(), "certificates": authorities})
    });
    json!({
        "in_force": last_error.is_none(),
        "loaded_at": timestamp(load.loaded_at_us),
        "cert_file": settings.cert_file.display().to_string(),
        "key_file": settings.key_file.display().to_string(),
        "certificate": certificate_section(&status.certificate),
        "client_ca": client_ca,
        "client_san": settings.client_names.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "last_error": last_error,
        "loads_ok": load.loads_ok,
        "loads_failed": load.loads_failed,
    })
}

fn certificate_section(certificate: &CertificateFacts) -> Value {
    json!({
        "subject": certificate.subject,
        "names": certificate.names(),
        "valid_from": date(certificate.not_before_s),
        "valid_to": date(certificate.not_after_s),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tls::{ClientName, ServerTls};

    use super::*;
    use crate::app::load_status::LoadStatus;
    use crate::telemetry::metrics::Port;

    fn certificate(subject: &str) -> CertificateFacts {
        CertificateFacts {
            subject: subject.to_owned(),
            not_before_s: 0,
            not_after_s: 1_924_992_000,
            dns_names: vec!["*.gateway".to_owned()],
            ip_addresses: Vec::new(),
            uris: Vec::new(),
        }
    }

    #[test]
    fn a_port_has_its_files_certificates_and_the_last_error() {
        let settings = ServerTls {
            cert_file: PathBuf::from("/certs/tls.crt"),
            key_file: PathBuf::from("/certs/tls.key"),
            client_ca_file: Some(PathBuf::from("/certs/ca.crt")),
            client_names: ClientName::parse("envoy.local").into_iter().collect(),
        };
        let error = "server.grpc.tls.key_file: /certs/tls.key: it is not the key".to_owned();
        let mut load = LoadStatus::default();
        load.record_loaded(1_000_000);
        load.record_failed(error.clone(), 2_000_000);
        let status = TlsStatus {
            port: Port::Grpc,
            settings,
            certificate: certificate("CN=*"),
            authorities: vec![certificate("CN=envoy-gateway")],
            load,
        };
        let shown = |subject: &str| {
            json!({
                "subject": subject,
                "names": "DNS:*.gateway",
                "valid_from": "1970-01-01T00:00:00Z",
                "valid_to": "2031-01-01T00:00:00Z",
            })
        };
        let expected = json!({"grpc": {
            "in_force": false,
            "loaded_at": "1970-01-01T00:00:01Z",
            "cert_file": "/certs/tls.crt",
            "key_file": "/certs/tls.key",
            "certificate": shown("CN=*"),
            "client_ca": {"file": "/certs/ca.crt", "certificates": [shown("CN=envoy-gateway")]},
            "client_san": ["envoy.local"],
            "last_error": {"at": "1970-01-01T00:00:02Z", "error": error},
            "loads_ok": 1,
            "loads_failed": 1,
        }});
        assert_eq!(tls_page(&[status]), expected);
        assert_eq!(tls_page(&[]), json!({}));
    }
}
