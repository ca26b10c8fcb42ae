//! The image started as Envoy Gateway starts that of `envoyproxy/ratelimit`: with its environment and nothing else.
//! Where the tests set more than the estate does, they say so.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::json;
use tempfile::TempDir;

use crate::support::ads::AdsServer;
use crate::support::certificates::Identity;
use crate::support::daemon::Daemon;
use crate::support::envoy::{Bootstrap, Envoy, route};
use crate::support::grpc::Rls;
use crate::support::image::{Image, Ports, start};
use crate::support::redis::Redis;
use crate::support::tls::{SERVER_NAME, client_of_files, openssl};
use crate::support::{http, wait};
use crate::xds::envoy_gateway::play_all;
use crate::xds::one_rule;
use crate::xds::tls::{acceptor_of_files, der};

/// Clients of Envoy that call at the same time.
const CALLERS: usize = 4;

/// The certificates that Envoy Gateway makes: RSA, keys in PKCS#1, no extended key usage, no basic constraints on
/// leaves.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Self {
        let all = Self(TempDir::new().expect("a folder"));
        let extensions =
            "basicConstraints = critical, CA:TRUE\nkeyUsage = keyEncipherment, digitalSignature, keyCertSign";
        all.write_request("ca", "envoy-gateway", extensions);
        openssl(all.0.path(), "genrsa -traditional -out ca.key 2048");
        openssl(all.0.path(), "req -x509 -new -key ca.key -config ca.cnf -days 1825 -out ca.crt");
        all
    }

    fn write_request(&self, stem: &str, subject: &str, extensions: &str) {
        let text = format!(
            "[req]\ndistinguished_name = name\nprompt = no\nx509_extensions = v3\n[name]\nCN = {subject}\n\
             [v3]\n{extensions}\n"
        );
        fs::write(self.0.path().join(format!("{stem}.cnf")), text).expect("room for a file");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A certificate with these names.
    fn leaf(&self, stem: &str, subject: &str, names: &[&str]) -> Identity {
        let names: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
        let usage = "digitalSignature, dataEncipherment, keyEncipherment, nonRepudiation";
        let extensions = format!("subjectAltName = {}\nkeyUsage = {usage}", names.join(","));
        self.write_request(stem, subject, &extensions);
        let folder = self.0.path();
        openssl(folder, &format!("genrsa -traditional -out {stem}.key 2048"));
        openssl(folder, &format!("req -new -key {stem}.key -config {stem}.cnf -out {stem}.csr"));
        let signed = format!(
            "x509 -req -in {stem}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 1825 -extfile {stem}.cnf \
             -extensions v3 -out {stem}.crt"
        );
        openssl(folder, &signed);
        Identity { certificate: self.file(&format!("{stem}.crt")), key: self.file(&format!("{stem}.key")) }
    }

    /// The certificate of a rate-limit service. The last name is for the client of the test, which checks names; the
    /// Envoys of Envoy Gateway do not.
    fn of_ratelimit(&self, stem: &str) -> Identity {
        self.leaf(stem, "*", &["*.envoy-gateway-system", SERVER_NAME])
    }
}

/// A mounted Secret, `/certs` of the deployment: the files are links through a folder that is swapped.
struct Secret {
    folder: TempDir,
    versions: u32,
}

impl Secret {
    fn new(certificates: &Certificates, identity: &Identity) -> Self {
        let mut secret = Self { folder: TempDir::new().expect("a folder"), versions: 0 };
        secret.replace(certificates, identity);
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(format!("..data/{name}"), secret.folder.path().join(name)).expect("a link");
        }
        secret
    }

    fn replace(&mut self, certificates: &Certificates, identity: &Identity) {
        self.versions += 1;
        let name = format!("..{}", self.versions);
        let version = self.folder.path().join(&name);
        fs::create_dir(&version).expect("a folder");
        let authority = certificates.file("ca.crt");
        for (from, to) in
            [(&identity.certificate, "tls.crt"), (&identity.key, "tls.key"), (&authority, "ca.crt")]
        {
            fs::copy(from, version.join(to)).expect("room for a file");
        }
        let new = self.folder.path().join("..data_tmp");
        symlink(name, &new).expect("a link");
        fs::rename(new, self.folder.path().join("..data")).expect("the same folder");
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("text").to_owned()
    }
}

