//! A proxy that runs with the configuration of its example.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::service::Service;
use crate::support::daemon::Daemon;
use crate::support::envoy::{Bootstrap, Envoy, route};
use crate::support::http::{self, Response};
use crate::support::ports;
use crate::tools::{in_project, read, run};

/// A folder of `examples/`, and how to start its proxy.
pub struct Example {
    pub folder: &'static str,
    pub files: &'static [&'static str],
    /// A command, or a path in the project.
    pub program: &'static str,
    pub arguments: &'static [&'static str],
    /// Texts of the files that are replaced because of the test: paths, but no behaviour.
    pub for_the_test: &'static [(&'static str, &'static str)],
    /// The change that the page of the example names: then no request passes without a decision.
    pub fails_closed: &'static [(&'static str, &'static str)],
    /// What it answers then.
    pub refusals: &'static [u16],
    /// The changes that the page names for a load balancer in front, which runs on this machine here.
    pub behind_a_proxy: &'static [(&'static str, &'static str)],
    /// The command that installs the program.
    pub remedy: &'static str,
}

/// A proxy between a client and an upstream that answers 200, with the service that it asks.
pub struct Running {
    example: &'static str,
    daemon: Daemon,
    port: u16,
    folder: TempDir,
    /// The length of the access log when the proxy had its routes.
    start_of_log: usize,
    service: Service,
    _upstream: Envoy,
}

impl Running {
    /// Starts the proxy with these texts of its files replaced, each of which must be there, and then those of
    /// `patience`.
    pub fn start(example: &Example, edits: &[(&str, &str)], patience: &[(&str, &str)]) -> Self {
        Self::start_with(example, edits, patience, Vec::new())
    }

    /// Starts the proxy as it is shipped, in front of a service with counters in Redis.
    pub fn start_with_redis(example: &Example, url: String) -> Self {
        let settings = vec![("STORE__KIND", "redis".to_owned()), ("STORE__REDIS__URL", url)];
        Self::start_with(example, &[], &[], settings)
    }

