//! Runs what a rendered pod runs, on this machine: the arguments, the environment and the mounted files of its
//! container, and its probes, beside a real Redis.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::rendered::{container, pod};
use crate::support::certificates::{Authority, Identity};
use crate::support::daemon::Daemon;
use crate::support::redis::Redis;
use crate::support::{http, ports, wait};
use crate::tools::elements;

const PASSWORD: &str = "secret";
/// Where the mounted folders are.
const FOLDERS: [&str; 2] = ["/etc/ratelimitd/", "/certs/"];

pub struct Pod<'o> {
    container: &'o Value,
    /// Stands for the root of the container's file system.
    root: TempDir,
    environment: Vec<(String, String)>,
    pub http_port: u16,
    pub metrics_port: u16,
    daemon: Daemon,
    _redis: Redis,
    _authority: Authority,
}

impl<'o> Pod<'o> {
    /// Starts the container of the Deployment among `objects`. Returns when it is alive by its own probe.
    pub fn start(objects: &'o [Value]) -> Self {
        let root = TempDir::new().expect("a temporary directory");
        let authority = Authority::new();
        let identity = authority.certificate_for(&["127.0.0.1", "localhost"]);
        let folders = mount(objects, root.path(), &authority, &identity);
        let container = container(objects);
        let (redis, url) = start_redis(&authority, &identity, &folders);
        let [grpc, http_port, metrics_port] = [ports::free(), ports::free(), ports::free()];
        let mut environment = written_environment(container, root.path());
        let mut set = |key: &str, value: String| environment.push((format!("RATELIMITD__{key}"), value));
        set("SERVER__GRPC__ADDRESS", format!("127.0.0.1:{grpc}"));
        set("SERVER__HTTP__ADDRESS", format!("127.0.0.1:{http_port}"));
        set("SERVER__ADMIN__ADDRESS", "off".to_owned());
        set("STORE__REDIS__URL", url);
        if elements(&container["ports"]).any(|port| port["name"] == "metrics") {
            set("METRICS__ADDRESS", format!("127.0.0.1:{metrics_port}"));
        }
        let words = words(&container["args"], root.path());
        let mut command = ratelimitd(&words, &environment);
        let daemon = Daemon::spawn("ratelimitd", "cargo build", &mut command);
        let (_redis, _authority) = (redis, authority);
        let pod = Self { container, root, environment, http_port, metrics_port, daemon, _redis, _authority };
        pod.wait_for("livenessProbe");
        pod
    }

    /// Waits until a probe of the container succeeds.
    pub fn wait_for(&self, probe: &str) {
        let succeeded = wait::until(wait::PATIENCE, || self.probe_succeeds(probe).then_some(()));
        assert!(succeeded.is_some(), "{probe} fails: {}\n{}", self.container[probe], self.daemon.log());
    }

    /// Probes as the kubelet does.
    fn probe_succeeds(&self, probe: &str) -> bool {
        let probe = &self.container[probe];
        let Some(path) = probe["httpGet"]["path"].as_str() else {
            let words = words(&probe["exec"]["command"], self.root.path());
            let (program, arguments) = words.split_first().expect("a command");
            assert_eq!(program, "ratelimitd");
            return runs(ratelimitd(arguments, &self.environment));
        };
        if probe["httpGet"]["scheme"] == "HTTPS" {
            // A kubelet verifies no certificate, as `health` with the settings of the service.
            let mut arguments = words(&self.container["args"], self.root.path());
            arguments[0] = "health".to_owned();
            return runs(ratelimitd(&arguments, &self.environment));
        }
        http::get(self.http_port, path, &[]).is_ok_and(|answer| answer.status == 200)
    }
}

fn runs(mut command: Command) -> bool {
    command.output().expect("the binary runs").status.success()
}

