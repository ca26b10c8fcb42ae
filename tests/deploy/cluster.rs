//! What is rendered, in a real API server: its validation, and its admission by the restricted pod security standard.
//! There is no kubelet, so no pod runs. `make check-cluster` builds the API server and runs these tests.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rendered::{CHART, OVERLAYS, chart, kustomized_text, of_kind, values_files};
use crate::support::certificates::Authority;
use crate::support::daemon::Daemon;
use crate::support::ports;
use crate::tools::{built, documents, try_run};

const REMEDY: &str = "make check-cluster";
/// The API server does not know the objects of the Prometheus operator.
const WITHOUT_OPERATOR: [&str; 2] = ["--set", "serviceMonitor.enabled=false,prometheusRule.enabled=false"];

struct Cluster {
    directory: TempDir,
    _etcd: Daemon,
    _api_server: Daemon,
}

/// Every namespace has the restricted pod security standard.
fn restricted_everywhere() -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "PodSecurity", "configuration": {
            "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
            "defaults": {"enforce": "restricted", "enforce-version": "latest"},
        }}],
    })
}

impl Cluster {
    fn start() -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let [client, peer, port] = [ports::free(), ports::free(), ports::free()];
        let path = |name: &str| directory.path().join(name).display().to_string();
        let local = |port: u16| format!("http://127.0.0.1:{port}");
        let mut etcd = Command::new("etcd");
        etcd.args(["--data-dir", &path("etcd")])
            .args(["--listen-client-urls", &local(client), "--advertise-client-urls", &local(client)])
            .args(["--listen-peer-urls", &local(peer)]);
        let etcd = Daemon::spawn("etcd", REMEDY, &mut etcd);
        let key = Authority::new().certificate_for(&["localhost"]).key;
        let key = std::fs::read(key).expect("a key");
        std::fs::write(path("accounts.key"), key).expect("room for a file");
        std::fs::write(path("tokens.csv"), "token,admin,admin,system:masters\n").expect("room for a file");
        std::fs::write(path("admission.yaml"), restricted_everywhere().to_string()).expect("room for a file");
        let mut command = Command::new(built("kube-apiserver"));
        command.args([
            format!("--etcd-servers={}", local(client)),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", path("certificates")),
            "--service-account-issuer=https://cluster.test".to_owned(),
            format!("--service-account-key-file={}", path("accounts.key")),
            format!("--service-account-signing-key-file={}", path("accounts.key")),
            format!("--token-auth-file={}", path("tokens.csv")),
            format!("--admission-control-config-file={}", path("admission.yaml")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ]);
        let mut api_server = Daemon::spawn("kube-apiserver", REMEDY, &mut command);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "test", "user": {"token": "token"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        std::fs::write(path("kubeconfig"), kubeconfig.to_string()).expect("room for a file");
        let listed = |_| {
            let arguments = ["list", "--kubeconfig", &path("kubeconfig")];
            try_run(built("helm"), &arguments).0.then_some(())
        };
        let ready = api_server.wait_ready(listed);
        ready.unwrap_or_else(|problem| panic!("the API server does not become ready: {problem:?}"));
        Self { directory, _etcd: etcd, _api_server: api_server }
    }

    /// Installs or changes a release. Returns the error of a failure.
    fn install(&self, release: &str, namespace: &str, chart: &str, options: &[&str]) -> Result<(), String> {
        let kubeconfig = self.directory.path().join("kubeconfig").display().to_string();
        let arguments = ["upgrade", "--install", "--create-namespace", release, chart];
        let arguments = [&arguments[..], &["--namespace", namespace, "--kubeconfig", &kubeconfig]].concat();
        let (succeeds, output) = try_run(built("helm"), &[&arguments[..], options].concat());
        if succeeds { Ok(()) } else { Err(output) }
    }

    /// Creates objects, as a chart that renders nothing else.
    fn create(&self, release: &str, namespace: &str, objects: &str) -> Result<(), String> {
        let chart = TempDir::new().expect("a temporary directory");
        std::fs::create_dir(chart.path().join("templates")).expect("a folder");
        let description = "apiVersion: v2\nname: objects\nversion: 0.1.0\n";
        std::fs::write(chart.path().join("Chart.yaml"), description).expect("room for a file");
        assert!(!objects.contains("{{"), "Helm would fill it in: {objects}");
        std::fs::write(chart.path().join("templates/objects.yaml"), objects).expect("room for a file");
        let path = chart.path().to_str().expect("a path of text");
        self.install(release, namespace, path, &[])
    }

    /// Creates the pod of the Deployment among `objects`, beside the objects that the namespace has.
    fn create_pod(&self, name: &str, namespace: &str, objects: &[Value]) -> Result<(), String> {
        let template = &of_kind(objects, "Deployment")["spec"]["template"];
        let metadata = json!({"name": name, "labels": template["metadata"]["labels"]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]});
        self.create(name, namespace, &pod.to_string())
    }
}

#[test]
fn a_real_api_server_takes_the_chart_its_changes_and_its_pods() {
    let cluster = Cluster::start();
    let priority = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1,
    });
    cluster.create("priority", "default", &priority.to_string()).expect("a priority class");
    for (number, values) in values_files().iter().enumerate() {
        let namespace = format!("values-{number}");
        let options = [&["--values", values.as_str()], &WITHOUT_OPERATOR[..]].concat();
        let installed = cluster.install("edge", &namespace, CHART, &options);
        installed.unwrap_or_else(|error| panic!("{values}: {error}"));
        let change = ["--set", "settings.server.drain=7s,networkPolicy.callerNamespaces={others}"];
        let upgraded = cluster.install("edge", &namespace, CHART, &[&options[..], &change].concat());
        upgraded.unwrap_or_else(|error| panic!("{values}: {error}"));
        let created = cluster.create_pod("pod", &namespace, &chart(values, &[]));
        created.unwrap_or_else(|error| panic!("{values}: {error}"));
    }
    // The API server does refuse.
    let mut objects = chart(&values_files()[0], &[]);
    let deployment = objects.iter_mut().find(|object| object["kind"] == "Deployment").expect("a Deployment");
    deployment["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] = false.into();
    let refused = cluster.create_pod("root", "values-0", &objects).expect_err("a pod that may be root");
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
}

#[test]
fn a_real_api_server_takes_the_base_the_overlay_and_their_pods() {
    let cluster = Cluster::start();
    for (folder, namespace) in OVERLAYS.into_iter().zip(["base", "ratelimit"]) {
        let text = kustomized_text(folder);
        cluster.create("overlay", namespace, &text).unwrap_or_else(|error| panic!("{folder}: {error}"));
        let created = cluster.create_pod("pod", namespace, &documents(&text));
        created.unwrap_or_else(|error| panic!("{folder}: {error}"));
    }
}