/// The variables of Envoy Gateway's deployment, all of them. Addresses, and the folder of the certificates, are those
/// of the test.
fn deployment(
    secret: &Secret,
    server: &AdsServer,
    redis: &Redis,
    ports: &Ports,
) -> Vec<(&'static str, String)> {
    vec![
        ("RUNTIME_ROOT", "/data".to_owned()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit".to_owned()),
        ("RUNTIME_IGNOREDOTFILES", "true".to_owned()),
        ("RUNTIME_WATCH_ROOT", "false".to_owned()),
        ("LOG_LEVEL", "info".to_owned()),
        ("USE_STATSD", "false".to_owned()),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW".to_owned()),
        ("CONFIG_GRPC_XDS_SERVER_URL", server.address()),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit".to_owned()),
        ("GRPC_SERVER_USE_TLS", "true".to_owned()),
        ("GRPC_SERVER_TLS_CERT", secret.path("tls.crt")),
        ("GRPC_SERVER_TLS_KEY", secret.path("tls.key")),
        ("GRPC_SERVER_TLS_CA_CERT", secret.path("ca.crt")),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true".to_owned()),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", secret.path("tls.crt")),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", secret.path("tls.key")),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", secret.path("ca.crt")),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true".to_owned()),
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
        ("REDIS_URL", format!("127.0.0.1:{}", redis.port())),
        ("USE_PROMETHEUS", "true".to_owned()),
        ("PROMETHEUS_ADDR", format!(":{}", ports.metrics)),
        // The volume is optional.
        ("PROMETHEUS_MAPPER_YAML", secret.path("statsd-exporter/conf.yaml")),
    ]
}

/// Everything of an estate of Envoy Gateway, but its Envoys.
struct Estate {
    certificates: Certificates,
    secret: Secret,
    server: AdsServer,
    ports: Ports,
    service: Daemon,
    _redis: Redis,
    _image: Image,
}

impl Estate {
    async fn start() -> Self {
        let (image, redis, ports) = (Image::new(), Redis::start(), Ports::free());
        let certificates = Certificates::new();
        let gateway = [
            "envoy-gateway",
            "envoy-gateway.envoy-gateway-system",
            "envoy-gateway.envoy-gateway-system.svc",
            // The server of the test has no name of its own.
            "localhost",
        ];
        let server = AdsServer::start().await;
        let gateway = certificates.leaf("gateway", "envoy-gateway", &gateway);
        server.set_tls(Some(acceptor_of_files(&certificates.file("ca.crt"), &gateway)));
        let secret = Secret::new(&certificates, &certificates.of_ratelimit("first"));
        let mut variables = deployment(&secret, &server, &redis, &ports);
        // The machine of the tests can be slow.
        variables.push(("RATELIMITD__STORE__REDIS__TIMEOUT", "5s".to_owned()));
        let service = start(&mut Command::new(image.program("/bin/ratelimit")), &variables, &ports);
        Self { certificates, secret, server, ports, service, _redis: redis, _image: image }
    }

