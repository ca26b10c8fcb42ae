//! The sub-commands that call a service: over TLS.

use std::process::Command;

use super::{Site, plan, text, with_certificate};
use crate::support::certificates::Identity;
use crate::support::program::program_of;
use crate::support::tls::SERVER_NAME;

/// Exit code, and both outputs.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(program_of(arguments));
    let output = command.args(arguments).envs(variables.iter().copied()).output().expect("the binary runs");
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// The options of a client that trusts the authority of the site.
fn options(site: &Site, identity: Option<&Identity>) -> Vec<String> {
    let mut options = vec!["--ca-file".to_owned(), text(&site.authority.file())];
    options.extend(["--server-name".to_owned(), SERVER_NAME.to_owned()]);
    if let Some(Identity { certificate, key }) = identity {
        options.extend(["--cert-file".to_owned(), text(certificate), "--key-file".to_owned(), text(key)]);
    }
    options
}

#[test]
fn check_counters_and_health_speak_tls() {
    let site = Site::new();
    let caller = site.authority.certificate_for(&["caller"]);
    let ports = ["grpc", "http", "admin"];
    let plan = ports.into_iter().fold(plan().wait_for_log(), |plan, port| {
        let plan = plan.set(&format!("server.{port}.tls.client_ca_file"), text(&site.authority.file()));
        with_certificate(plan, port, &site.server)
    });
    let service = plan.start();
    let https = |port: u16| format!("https://127.0.0.1:{port}");
    let [grpc, http, admin] = [service.grpc_port(), service.http_port(), service.admin_port()].map(https);
    let call = |arguments: &[&str], identity| {
        let options = options(&site, identity);
        let all: Vec<&str> = arguments.iter().copied().chain(options.iter().map(String::as_str)).collect();
        run(&all, &[])
    };
    // The command; what it prints; its exit code without a client certificate.
    let table: [(&[&str], &str, i32); 3] = [
        (&["check", "--domain", "tls", "generic_key=any", "--address", &grpc], "OK", 2),
        (&["counters", "show", "--domain", "tls", "generic_key=any", "--admin", &admin], "left", 2),
        (&["health", "--address", &http], "ready", 1),
    ];
    for (arguments, expected, failed) in table {
        let (code, printed) = call(arguments, Some(&caller));
        assert_eq!(code, Some(0), "{arguments:?}: {printed}");
        assert!(printed.contains(expected), "{arguments:?}: {printed}");
        let (code, printed) = call(arguments, None);
        assert_eq!(code, Some(failed), "{arguments:?}: {printed}");
        assert!(printed.contains("CertificateRequired"), "{arguments:?}: {printed}");
        let (code, printed) = run(arguments, &[]);
        assert_eq!(code, Some(failed), "an authority that the system does not know: {printed}");
    }
    // By the settings of the service: its own certificate serves as the client's.
    let settings = [
        ("RATELIMITD__SERVER__HTTP__ADDRESS", format!("127.0.0.1:{}", service.http_port())),
        ("RATELIMITD__SERVER__HTTP__TLS__CERT_FILE", text(&site.server.certificate)),
        ("RATELIMITD__SERVER__HTTP__TLS__KEY_FILE", text(&site.server.key)),
        ("RATELIMITD__SERVER__HTTP__TLS__CLIENT_CA_FILE", text(&site.authority.file())),
    ];
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(run(&["health"], &settings), (Some(0), "ready\n".to_owned()));
}

#[test]
fn options_of_tls_need_https() {
    let site = Site::new();
    let authority = text(&site.authority.file());
    let arguments = ["check", "--address", "127.0.0.1:1", "--domain", "tls", "--ca-file", &authority, "a=b"];
    let (code, printed) = run(&arguments, &[]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("need an address that begins with https://"), "{printed}");
}