    fn start_with(
        example: &Example,
        edits: &[(&str, &str)],
        patience: &[(&str, &str)],
        mut settings: Vec<(&'static str, String)>,
    ) -> Self {
        let folder = TempDir::new().expect("a temporary directory");
        let map = folder.path().join("map.yaml");
        let mut unused: Vec<&str> = edits.iter().map(|(from, _)| *from).collect();
        let mut edited = |file: &str| {
            let text = read(&format!("{}/{file}", example.folder));
            unused.retain(|from| !text.contains(from));
            edits.iter().fold(text, |text, (from, to)| text.replace(from, to))
        };
        std::fs::write(&map, edited("map.yaml")).expect("room for the map");
        let rules = folder.path().join("rules.yaml");
        std::fs::write(&rules, edited("rules.yaml")).expect("room for the rules");
        let texts: Vec<String> = example.files.iter().map(|file| edited(file)).collect();
        assert!(unused.is_empty(), "not in the files of {}: {unused:?}", example.folder);

        if !edits.is_empty() {
            settings.push(("SERVER__HTTP__CHECK__MAP", map.display().to_string()));
            settings.push(("RULES__PATH", rules.display().to_string()));
        }
        let service = Service::start(example.folder, &settings);
        let upstream = Envoy::start(&Bootstrap::new(9).route(route("/", json!([]))));
        let port = ports::free();
        let free = [
            (":10000", port),
            (":10001", ports::free()),
            (":2019", ports::free()),
            (":8080", service.relay.address().port()),
            (":9000", upstream.port("http")),
        ];
        for (file, mut text) in example.files.iter().zip(texts) {
            for (from, to) in example.for_the_test.iter().chain(patience) {
                text = text.replace(from, to);
            }
            std::fs::write(folder.path().join(file), with_ports(text, &free)).expect("room for the file");
        }
        let daemon = launch(example, folder.path());
        let example = example.folder;
        let mut proxy = Self { example, daemon, port, folder, start_of_log: 0, service, _upstream: upstream };
        // Traefik listens before it has read its routes, and answers 404 then. A GET is no write.
        let ready = |_| (http::get(port, "/", &[]).ok()?.status == 200).then_some(());
        let ready = proxy.daemon.wait_ready(ready);
        ready.unwrap_or_else(|problem| {
            panic!("{example} does not listen: {problem:?}\n{}", proxy.file("error.log"))
        });
        proxy.start_of_log = proxy.whole_access_log().len();
        proxy
    }

    /// A request with a body. A proxy that waits for ratelimitd without a deadline fails the test.
    pub fn post(&self, headers: &[(&str, &str)]) -> Response {
        let mut lines = vec!["POST /orders?new=1 HTTP/1.1".to_owned(), "host: shop.example.com".to_owned()];
        lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        http::exchange(http::connect(self.port).expect("a connection"), &lines, "an order")
            .expect("an answer")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The connections to ratelimitd so far.
    pub fn connections(&self) -> usize {
        self.service.relay.accepted()
    }

    /// The access log since the proxy has its routes.
    pub fn access_log(&self) -> String {
        self.whole_access_log()[self.start_of_log..].to_owned()
    }

    /// The number of lines that the proxy has logged and that are not of its access log.
    pub fn error_lines(&self) -> usize {
        let output = if self.logs_access_to_file() { self.daemon.log() } else { String::new() };
        output.lines().count() + self.file("error.log").lines().count()
    }

    /// The report of `simulate` with the map and the rules of the example on the access log.
    pub fn simulate(&self) -> Value {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        std::fs::write(path("log"), self.access_log()).expect("room for the log");
        let files =
            [format!("{}/rules.yaml", self.example), path("map.yaml"), path("report.json"), path("log")];
        let [rules, map, report, log] = files.each_ref().map(String::as_str);
        let arguments = ["simulate", "--rules", rules, "--map", map, "--report-json", report, log];
        run(env!("CARGO_BIN_EXE_ratelimitctl"), &arguments);
        serde_json::from_str(&self.file("report.json")).expect("JSON")
    }

    /// The status of a call to ratelimitd that does not go through the proxy.
    pub fn check(&self) -> u16 {
        self.service.check()
    }

    pub fn stop_service(&mut self) {
        self.service.stop();
    }

    /// Holds all bytes of open and new connections to ratelimitd.
    pub fn silence_service(&mut self) {
        self.service.relay.blackhole();
    }

    pub fn end_outage(&mut self) {
        self.service.restart();
    }

    fn whole_access_log(&self) -> String {
        if self.logs_access_to_file() { self.file("access.log") } else { self.daemon.log() }
    }

    fn logs_access_to_file(&self) -> bool {
        self.folder.path().join("access.log").exists()
    }

    /// A file of the folder; empty if there is none.
    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

/// Starts the proxy in `folder`, with its standard error in the file `error.log`.
fn launch(example: &Example, folder: &Path) -> Daemon {
    let is_path = example.program.contains('/');
    let program = if is_path { in_project(example.program) } else { example.program.into() };
    let errors = File::create(folder.join("error.log")).expect("room for the file");
    let mut command = Command::new(program);
    // Caddy saves its configuration in the home directory.
    command.args(example.arguments).current_dir(folder).env("HOME", folder);
    command.env("XDG_CONFIG_HOME", folder).env("XDG_DATA_HOME", folder);
    Daemon::spawn_with_stderr(example.program, example.remedy, &mut command, Some(errors))
}

/// The text with free ports in place of those of the examples.
fn with_ports(text: String, ports: &[(&str, u16)]) -> String {
    // In two steps, because a free port may be one of the examples.
    let marked =
        (0..).zip(ports).fold(text, |text, (at, (from, _))| text.replace(from, &format!(":<port {at}>")));
    (0..)
        .zip(ports)
        .fold(marked, |text, (at, (_, to))| text.replace(&format!(":<port {at}>"), &format!(":{to}")))
}
