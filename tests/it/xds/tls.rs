//! TLS to the server, with certificates that change.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::{limits, metric, one_rule, plan, rules_page};
use crate::support::ads::AdsServer;
use crate::support::certificates::{Authority, Identity};
use crate::support::process::Plan;
use crate::support::wait;

/// TLS 1.3 with client certificates, like the server of Envoy Gateway.
fn acceptor(authority: &Authority, identity: &Identity) -> TlsAcceptor {
    acceptor_of_files(&authority.file(), identity)
}

/// The same, for clients of the authority in this file.
pub fn acceptor_of_files(authority: &Path, identity: &Identity) -> TlsAcceptor {
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from_pem_file(authority).expect("a certificate")).expect("an authority");
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), Arc::clone(&provider));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .with_client_cert_verifier(verifier.build().expect("an authority"))
        .with_single_cert(
            vec![CertificateDer::from_pem_file(&identity.certificate).expect("a certificate")],
            PrivateKeyDer::from_pem_file(&identity.key).expect("a key"),
        )
        .expect("they belong together");
    // Like servers in Go: a client that does not ask for HTTP/2 is refused.
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A client with a copy of `identity` in files of its own, to be replaced.
struct ClientFiles {
    directory: tempfile::TempDir,
}

impl ClientFiles {
    fn new(authority: &Authority, identity: &Identity) -> Self {
        let files = Self { directory: tempfile::tempdir().expect("a temporary directory") };
        std::fs::copy(authority.file(), files.directory.path().join("ca.crt")).expect("room for a file");
        files.replace(identity);
        files
    }

    fn replace(&self, identity: &Identity) {
        for (from, name) in [(&identity.key, "tls.key"), (&identity.certificate, "tls.crt")] {
            let new = self.directory.path().join("new");
            std::fs::copy(from, &new).expect("room for a file");
            std::fs::rename(new, self.directory.path().join(name)).expect("the same directory");
        }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).expect("room for a file");
    }

    fn set(&self, plan: Plan) -> Plan {
        let path = |name: &str| self.directory.path().join(name).to_string_lossy().into_owned();
        plan.set("rules.xds.tls.enabled", true)
            .set("rules.xds.tls.ca_file", path("ca.crt"))
            .set("rules.xds.tls.cert_file", path("tls.crt"))
            .set("rules.xds.tls.key_file", path("tls.key"))
    }
}

pub fn der(identity: &Identity) -> Vec<u8> {
    CertificateDer::from_pem_file(&identity.certificate).expect("a certificate").to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn new_client_certificates_are_shown_within_seconds_and_bad_ones_change_nothing() {
    let authority = Authority::new();
    let [server_identity, first, second] =
        ["localhost", "first.client", "second.client"].map(|name| authority.certificate_for(&[name]));
    let files = ClientFiles::new(&authority, &first);
    let server = AdsServer::start().await;
    server.set_tls(Some(acceptor(&authority, &server_identity)));
    let service = files.set(plan(&server)).wait_for_livez().start();
    server.set("1", vec![one_rule("d", 5)]);
    server.expect_ack("1").await;
    assert_eq!(server.clients(), [der(&first)]);

    files.write("tls.crt", "not a certificate");
    let failed = r#"ratelimitd_xds_certificate_changes_total{result="failure"}"#;
    wait::expect("the bad file", || metric(&service, failed) > 0.0);
    server.set("2", vec![one_rule("d", 6)]);
    server.expect_ack("2").await;
    assert_eq!(server.streams().len(), 1, "the stream stays");

    files.replace(&second);
    wait::expect("the new certificate", || server.clients().contains(&der(&second)));
    server
        .expect("request of the new stream", 0, |request| {
            request.version_info == "2" && request.response_nonce.is_empty()
        })
        .await;
    server.set("3", vec![one_rule("d", 7)]);
    server.expect_ack("3").await;
    assert_eq!(limits(&service), ["d.user: unit=YEAR n=7"]);
    assert_eq!(metric(&service, r#"ratelimitd_xds_certificate_changes_total{result="success"}"#), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_authority_is_trusted_once_the_file_has_it() {
    let [old, new] = [Authority::new(), Authority::new()];
    let client = old.certificate_for(&["client"]);
    let files = ClientFiles::new(&old, &client);
    let server = AdsServer::start().await;
    // It trusts the old authority's clients, and is itself of the new one.
    server.set_tls(Some(acceptor(&old, &new.certificate_for(&["localhost"]))));
    let service = files.set(plan(&server)).wait_for_livez().start();
    let failures = r#"ratelimitd_xds_failures_total{reason="tls"}"#;
    wait::expect("the failure", || metric(&service, failures) > 0.0);
    service.log_with("the TLS handshake failed: ");
    files.write("ca.crt", &std::fs::read_to_string(new.file()).expect("a certificate"));
    server.set("1", vec![one_rule("d", 5)]);
    server.expect_ack("1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_must_have_the_name_of_the_settings() {
    let authority = Authority::new();
    let files = ClientFiles::new(&authority, &authority.certificate_for(&["client"]));
    let server = AdsServer::start().await;
    server.set_tls(Some(acceptor(&authority, &authority.certificate_for(&["envoy-gateway"]))));
    let refused = files.set(plan(&server)).wait_for_livez().start();
    wait::expect("the failure", || metric(&refused, r#"ratelimitd_xds_failures_total{reason="tls"}"#) > 0.0);
    drop(refused);
    let service = files.set(plan(&server)).set("rules.xds.tls.server_name", "envoy-gateway");
    let _service = service.wait_for_livez().start();
    server.set("1", vec![one_rule("d", 5)]);
    server.expect_ack("1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_self_signed_certificate_in_the_file_is_trusted_as_the_server() {
    let authority = Authority::for_server(&["localhost"]);
    let files = ClientFiles::new(&authority, &authority.certificate_for(&["client"]));
    let server = AdsServer::start().await;
    server.set_tls(Some(acceptor(&authority, &authority.own_identity())));
    let _service = files.set(plan(&server)).wait_for_livez().start();
    server.set("1", vec![one_rule("d", 5)]);
    server.expect_ack("1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_alert_of_a_server_that_refuses_our_certificate_is_reported() {
    let [ours, other] = [Authority::new(), Authority::new()];
    let files = ClientFiles::new(&ours, &other.certificate_for(&["client"]));
    let server = AdsServer::start().await;
    // TLS 1.3: the handshake of the client is over before the server has seen its certificate.
    server.set_tls(Some(acceptor(&ours, &ours.certificate_for(&["localhost"]))));
    let service = files.set(plan(&server)).wait_for_livez().start();
    let failures =
        ["connect", "stream"].map(|reason| format!("ratelimitd_xds_failures_total{{reason=\"{reason}\"}}"));
    wait::expect("the failure", || failures.iter().any(|series| metric(&service, series) > 0.0));
    // tonic loses the alert if the connection ends before its first call, so one of the next attempts has the alert.
    wait::expect("the alert on the page of rules", || {
        let page = rules_page(&service);
        let reason = page["xds"]["last_fault"]["reason"].as_str();
        reason.is_some_and(|reason| reason.contains("received fatal alert: "))
    });
}
