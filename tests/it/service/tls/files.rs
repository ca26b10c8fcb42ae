//! Files that cannot be used at the start: the error names the setting and the file.

use std::process::Command;

use super::{Site, plan, text};
use crate::support::certificates::Authority;

#[test]
fn a_bad_file_at_the_start_is_named_with_its_setting() {
    let site = Site::new();
    let other = site.authority.certificate_for(&["other.local"]);
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").expect("room for a file");
    let encrypted = folder.path().join("encrypted.key");
    let pem = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    std::fs::write(&encrypted, pem).expect("room for a file");
    let (certificate, key) = (text(&site.server.certificate), text(&site.server.key));
    let (missing, empty) = (text(&folder.path().join("missing.pem")), text(&empty));
    let (other, encrypted) = (text(&other.key), text(&encrypted));
    // Certificate, key, authorities; the error.
    let table = [
        ([&missing, &key, ""], format!("server.grpc.tls.cert_file: {missing}: No such file")),
        ([&certificate, &missing, ""], format!("server.grpc.tls.key_file: {missing}: No such file")),
        ([&empty, &key, ""], format!("server.grpc.tls.cert_file: {empty}: contains no certificate")),
        (
            [&certificate, &certificate, ""],
            format!("server.grpc.tls.key_file: {certificate}: contains no private"),
        ),
        (
            [&certificate, &other, ""],
            format!("server.grpc.tls.key_file: {other}: does not match the certificate"),
        ),
        (
            [&certificate, &encrypted, ""],
            format!("server.grpc.tls.key_file: {encrypted}: the private key is encr"),
        ),
        ([&certificate, &key, &missing], format!("server.grpc.tls.client_ca_file: {missing}: No such file")),
        (
            [&certificate, &key, &key],
            format!("server.grpc.tls.client_ca_file: {key}: contains no certificate"),
        ),
        (
            [&certificate, "", ""],
            "server.grpc.tls.cert_file: cert_file and key_file belong together".to_owned(),
        ),
        (["", &key, ""], "server.grpc.tls.key_file: cert_file and key_file belong together".to_owned()),
        (["", "", &certificate], "server.grpc.tls.client_ca_file: needs cert_file and key_file".to_owned()),
    ];
    for (files, expected) in table {
        let names = ["cert_file", "key_file", "client_ca_file"].into_iter().zip(files);
        let plan =
            names.fold(plan(), |plan, (name, file)| plan.set(&format!("server.grpc.tls.{name}"), file));
        let Err(problem) = plan.try_start() else { panic!("the files cannot be used: {files:?}") };
        assert_eq!(problem.status.and_then(|status| status.code()), Some(1), "{problem:?}");
        assert!(problem.log.contains(&expected), "{expected} is not in\n{}", problem.log);
    }
}

/// The shipped file names every setting, those of TLS with empty values.
#[test]
fn the_shipped_settings_can_be_used_with_a_unix_socket() {
    let mut settings = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    settings.args(["settings", "--config", concat!(env!("CARGO_MANIFEST_DIR"), "/config/ratelimitd.yaml")]);
    let output = settings.env("RATELIMITD__SERVER__ADMIN__ADDRESS", "unix:/nowhere/admin.sock").output();
    let output = output.expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_unix_socket_has_no_tls() {
    let server = Authority::new().certificate_for(&["admin"]);
    let plan = super::with_certificate(plan(), "admin", &server);
    let Err(problem) = plan.set("server.admin.address", "unix:/nowhere/admin.sock").try_start() else {
        panic!("a Unix socket has no TLS");
    };
    assert!(problem.log.contains("server.admin.tls.cert_file: a Unix socket has no TLS"), "{}", problem.log);
}
