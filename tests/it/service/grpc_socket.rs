//! The gRPC port on a Unix socket.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use tempfile::TempDir;

use crate::support::certificates::Authority;
use crate::support::grpc::{Code, Rls, descriptor, request};
use crate::support::process::Plan;
use crate::support::tls;

const RULES: &str = "
domain: d
descriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 2 } }]
";

fn plan(path: &Path) -> Plan {
    Plan::new(RULES).server_of(module_path!()).set("server.grpc.address", format!("unix:{}", path.display()))
}

/// The umask of this process, which the service inherits.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:")).expect("an umask");
    u32::from_str_radix(line.trim(), 8).expect("octal digits")
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_over_a_unix_socket_are_decided() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("grpc.sock");
    let mut service = plan(&path).start();
    let file = std::fs::metadata(&path).expect("a socket");
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o777 & !umask(), "whom the umask lets in may call");
    let mut rls = Rls::connect_unix(&path, None).await.expect("a connection");
    for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(rls.send_one("d", &[("k", "v")]).await.0, expected);
    }
    assert!(service.log().contains(&format!("grpc=unix:{}", path.display())), "{}", service.log());

    // A second process changes nothing, and a socket that a killed process left is replaced.
    let refused = plan(&path).try_start().err().expect("the socket is in use");
    assert!(format!("{refused:?}").contains("another process listens on it"), "{refused:?}");
    assert_eq!(rls.send_one("d", &[("k", "other")]).await.0, Code::Ok);
    service.kill();
    assert!(path.exists());
    service.restart();
    let mut rls = Rls::connect_unix(&path, None).await.expect("a connection");
    assert_eq!(rls.send_one("d", &[("k", "v")]).await.0, Code::Ok);

    service.terminate();
    assert_eq!(service.wait_exit().code(), Some(0), "{}", service.log());
    assert!(!path.exists(), "the socket ends with the process");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_over_a_unix_socket_is_as_on_a_port() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("grpc.sock");
    let authority = Authority::new();
    let identity = authority.certificate_for(&[tls::SERVER_NAME]);
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let plan = plan(&path).set("server.grpc.tls.cert_file", text(&identity.certificate));
    let _service = plan.set("server.grpc.tls.key_file", text(&identity.key)).start();
    let config = tls::client(&[&authority], None);
    let mut rls = Rls::connect_unix(&path, Some(config)).await.expect("a handshake");
    assert_eq!(rls.send_one("d", &[("k", "v")]).await.0, Code::Ok);
    // Without TLS the connection, or its first call, fails.
    if let Ok(mut clear) = Rls::connect_unix(&path, None).await {
        clear.send(request("d", vec![descriptor(&[("k", "v")])])).await.expect_err("clear text");
    }
}
