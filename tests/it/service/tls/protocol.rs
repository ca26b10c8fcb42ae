//! Versions, ciphers, ALPN and kinds of keys, as openssl sees them; and what a connection does after its handshake.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Site, any_request, metric, plan, text, with_certificate};
use crate::support::certificates::{Authority, Identity};
use crate::support::grpc::{Code, Rls};
use crate::support::tls::{SERVER_NAME, client, connect, openssl, s_client};
use crate::support::wait;

#[test]
fn tls_1_2_and_1_3_are_spoken_with_the_ciphers_of_envoyproxy_ratelimit() {
    let site = Site::new();
    let service = site.plan().start();
    let old = "ALL:@SECLEVEL=0";
    // The arguments of openssl; what it prints.
    let table: [(&[&str], &str); 15] = [
        (&["-tls1", "-cipher", old], "SSL alert number 40"),
        (&["-tls1_1", "-cipher", old], "SSL alert number 40"),
        (&["-tls1_2"], "Protocol  : TLSv1.2"),
        (&["-tls1_3"], "TLSv1.3"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], "Cipher is ECDHE-ECDSA-AES128-GCM-SHA256"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"], "Cipher is ECDHE-ECDSA-CHACHA20-POLY1305"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256"], "SSL alert number 40"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-SHA"], "SSL alert number 40"),
        (&["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"], "Cipher is TLS_AES_128_GCM_SHA256"),
        (
            &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
            "Cipher is TLS_CHACHA20_POLY1305_SHA256",
        ),
        (&["-groups", "X25519"], "Server Temp Key: X25519"),
        (&["-groups", "P-384"], "Server Temp Key: ECDH, secp384r1"),
        (&["-alpn", "http/1.1,h2"], "ALPN protocol: h2"),
        (&[], "No ALPN negotiated"),
        (&["-alpn", "http/1.1"], "SSL alert number 120"),
    ];
    for (arguments, expected) in table {
        let printed = s_client(service.grpc_port(), arguments, None);
        assert!(printed.contains(expected), "{arguments:?}: {expected} is not in\n{printed}");
    }
}

/// The certificate of a service, made by openssl. `key` makes the file `tls.key`.
pub(super) fn made_by_openssl(folder: &Path, key: &str, extensions: &str) -> Identity {
    let configuration = format!(
        "[req]\ndistinguished_name = name\nprompt = no\nx509_extensions = v3\n[name]\nCN = *\n[v3]\n{extensions}\n"
    );
    std::fs::write(folder.join("openssl.cnf"), configuration).expect("room for a file");
    for command in key.split(';') {
        openssl(folder, command);
    }
    openssl(folder, "req -x509 -new -key tls.key -config openssl.cnf -days 1825 -out tls.crt");
    Identity { certificate: folder.join("tls.crt"), key: folder.join("tls.key") }
}

/// As Envoy Gateway makes them: RSA, no extended key usage, `CN=*`, a name of two labels with a star.
pub(super) const ENVOY_GATEWAY: &str = "subjectAltName = DNS:*.envoy-gateway-system
keyUsage = digitalSignature, dataEncipherment, keyEncipherment, nonRepudiation
basicConstraints = CA:FALSE";

#[test]
fn keys_of_every_format_and_the_certificates_of_envoy_gateway_are_served() {
    let keys = [
        ("genrsa -traditional -out tls.key 2048", "BEGIN RSA PRIVATE KEY"),
        ("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out tls.key", "BEGIN PRIVATE KEY"),
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out tls.key", "BEGIN PRIVATE KEY"),
        // With its parameters in a section before the key.
        ("ecparam -name prime256v1 -genkey -out tls.key", "BEGIN EC PRIVATE KEY"),
        ("ecparam -name secp384r1 -genkey -noout -out tls.key", "BEGIN EC PRIVATE KEY"),
        ("genpkey -algorithm ed25519 -out tls.key", "BEGIN PRIVATE KEY"),
    ];
    for (key, format) in keys {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = made_by_openssl(folder.path(), key, ENVOY_GATEWAY);
        let written = std::fs::read_to_string(&identity.key).expect("a key");
        assert!(written.contains(format), "{key}");
        let service = with_certificate(plan(), "grpc", &identity).start();
        let authority = text(&identity.certificate);
        let arguments = ["-CAfile", &authority, "-partial_chain"];
        for version in ["-tls1_2", "-tls1_3"] {
            let printed = s_client(service.grpc_port(), &[&arguments[..], &[version]].concat(), None);
            assert!(printed.contains("Verify return code: 0 (ok)"), "{key} {version}: {printed}");
        }
    }
}