fn ratelimitd(arguments: &[String], environment: &[(String, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    command.args(arguments).envs(environment.iter().cloned());
    command
}

/// A text of the container with its folders below `root`.
fn localized(text: &str, root: &Path) -> String {
    FOLDERS
        .iter()
        .fold(text.to_owned(), |text, folder| text.replace(folder, &format!("{}{folder}", root.display())))
}

fn words(list: &Value, root: &Path) -> Vec<String> {
    elements(list).map(|word| localized(word.as_str().expect("a text"), root)).collect()
}

/// The variables whose values are written in the Deployment.
fn written_environment(container: &Value, root: &Path) -> Vec<(String, String)> {
    let written = elements(&container["env"])
        .filter_map(|variable| Some((variable["name"].as_str()?, variable["value"].as_str()?)));
    written.map(|(name, value)| (name.to_owned(), localized(value, root))).collect()
}

/// Writes the files of every mounted volume. ConfigMaps that are not rendered and Secrets have the certificates of the
/// test. Returns the mounted folders.
fn mount(objects: &[Value], root: &Path, authority: &Authority, identity: &Identity) -> Vec<String> {
    let mut folders = Vec::new();
    for mount in elements(&container(objects)["volumeMounts"]) {
        let folder = mount["mountPath"].as_str().expect("a path");
        let local = root.join(folder.trim_start_matches('/'));
        std::fs::create_dir_all(&local).expect("a folder");
        let volume = elements(&pod(objects)["volumes"]).find(|volume| volume["name"] == mount["name"]);
        let volume = volume.unwrap_or_else(|| panic!("no volume for {mount}"));
        for (name, text) in files_of(objects, volume, authority, identity) {
            std::fs::write(local.join(name), localized(&text, root)).expect("room for a file");
        }
        folders.push(folder.to_owned());
    }
    folders
}

/// Names and texts of the files of a volume.
fn files_of(
    objects: &[Value],
    volume: &Value,
    authority: &Authority,
    identity: &Identity,
) -> Vec<(String, String)> {
    let is_source = |object: &&Value| {
        object["kind"] == "ConfigMap" && object["metadata"]["name"] == volume["configMap"]["name"]
    };
    if let Some(rendered) = objects.iter().find(is_source) {
        let data = rendered["data"].as_object().expect("files");
        return data
            .iter()
            .map(|(name, text)| (name.clone(), text.as_str().expect("a text").to_owned()))
            .collect();
    }
    let source = [&volume["secret"], &volume["configMap"]].into_iter().find(|source| source.is_object());
    let Some(source) = source else { return Vec::new() };
    let read = |path: &Path| std::fs::read_to_string(path).expect("a file of the test");
    let text = |key: &str| match key {
        "tls.crt" => read(&identity.certificate),
        "tls.key" => read(&identity.key),
        "password" => PASSWORD.to_owned(),
        _ => authority.pem(),
    };
    let items: Vec<(&str, &str)> = elements(&source["items"])
        .filter_map(|item| Some((item["key"].as_str()?, item["path"].as_str()?)))
        .collect();
    // Without items every key is a file.
    let items = if items.is_empty() {
        ["ca.crt", "tls.crt", "tls.key"].map(|key| (key, key)).to_vec()
    } else {
        items
    };
    items.into_iter().map(|(key, path)| (path.to_owned(), text(key))).collect()
}

/// A Redis that asks for what the pod has: TLS, a certificate, a password. Returns its URL.
fn start_redis(authority: &Authority, identity: &Identity, folders: &[String]) -> (Redis, String) {
    let has = |name: &str| folders.iter().any(|folder| folder == &format!("/etc/ratelimitd/{name}"));
    let path = |path: &Path| path.display().to_string();
    let port = ports::free();
    let mut settings = Vec::new();
    if has("redis-ca") {
        settings.extend([
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", path(&identity.certificate)),
            ("--tls-key-file", path(&identity.key)),
            ("--tls-ca-cert-file", path(&authority.file())),
            ("--tls-auth-clients", if has("redis-certificate") { "yes" } else { "no" }.to_owned()),
        ]);
    }
    if has("redis") {
        settings.push(("--requirepass", PASSWORD.to_owned()));
    }
    let settings: Vec<&str> = settings.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
    let redis = if settings.is_empty() { Redis::start() } else { Redis::start_with(&settings) };
    let url = if has("redis-ca") { format!("rediss://127.0.0.1:{port}") } else { redis.url() };
    (redis, url)
}
