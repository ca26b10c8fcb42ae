//! `server.rights`: what tokens and certificates permit on gRPC, at `/json` and at `/usage`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rcgen::SanType;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Code as Status;

use crate::service::usage::send;
use crate::support::certificates::Authority;
use crate::support::grpc::{RateLimitDescriptor, Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::tls::{SERVER_NAME, client, s_client};
use crate::support::wait;

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 100, algorithm: fixed_window } }
  - { key: llm, rate_limit: { unit: year, requests_per_unit: 100, algorithm: fixed_window, reserve: 10 } }
";

const UNKNOWN: &str = "the call needs the header Authorization: Bearer with a token of server.rights, or a client \
                       certificate that it names\n";

struct Files {
    folder: TempDir,
}

impl Files {
    /// A token for each name.
    fn new(names: &[&str]) -> Self {
        let files = Self { folder: tempfile::tempdir().expect("a folder") };
        names.iter().for_each(|name| files.write(name, &format!("token-of-{name}")));
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, token: &str) {
        std::fs::write(self.path(name), token).expect("room for a token");
    }

    /// The list of these files.
    fn list(&self, names: &[&str]) -> String {
        let paths: Vec<_> = names.iter().map(|name| self.path(name).display().to_string()).collect();
        paths.join(", ")
    }

    /// The gateway may charge and refund, the page may read, the owner may do everything.
    fn plan(&self) -> Plan {
        Plan::new(RULES)
            .set("server.rights.read_token_files", self.list(&["page", "owner"]))
            .set("server.rights.charge_token_files", self.list(&["gateway", "owner"]))
            .set("server.rights.refund_token_files", self.list(&["gateway", "owner"]))
            .set("server.rights.limits_token_files", self.list(&["owner"]))
            .server_of(module_path!())
    }
}

const NAMES: [&str; 3] = ["gateway", "page", "owner"];

fn json_descriptor(key: &str, fields: &Value) -> Value {
    let mut descriptor = json!({"entries": [{"key": key, "value": "x"}]});
    descriptor.as_object_mut().expect("an object").extend(fields.as_object().expect("fields").clone());
    descriptor
}

fn descriptor_with_hits(value: u64) -> RateLimitDescriptor {
    let hits_addend = Some(envoy_types::pb::google::protobuf::UInt64Value { value });
    RateLimitDescriptor { hits_addend, ..descriptor(&[("user", "x")]) }
}

/// Status and body of a call.
fn post(service: &Ratelimitd, path: &str, descriptor: &Value, token: Option<&str>) -> (u16, String) {
    let body = json!({"domain": "shop", "descriptors": [descriptor]});
    let token = token.map(|name| format!("token-of-{name}"));
    let answer = send(service.http_port(), path, &body, token.as_deref());
    (answer.status, answer.body)
}