#[test]
fn http_and_admin_answer_over_tls() {
    let site = Site::new();
    let plan = with_certificate(site.plan().wait_for_log(), "http", &site.server);
    let service = with_certificate(plan, "admin", &site.server).start();
    let get = |port: u16, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let authority = text(&site.authority.file());
        s_client(port, &["-CAfile", &authority, "-alpn", "h2,http/1.1"], Some(&request))
    };
    for (port, path, expected) in [
        (service.http_port(), "/livez", "ok"),
        (service.http_port(), "/metrics", "ratelimitd_tls_handshakes_total{port=\"http\",result=\"ok\"}"),
        (service.admin_port(), "/rlconfig", "tls.generic_key"),
        (service.admin_port(), "/tls", "\"names\": \"DNS:ratelimit.local\""),
    ] {
        let printed = get(port, path);
        assert!(printed.contains("HTTP/1.1 200 OK") && printed.contains(expected), "{path}: {printed}");
        assert!(printed.contains("ALPN protocol: http/1.1"), "{path}: {printed}");
    }
    // Clear text gets an alert, not an answer.
    assert!(crate::support::http::get(service.http_port(), "/livez", &[]).is_err());
}

/// As over clear text: the client sends all of its request before it reads.
#[tokio::test]
async fn a_request_whose_head_is_too_long_is_answered_over_tls() {
    let site = Site::new();
    let service = with_certificate(site.plan().wait_for_log(), "http", &site.server).start();
    let mut config = (*client(&[&site.authority], None)).clone();
    config.alpn_protocols.clear();
    let config = Arc::new(config);
    for kib in [64, 100, 500, 900] {
        for _ in 0..10 {
            let stream = connect(service.http_port(), Arc::clone(&config)).await;
            let mut stream = stream.expect("a handshake");
            let head = format!("GET /livez HTTP/1.1\r\nx-long: {}\r\n\r\n", "x".repeat(kib << 10));
            stream.write_all(head.as_bytes()).await.expect("all of it is taken");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer, and the end");
            assert!(answer.starts_with("HTTP/1.1 431 "), "{kib} KiB: {answer}");
        }
    }
}

#[tokio::test]
async fn connections_are_replaced_at_their_age_and_finished_at_the_stop() {
    let site = Site::new();
    let plan = site.plan().set("server.grpc.max_connection_age", "1s").set("server.drain", "0s");
    let mut service = plan.start();
    let ok = || super::handshakes(&service, "ok");
    let mut rls = Rls::connect_tls(service.grpc_port(), client(&[&site.authority], None)).await.expect("TLS");
    let replaced = wait::until_async(wait::PATIENCE, async || {
        match rls.send(any_request()).await {
            Ok(answer) => assert_eq!(answer.overall_code(), Code::Ok),
            // hyper's client had not sent the request when the connection ended, and says so.
            Err(status) => assert_eq!(status.message(), "operation was canceled", "{status:?}"),
        }
        (ok() >= 3).then_some(())
    });
    assert!(replaced.await.is_some(), "the client got GOAWAY and connected again, and no call failed");
    // One call after the other: each ends with an answer, or, after the stop, with an error of the connection.
    let stopped = Arc::new(AtomicBool::new(false));
    let calls = async {
        while let Ok(answer) = rls.send(any_request()).await {
            assert_eq!(answer.statuses.len(), 1);
            if !stopped.swap(true, Ordering::Relaxed) {
                service.terminate();
            }
        }
    };
    calls.await;
    assert!(service.wait_exit().success());
}

#[tokio::test]
async fn the_expiry_of_the_certificates_is_a_metric() {
    let authority = Authority::new();
    let server = authority.certificate("server", &[SERVER_NAME], |certificate| {
        certificate.not_after = rcgen::date_time_ymd(2031, 1, 1);
    });
    let site = Site { authority, server };
    let service = site.mutual_plan().start();
    let expiry = |file: &str| {
        let name = "ratelimitd_tls_certificate_expiry_timestamp_seconds";
        metric(&service, &format!("{name}{{file=\"{file}\",port=\"grpc\"}}"))
    };
    assert_eq!(expiry("cert_file"), Some(1_924_992_000));
    assert!(expiry("client_ca_file").is_some_and(|seconds| seconds > 1_924_992_000));
}
