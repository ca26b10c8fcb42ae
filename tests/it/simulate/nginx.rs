//! The access log of a real nginx that limits by itself.

use std::fmt::Write as _;
use std::process::Command;

use super::Simulation;
use crate::support::daemon::Daemon;
use crate::support::{http, ports, wait};

/// What `limit_req` of the configuration does: one request per minute after a burst of ten.
const RULES: &str = "
domain: edge
descriptors:
  - key: client
    rate_limit: { name: per-client, unit: minute, requests_per_unit: 1, burst: 10, algorithm: gcra }
";
const MAP: &str = "
domain: edge
descriptors:
  - - { key: client, from: user-agent }
good: code < 400
was_limited: code == 429
";
const REQUESTS: usize = 120;

fn configuration(folder: &std::path::Path, port: u16) -> String {
    let folder = folder.display();
    // One process: nothing outlives the test, and nothing changes its user.
    let mut text = format!("daemon off; master_process off; pid {folder}/pid; error_log stderr;\n");
    writeln!(
        text,
        "events {{}}
http {{
  log_format msec '$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent '
                  '\"$http_referer\" \"$http_user_agent\" $msec $request_time';
  access_log {folder}/msec.log msec;
  access_log {folder}/combined.log combined;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  limit_req_zone $http_user_agent zone=clients:1m rate=1r/m;
  server {{
    listen 127.0.0.1:{port};
    location / {{ limit_req zone=clients burst=9 nodelay; limit_req_status 429; root {folder}; }}
  }}
}}"
    )
    .expect("room");
    text
}

#[test]
fn the_simulation_of_its_log_agrees_with_what_nginx_did() {
    let folder = tempfile::TempDir::new().expect("a temporary directory");
    std::fs::write(folder.path().join("index.html"), "hello").expect("room");
    let port = ports::free();
    let file = folder.path().join("nginx.conf");
    std::fs::write(&file, configuration(folder.path(), port)).expect("room");
    let mut command = Command::new("nginx");
    let mut nginx =
        Daemon::spawn("nginx", "make tools", command.arg("-e").arg("stderr").arg("-c").arg(&file));
    nginx.wait_ready(|_| http::connect(port).ok()).expect("nginx listens");
    for request in 0..REQUESTS {
        let agent = format!("client \"{}\"", request % 4);
        let answer = http::get(port, "/index.html", &[("user-agent", &agent)]).expect("an answer");
        assert!(matches!(answer.status, 200 | 429), "{answer:?}");
    }
    for (name, resolution_us) in [("msec.log", 1_000), ("combined.log", 1_000_000)] {
        let read = || std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        wait::expect("the log", || read().lines().count() == REQUESTS && read().ends_with('\n'));
        let ended = Simulation::new(RULES).map(MAP).log(name, read()).with(&["--show-keys"]).succeed();
        assert_eq!(ended.report["method"]["inputs"][0]["format"], "nginx");
        assert_eq!(
            (ended.method("lines"), ended.method("unreadable")),
            (REQUESTS as u64, 0),
            "{}",
            ended.stdout
        );
        assert_eq!(ended.method("clock_resolution_us"), resolution_us);
        let agreement = &ended.report["method"]["agreement"];
        // Times are rounded: at the instant at which a minute's request becomes free, the two may differ by one request
        // of each client.
        let differs = |field: &str| agreement[field].as_u64().expect("a count") > 4;
        assert!(!differs("only_recorded") && !differs("only_simulated"), "{agreement}");
        assert!(agreement["both_deny"].as_u64().is_some_and(|denied| denied > 40), "{agreement}");
        let key = ended.report["rules"][0]["top_denied"][0]["key"].as_str().expect("a key").to_owned();
        assert!(key.starts_with("{edge|client=client%20\\x22"), "{key}");
    }
}