    /// The value of a series, on the port that `PROMETHEUS_ADDR` names.
    fn metric(&self, series: &str) -> Option<u64> {
        let metrics = http::get(self.ports.metrics, "/metrics", &[]).expect("metrics").body;
        metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    /// An Envoy as Envoy Gateway configures its own: a client certificate, the name of the service not checked.
    fn envoy(&self, caller: &Identity) -> Envoy {
        let file = |path: &Path| json!({"filename": path.to_str().expect("text")});
        let context = json!({"common_tls_context": {
            "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"},
            "tls_certificates": [
                {"certificate_chain": file(&caller.certificate), "private_key": file(&caller.key)},
            ],
            "validation_context": {"trusted_ca": file(&self.certificates.file("ca.crt"))},
        }});
        let actions =
            json!([{"actions": [{"generic_key": {"descriptor_key": "user", "descriptor_value": "any"}}]}]);
        let bootstrap = Bootstrap::new(self.ports.grpc).domain("eg").route(route("/", actions));
        Envoy::start(&bootstrap.fail_closed().tls(context))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deployment_of_envoy_gateway_starts_with_its_variables_and_answers_as_recorded() {
    // A window may turn over once, and not again within seconds.
    for _ in 0..2 {
        let mut estate = Estate::start().await;
        let caller = estate.certificates.leaf("caller", "*", &["*.envoy-gateway-system"]);
        let config = client_of_files(&[estate.certificates.file("ca.crt")], Some(&caller));
        let port = estate.ports.grpc;
        let connect = async || Rls::connect_tls(port, config.clone()).await.expect("a handshake");
        if !play_all(&estate.server, connect).await {
            continue;
        }
        let node = estate.server.received()[0].request.node.clone().expect("a node");
        assert_eq!(node.id, "envoy-ratelimit");
        let calls = "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"}";
        assert_eq!(estate.metric(calls), Some(99));
        let log = estate.service.log();
        assert!(log.contains("PROMETHEUS_MAPPER_YAML is ignored"), "{log}");
        assert!(log.contains("GRPC_SERVER_TLS_CA_CERT is not read"), "{log}");
        estate.service.terminate();
        assert_eq!(estate.service.wait_exit().code(), Some(0), "{}", estate.service.log());
        return;
    }
    panic!("the hour turned over twice");
}

/// Clients that make calls one after the other until they are stopped.
struct Callers {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<u16>>>,
}

impl Callers {
    fn start(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = || {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut statuses = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    statuses.push(http::get(port, "/", &[]).map_or(0, |answer| answer.status));
                }
                statuses
            })
        };
        let clients = (0..CALLERS).map(|_| client()).collect();
        Self { stop, clients }
    }

    /// How many calls there were. None failed.
    fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let statuses = self.clients.into_iter().flat_map(|client| client.join().expect("no client panics"));
        let statuses: Vec<u16> = statuses.collect();
        let failed: Vec<&u16> = statuses.iter().filter(|status| **status != 200).collect();
        assert!(failed.is_empty(), "of {} calls: {failed:?}", statuses.len());
        statuses.len() as u64
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_of_envoy_fails_while_certificates_and_rules_of_the_deployment_change() {
    let mut estate = Estate::start().await;
    estate.server.set("0", vec![one_rule("eg", 1_000_000)]);
    estate.server.expect_ack("0").await;
    let caller = estate.certificates.leaf("caller", "*", &["*.envoy-gateway-system"]);
    let first = estate.envoy(&caller);
    let callers = Callers::start(first.port("http"));
    for round in 1..=3_u32 {
        let next = estate.certificates.of_ratelimit(&format!("next-{round}"));
        estate.secret.replace(&estate.certificates, &next);
        estate.server.set(&round.to_string(), vec![one_rule("eg", 1_000_000 + round)]);
        let loads = "ratelimitd_rule_loads_total{result=\"success\"}";
        let reloads = "ratelimitd_tls_reloads_total{port=\"grpc\",result=\"success\"}";
        wait::expect("the new certificates and the new rules", || {
            let is_shown = estate.server.clients().contains(&der(&next));
            is_shown
                && estate.metric(reloads) == Some(round.into())
                && estate.metric(loads) > Some(round.into())
        });
        let version = round.to_string();
        estate.server.expect_ack(&version).await;
    }
    // A connection that begins now has the newest certificate.
    let second = estate.envoy(&caller);
    assert_eq!(second.get("/").status, 200);
    let answers = callers.finish() + 1;
    for envoy in [&first, &second] {
        assert_eq!(envoy.stat("cluster.upstream.ratelimit.error"), 0);
        assert!(envoy.stat("cluster.upstream.ratelimit.ok") > 0);
    }
    let ok = [&first, &second].map(|envoy| envoy.stat("cluster.upstream.ratelimit.ok"));
    assert_eq!(ok.iter().sum::<u64>(), answers, "every call was decided");
}
