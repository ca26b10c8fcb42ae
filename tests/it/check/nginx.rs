//! A real nginx that asks `/check` about each request (`auth_request`). Its access log, simulated with the same map,
//! gives the same denials. Also examples/nginx with API keys, and the recipe that counts failures.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Checked, RULES};
use crate::simulate::Simulation;
use crate::support::daemon::Daemon;
use crate::support::envoy::upstream::{Seen, Upstream};
use crate::support::http::Response;
use crate::support::{http, ports, wait};

/// In the names of nginx's log: `remote_addr` is the same for all, so the clients differ in their agent.
const MAP: &str = "
domain: edge
descriptors:
  - - { key: client, from: user-agent }
    - { key: address, from: remote_addr }
  - - { key: path, from: path, strip: query, template: [\"/users/*\"] }
    - { key: method, from: method }
keep: path != /health
good: code < 400
was_limited: code == 429
";

/// The rules of this test: the client's address is in the descriptor, too.
const NGINX_RULES: &str = "
domain: edge
descriptors:
  - key: client
    descriptors: [{ key: address, rate_limit: { name: per-client, unit: year, requests_per_unit: 5 } }]
  - key: path
    descriptors: [{ key: method, rate_limit: { name: per-path, unit: year, requests_per_unit: 20 } }]
";

fn configuration(folder: &Path, port: u16, check_port: u16) -> String {
    let folder = folder.display();
    // One process: nothing outlives the test, and nothing changes its user.
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log info;
events {{}}
http {{
  access_log {folder}/access.log combined;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream ratelimitd {{ server 127.0.0.1:{check_port}; keepalive 4; }}
  server {{
    root {folder}; listen 127.0.0.1:{port};
    location / {{
      auth_request /.check;
      auth_request_set $retry_after $upstream_http_retry_after;
      auth_request_set $policy $upstream_http_ratelimit_policy;
      add_header RateLimit-Policy $policy;
      error_page 403 =429 @denied;
      try_files /index.html =404;
    }}
    location @denied {{
      add_header Retry-After $retry_after always;
      return 429;
    }}
    location = /.check {{
      internal;
      proxy_pass http://ratelimitd/check;
      proxy_http_version 1.1;
      proxy_pass_request_body off;
      proxy_set_header Connection \"\";
      proxy_set_header Content-Length \"\";
      proxy_set_header X-Original-Method $request_method;
      proxy_set_header X-Original-URI $request_uri;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
}}"
    )
}

struct Nginx {
    port: u16,
    folder: tempfile::TempDir,
    _daemon: Daemon,
}

impl Nginx {
    fn start(check_port: u16) -> Self {
        Self::run(|folder, port| configuration(folder, port, check_port))
    }

    /// Starts nginx with a configuration for this folder and this port.
    fn run(configuration: impl FnOnce(&Path, u16) -> String) -> Self {
        let folder = tempfile::TempDir::new().expect("a temporary directory");
        std::fs::write(folder.path().join("index.html"), "hello").expect("room");
        let port = ports::free();
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, configuration(folder.path(), port)).expect("room");
        let mut command = Command::new("nginx");
        command
            .arg("-p")
            .arg(folder.path())
            .arg("-e")
            .arg(folder.path().join("error.log"))
            .arg("-c")
            .arg(&file);
        let mut daemon = Daemon::spawn("nginx", "make tools", &mut command);
        daemon.wait_ready(|_| http::connect(port).ok()).expect("nginx listens");
        Self { port, folder, _daemon: daemon }
    }

    fn send(&self, method: &str, path: &str, headers: &[String]) -> Response {
        let mut lines = vec![format!("{method} {path} HTTP/1.1"), "host: example.com".to_owned()];
        lines.extend_from_slice(headers);
        http::exchange(http::connect(self.port).expect("open"), &lines, "").expect("an answer")
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

#[test]
fn clients_of_nginx_are_limited_and_its_log_simulates_to_the_same_denials() {
    let checked = Checked::start_with(MAP, |plan| {
        plan.rule_file("rules.yaml", NGINX_RULES)
            .set("server.http.check.denied_status", "403")
            .set("response.headers", "ietf")
    });
    let nginx = Nginx::start(checked.port());
    let mut denied = 0;
    let mut requests = 0;
    for round in 0..12 {
        for client in 0..4 {
            let path = if client == 3 { "/health".to_owned() } else { format!("/users/{round}?x={client}") };
            let agent = format!("user-agent: client \"{client}\"");
            let answer = nginx.send("GET", &path, &[agent, "x-forwarded-for: 10.0.0.1".to_owned()]);
            requests += 1;
            match answer.status {
                200 => {
                    assert_eq!(answer.body, "hello");
                    assert_eq!(answer.header("ratelimit-policy").is_some(), client != 3, "{answer:?}");
                }
                429 => {
                    denied += 1;
                    let wait = answer.header("retry-after").and_then(|wait| wait.parse::<u64>().ok());
                    assert!(wait.is_some_and(|wait| wait >= 1), "{answer:?}");
                }
                _ => panic!("{answer:?}"),
            }
        }
    }
    assert_eq!(denied, 3 * (12 - 5), "five of each client that has a limit");
    checked.assert_metric(&format!("ratelimitd_requests_total{{result=\"denied\"}} {denied}"));
    assert_eq!(nginx.file("error.log").lines().filter(|line| line.contains("[error]")).count(), 0);
    assert_eq!(nginx.file("error.log").lines().filter(|line| line.contains("[warn]")).count(), 0);

    wait::expect("the log", || nginx.file("access.log").lines().count() == requests);
    let simulation = Simulation::new(NGINX_RULES).map(MAP).log("access.log", nginx.file("access.log"));
    let ended = simulation.succeed();
    let agreement = &ended.report["method"]["agreement"];
    let counts = ["both_deny", "only_recorded", "only_simulated"].map(|field| agreement[field].as_u64());
    assert_eq!(counts, [Some(denied), Some(0), Some(0)], "{agreement}");
}

#[test]
fn a_client_cannot_choose_the_path_that_is_counted() {
    let checked = Checked::start_with(
        "domain: edge\ndescriptors:\n  - - { key: path, from: path }\n    - { key: method, from: method }\n",
        |plan| plan.rule_file("rules.yaml", RULES).set("server.http.check.denied_status", "403"),
    );
    let nginx = Nginx::start(checked.port());
    let send = |headers: &[&str]| {
        let headers: Vec<String> = headers.iter().map(|&header| header.to_owned()).collect();
        nginx.send("GET", "/a", &headers).status
    };
    assert_eq!(
        [send(&[]), send(&["x-original-uri: /b"]), send(&["x-original-method: PUT"])],
        [200, 200, 429]
    );
    // nginx sets X-Original-URI only, and passes this header on.
    assert_eq!(send(&["x-forwarded-uri: /b"]), 500, "refused, not another counter");
}

#[test]
fn nginx_decides_what_happens_without_ratelimitd() {
    let mut checked = Checked::start_with(MAP, |plan| plan.rule_file("rules.yaml", NGINX_RULES));
    let nginx = Nginx::start(checked.port());
    assert_eq!(nginx.send("GET", "/", &[]).status, 200);
    checked.service.kill();
    assert_eq!(nginx.send("GET", "/", &[]).status, 500);
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// examples/nginx/nginx.conf with the ports of a test, and with more patience than a busy machine needs.
fn example(port: u16, check_port: u16, upstream: &Upstream) -> String {
    let ports =
        [(":10000", port), (":10001", ports::free()), (":8080", check_port), (":9000", upstream.port())];
    let text = ports.iter().fold(read("examples/nginx/nginx.conf"), |text, (from, to)| {
        assert!(text.contains(from), "nginx.conf has no {from}");
        text.replace(from, &format!(":{to}"))
    });
    let folders = "http { client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; \
                   uwsgi_temp_path uwsgi; scgi_temp_path scgi;";
    text.replace("daemon off;", "daemon off; master_process off;")
        .replace("http {", folders)
        .replace("100ms", "5s")
}

#[test]
fn clients_with_an_api_key_have_the_limits_of_their_plan() {
    // Per year, so that no unit returns during the test. Of the month's ten requests, two are near the end.
    let rules = read("examples/nginx/rules.yaml").replace("unit: minute", "unit: year");
    let smaller = rules.replace("requests_per_unit: 10000\n", "requests_per_unit: 10\n");
    assert_ne!(rules, smaller);
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/nginx/plans.csv");
    let checked = Checked::start_with(&read("examples/nginx/map.yaml"), |plan| {
        plan.rule_file("rules.yaml", &smaller)
            .set("exceptions.path", plans.display().to_string())
            .set("server.http.check.denied_status", "403")
    });
    let upstream = Upstream::start(|_| 200);
    let nginx = Nginx::run(|_, port| example(port, checked.port(), &upstream));
    let get = |path: &str, headers: &[&str]| {
        let headers: Vec<String> = headers.iter().map(|&header| header.to_owned()).collect();
        nginx.send("GET", path, &headers).status
    };
    let announced = |path: &str| {
        let seen = upstream.seen().into_iter().filter(|request| request.path == path);
        seen.map(|request| request.header("x-ratelimit-announce").map(str::to_owned)).collect::<Vec<_>>()
    };

    let codes: Vec<u16> = (0..12).map(|_| get("/", &[])).collect();
    assert_eq!(codes, [[200_u16; 10].as_slice(), &[429; 2]].concat(), "the limit of the address");
    for forged in ["x-api-key: unknown", "remote-user: globex", "remote-user: -"] {
        assert_eq!(get("/", &[forged]), 429, "{forged}");
    }
    let codes: Vec<u16> = (0..11).map(|_| get("/acme", &["x-api-key: key-of-acme"])).collect();
    assert_eq!(codes, [[200_u16; 10].as_slice(), &[429]].concat(), "the free plan");
    let near = |number: usize| (number >= 8).then(|| "monthly;near".to_owned());
    assert_eq!(announced("/acme"), (0..10).map(near).collect::<Vec<_>>());
    let forged = ["x-api-key: key-of-globex", "x-ratelimit-announce: monthly;over"];
    let codes: Vec<u16> = (0..30).map(|_| get("/globex", &forged)).collect();
    assert_eq!(codes, [200; 30], "the plan pro");
    assert_eq!(announced("/globex"), vec![None; 30], "nginx removes the client's own header");
    let log = nginx.file("access.log");
    assert!(log.contains(" - globex [") && !log.contains("key-of"), "{log}");
}

/// A server with the locations of docs/recipes-proxies.md, and those that it names.
fn failures(folder: &Path, port: u16, check_port: u16, upstream: &Upstream) -> String {
    let page = read("docs/recipes-proxies.md");
    let (_, rest) = page.split_once("```nginx\n").expect("a block for nginx");
    let (locations, _) = rest.split_once("```").expect("a block ends");
    let (folder, upstream) = (folder.display(), upstream.port());
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log info;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream ratelimitd {{ server 127.0.0.1:{check_port}; }}
  upstream service {{ server 127.0.0.1:{upstream}; }}
  server {{
    listen 127.0.0.1:{port};
    set_real_ip_from 127.0.0.1; real_ip_header x-client;
    {locations}
    location @denied {{ return 429; }}
    location = /gate {{
      internal;
      proxy_pass http://ratelimitd/check;
      proxy_pass_request_body off;
      proxy_set_header Content-Length \"\";
      proxy_set_header X-Forwarded-Method $request_method;
      proxy_set_header X-Forwarded-Uri $request_uri;
      proxy_set_header X-Forwarded-For $remote_addr;
    }}
  }}
}}"
    )
}

#[test]
fn only_failures_are_counted_after_the_answer() {
    let rules = "domain: logins\ndescriptors:\n  - { key: remote_address, rate_limit: { unit: year, requests_per_unit: 3 } }\n";
    let page = read("docs/recipes-proxies.md");
    let (_, rest) = page.split_once("```yaml\ndomain: logins\n").expect("a map");
    let (map, _) = rest.split_once("```").expect("a block ends");
    let checked = Checked::start_with(&format!("domain: logins\n{map}"), |plan| {
        plan.rule_file("rules.yaml", rules).set("server.http.check.denied_status", "403")
    });
    let released = Arc::new(AtomicBool::new(false));
    let upstream = Upstream::start({
        let released = Arc::clone(&released);
        move |request: &Seen| {
            if request.path == "/login/held" {
                wait::expect("the test goes on", || released.load(Ordering::SeqCst));
            }
            if request.header("x-password") == Some("right") { 200 } else { 401 }
        }
    });
    let nginx = Nginx::run(|folder, port| failures(folder, port, checked.port(), &upstream));
    let login_from = |client: &str, password: &str| {
        let headers = [format!("x-client: {client}"), format!("x-password: {password}")];
        nginx.send("POST", "/login", &headers).status
    };
    let expect_left_of = |client: &str, units: u64| {
        wait::expect(&format!("{units} failures left"), || {
            checked.service.left("logins", ("remote_address", client)) == units
        });
    };
    let login = |password: &str| login_from("127.0.0.1", password);
    let expect_left = |units: u64| expect_left_of("127.0.0.1", units);
    let correct: Vec<u16> = (0..8).map(|_| login("right")).collect();
    assert_eq!(correct, [200; 8]);
    // A client that hangs up before the answer.
    let mut stream = http::connect(nginx.port).expect("nginx listens");
    let request = "GET /login/held HTTP/1.1\r\nhost: localhost\r\nx-password: wrong\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("nginx reads");
    wait::expect("the request", || upstream.seen().len() == 9);
    drop(stream);
    released.store(true, Ordering::SeqCst);
    expect_left(2);
    for left in [1, 0] {
        assert_eq!(login("wrong"), 401);
        expect_left(left);
    }
    assert_eq!([login("wrong"), login("right")], [429, 429]);
    let client = "2001:db8::7";
    for left in [2, 1, 0] {
        assert_eq!(login_from(client, "wrong"), 401);
        expect_left_of(client, left);
    }
    assert_eq!(login_from(client, "right"), 429, "an IPv6 client");
}