#[test]
fn a_token_of_json_may_do_what_its_lists_say() {
    let files = Files::new(&NAMES);
    let service = files.plan().start();
    let charge = json_descriptor("user", &json!({}));
    let read = json_descriptor("user", &json!({"hitsAddend": 0}));
    let refund = json_descriptor("user", &json!({"hitsAddend": 1, "isNegativeHits": true}));
    let limit = json_descriptor("user", &json!({"limit": {"requestsPerUnit": 5, "unit": "DAY"}}));
    // path, descriptor; the statuses of gateway, page and owner
    let table = [
        ("/json", &charge, [200, 403, 200]),
        ("/json", &read, [403, 200, 200]),
        ("/json", &refund, [200, 403, 200]),
        ("/json", &limit, [403, 403, 200]),
        ("/usage", &read, [403, 200, 200]),
    ];
    for (path, descriptor, expected) in table {
        let statuses = NAMES.map(|name| post(&service, path, descriptor, Some(name)).0);
        assert_eq!(statuses, expected, "{path} {descriptor}");
        for token in [None, Some("nobody")] {
            let (status, text) = post(&service, path, descriptor, token);
            let expected = UNKNOWN;
            assert_eq!((status, text.as_str()), (401, expected), "{path} {descriptor}");
        }
    }
    // A reservation charges, and its commit can give back units.
    let body = |more: Value| {
        let mut body =
            json!({"domain": "shop", "descriptors": [json_descriptor("user", &json!({"hitsAddend": 0}))]});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
        body
    };
    for (path, more, expected) in [
        ("/holds", json!({}), [200, 403, 200]),
        ("/holds/commit", json!({"id": "h1.1.1.z"}), [200, 403, 200]),
    ] {
        let status = |name: &str| {
            send(service.http_port(), path, &body(more.clone()), Some(&format!("token-of-{name}"))).status
        };
        assert_eq!(NAMES.map(status), expected, "{path}");
        assert_eq!(send(service.http_port(), path, &body(more.clone()), None).status, 401, "{path}");
    }
    let (_, text) = post(&service, "/json", &refund, Some("page"));
    let expected =
        "the caller may not do this: server.rights.refund_token_files and refund_client_san do not name it\n";
    assert_eq!(text, expected);
    // Each request of a batch for itself.
    let requests = [&read, &charge].map(|descriptor| json!({"domain": "shop", "descriptors": [descriptor]}));
    let answer = send(service.http_port(), "/json", &json!({"requests": requests}), Some("token-of-page"));
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(
        [&answer["responses"][0]["overallCode"], &answer["responses"][1]["status"]],
        [&json!("OK"), &json!(403)]
    );
    let unauthenticated = || {
        let metrics = crate::support::http::get(service.http_port(), "/metrics", &[]).expect("an answer");
        assert_eq!(metrics.status, 200, "metrics and health need no token");
        let name = r#"ratelimitd_request_errors_total{kind="unauthenticated",transport="http"} "#;
        let line = metrics.body.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{}", metrics.body)).parse::<u64>().expect("a number")
    };
    let before = unauthenticated();
    let guessed = send(service.http_port(), "/usage", &body(json!({})), Some("guess"));
    assert_eq!((guessed.status, guessed.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(unauthenticated(), before + 1);
    // Read-only checks consume no units of a limit with `reserve`.
    let check = json_descriptor("llm", &json!({"hitsAddend": 0}));
    assert_eq!(post(&service, "/json", &check, Some("page")).0, 200);
    let used = |service| {
        let (_, text) = post(service, "/usage", &json_descriptor("llm", &json!({})), Some("page"));
        serde_json::from_str::<Value>(&text).expect("JSON")["usage"][0]["limits"][0]["used"].clone()
    };
    assert_eq!(used(&service), 0);
    assert_eq!(post(&service, "/json", &check, Some("owner")).0, 200);
    assert_eq!(used(&service), 10);
}

#[tokio::test]
async fn a_call_of_grpc_needs_its_rights() {
    let files = Files::new(&NAMES);
    let service = files.plan().start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let user = |hits: Option<u64>| hits.map_or_else(|| descriptor(&[("user", "x")]), descriptor_with_hits);
    let refund = RateLimitDescriptor { is_negative_hits: true, ..user(Some(1)) };
    let table = [
        (user(None), [Status::Ok, Status::PermissionDenied, Status::Ok]),
        (user(Some(0)), [Status::PermissionDenied, Status::Ok, Status::Ok]),
        (refund, [Status::Ok, Status::PermissionDenied, Status::Ok]),
    ];
    for (descriptor, expected) in table {
        for (name, expected) in NAMES.into_iter().zip(expected) {
            let token = format!("Bearer token-of-{name}");
            let sent =
                rls.send_with(request("shop", vec![descriptor.clone()]), &[("authorization", &token)]).await;
            assert_eq!(
                sent.map_or_else(|status| status.code(), |_| Status::Ok),
                expected,
                "{name}: {descriptor:?}"
            );
        }
        let refused = rls.send(request("shop", vec![descriptor.clone()])).await.expect_err("no token");
        assert_eq!(refused.code(), Status::Unauthenticated);
        assert!(refused.message().contains("Authorization: Bearer"), "{refused:?}");
    }
}

#[test]
fn a_changed_file_is_read_again() {
    let files = Files::new(&NAMES);
    let service = files.plan().start();
    let charge = json_descriptor("user", &json!({}));
    assert_eq!(post(&service, "/json", &charge, Some("gateway")).0, 200);
    files.write("gateway", "token-of-next");
    wait::expect("the new token", || post(&service, "/json", &charge, Some("next")).0 == 200);
    assert_eq!(post(&service, "/json", &charge, Some("gateway")).0, 401);
    files.write("gateway", "two words");
    wait::expect("no token", || post(&service, "/json", &charge, Some("next")).0 == 401);
    assert_eq!(post(&service, "/json", &charge, Some("owner")).0, 200, "other tokens stay valid");
    service.log_with("cannot use token file of server.rights");
}

#[tokio::test]
async fn a_certificate_gives_rights_to_the_calls_of_its_connection() {
    const GATEWAY: &str = "spiffe://cluster.local/ns/edge/sa/envoy";
    let (authority, files) = (Authority::new(), Files::new(&["page"]));
    let server = authority.certificate_for(&[SERVER_NAME]);
    let gateway = authority.certificate("gateway", &[], |certificate| {
        certificate.subject_alt_names = vec![SanType::URI(GATEWAY.try_into().expect("ASCII"))];
    });
    let other = authority.certificate_for(&["other.local"]);
    let path = |path: &Path| path.display().to_string();
    let with_tls = |plan: Plan, port: &str| {
        plan.set(&format!("server.{port}.tls.cert_file"), path(&server.certificate))
            .set(&format!("server.{port}.tls.key_file"), path(&server.key))
            .set(&format!("server.{port}.tls.client_ca_file"), path(&authority.file()))
    };
    let plan = Plan::new(RULES)
        .set("server.rights.charge_client_san", format!("payments.local, {GATEWAY}"))
        .set("server.rights.read_token_files", files.list(&["page"]))
        .server_of(module_path!())
        .wait_for_log();
    let service = with_tls(with_tls(plan, "grpc"), "http").start();
    let user = |hits| request("shop", vec![descriptor_with_hits(hits)]);
    for (identity, allowed, without_right) in [
        (&gateway, Status::Ok, Status::PermissionDenied),
        (&other, Status::Unauthenticated, Status::Unauthenticated),
    ] {
        let config = client(&[&authority], Some(identity));
        let mut rls = Rls::connect_tls(service.grpc_port(), config).await.expect("a handshake");
        let code = |sent: Result<_, tonic::Status>| sent.map_or_else(|status| status.code(), |_| Status::Ok);
        assert_eq!(code(rls.send(user(1)).await), allowed);
        assert_eq!(code(rls.send(user(0)).await), without_right);
        // Rights of both count.
        let token = [("authorization", "Bearer token-of-page")];
        assert_eq!(code(rls.send_with(user(0), &token).await), Status::Ok);
        let body =
            json!({"domain": "shop", "descriptors": [json_descriptor("user", &json!({}))]}).to_string();
        let head =
            format!("POST /json HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}", body.len());
        let [certificate, key] = [&identity.certificate, &identity.key].map(|file| path(file));
        let arguments = ["-cert", &certificate, "-key", &key];
        let printed = s_client(service.http_port(), &arguments, Some(&format!("{head}\r\n\r\n{body}")));
        let expected = if allowed == Status::Ok { "HTTP/1.1 200 OK" } else { "HTTP/1.1 401 Unauthorized" };
        assert!(printed.contains(expected), "{printed}");
    }
}

#[test]
fn a_process_with_unusable_rights_does_not_start() {
    let files = Files::new(&NAMES);
    let both = files.plan().set("server.http.usage_token_file", files.list(&["page"]));
    let Err(problem) = both.try_start() else { panic!("two settings for one question") };
    assert!(problem.log.contains("add the file to server.rights.read_token_files"), "{}", problem.log);
    let clear = Plan::new(RULES).set("server.rights.read_client_san", "page.local");
    let Err(problem) = clear.try_start() else { panic!("no port asks for a certificate") };
    assert!(problem.log.contains("needs server.grpc.tls.client_ca_file or"), "{}", problem.log);
    let missing = files.plan().set("server.rights.limits_token_files", files.list(&["missing"]));
    let Err(problem) = missing.try_start() else { panic!("there is no such file") };
    assert!(problem.log.contains("server.rights: ") && problem.log.contains("missing"), "{}", problem.log);
}

#[test]
fn check_sends_a_token() {
    let files = Files::new(&NAMES);
    let service = files.plan().start();
    let address = format!("127.0.0.1:{}", service.grpc_port());
    let check = |arguments: &[&str]| {
        let command = ["check", "--address", &address, "--timeout", "10s", "--domain", "shop", "user=x"];
        let output = Command::new(env!("CARGO_BIN_EXE_ratelimitctl")).args(command).args(arguments).output();
        let Output { status, stderr, .. } = output.expect("the binary runs");
        (status.code(), String::from_utf8(stderr).expect("UTF-8"))
    };
    let path = files.list(&["gateway"]);
    assert_eq!(check(&["--token-file", &path]), (Some(0), String::new()));
    for (arguments, code) in
        [(&[][..], "Unauthenticated"), (&["--token-file", &path, "--peek"], "PermissionDenied")]
    {
        let (status, error) = check(arguments);
        assert!(status == Some(2) && error.contains(code), "{error}");
    }
}
