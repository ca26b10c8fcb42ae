//! The image started as the compose file of `envoyproxy/ratelimit` starts its own.

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::support::grpc::{Code, Rls};
use crate::support::image::{DOCKERFILE, Image, PROGRAM, Ports, start};
use crate::support::redis::Redis;
use crate::support::{http, wait};

/// Rules of the kinds in the example of `envoyproxy/ratelimit`: nested, exempt and shadow ones, in two files.
const EXAMPLE: [(&str, &str); 2] = [
    (
        "one.yaml",
        "
domain: shop
descriptors:
  - key: client
    value: crawler
    rate_limit: { unit: year, requests_per_unit: 1 }
    descriptors:
      - key: path
        value: /cart
        rate_limit: { unit: year, requests_per_unit: 0 }
  - key: client
    value: staff
  - key: client
    value: trial
    rate_limit: { unit: year, requests_per_unit: 1 }
    shadow_mode: true
",
    ),
    (
        "two.yaml",
        "
domain: tcp
descriptors: [{ key: remote_address, rate_limit: { unit: year, requests_per_unit: 2 } }]
",
    ),
];

#[tokio::test]
async fn the_image_starts_as_in_the_compose_file_of_envoyproxy_ratelimit() {
    let (image, redis, ports) = (Image::new(), Redis::start(), Ports::free());
    let data = TempDir::new().expect("a folder");
    let rules = data.path().join("ratelimit/config");
    fs::create_dir_all(&rules).expect("a folder");
    for (name, text) in EXAMPLE {
        fs::write(rules.join(name), text).expect("room for a file");
    }
    let (statsd, received) = statsd();
    let variables = [
        ("USE_STATSD", "true".to_owned()),
        ("STATSD_HOST", "127.0.0.1".to_owned()),
        ("STATSD_PORT", statsd.to_string()),
        ("LOG_LEVEL", "debug".to_owned()),
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
        ("REDIS_URL", format!("127.0.0.1:{}", redis.port())),
        ("RUNTIME_ROOT", data.path().to_str().expect("text").to_owned()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit".to_owned()),
        ("RUNTIME_WATCH_ROOT", "false".to_owned()),
    ];
    assert!(DOCKERFILE.contains("ENTRYPOINT [\"ratelimitd\"]\n"));
    // `command: /bin/ratelimit` is an argument of the entry point.
    let mut command = Command::new(image.program(PROGRAM));
    let mut service = start(command.arg("/bin/ratelimit"), &variables, &ports);
    let mut rls = Rls::connect(ports.grpc).await;
    type Call = (&'static str, &'static [(&'static str, &'static str)], Code);
    let calls: [Call; 8] = [
        ("shop", &[("client", "crawler")], Code::Ok),
        ("shop", &[("client", "crawler")], Code::OverLimit),
        ("shop", &[("client", "crawler"), ("path", "/cart")], Code::OverLimit),
        ("shop", &[("client", "staff")], Code::Ok),
        ("shop", &[("client", "trial")], Code::Ok),
        ("shop", &[("client", "trial")], Code::Ok),
        ("tcp", &[("remote_address", "10.0.0.1")], Code::Ok),
        ("nowhere", &[("client", "crawler")], Code::Ok),
    ];
    for (domain, entries, expected) in calls {
        assert_eq!(rls.send_one(domain, entries).await.0, expected, "{domain} {entries:?}");
    }
    let rlconfig = http::get(ports.debug, "/rlconfig", &[]).expect("the debug port").body;
    assert_eq!(rlconfig.lines().count(), 4, "{rlconfig}");
    fs::write(rules.join("two.yaml"), EXAMPLE[1].1.replace("2 }", "7 }")).expect("room for a file");
    wait::expect("the changed rules", || {
        http::get(ports.debug, "/rlconfig", &[]).expect("the debug port").body.contains("requests_per_unit=7")
    });
    service.terminate();
    assert_eq!(service.wait_exit().code(), Some(0), "{}", service.log());
    // The last counts are sent before the end.
    let counted = "ratelimit.service.rate_limit.tcp.remote_address.total_hits:1|c";
    wait::expect("the statistics", || received.lock().expect("no panic").contains(counted));
}

/// A statsd server on TCP: its port, and what clients sent on connections that have ended.
fn statsd() -> (u16, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let received: Arc<Mutex<String>> = Arc::default();
    let texts = Arc::clone(&received);
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut text = String::new();
            client.read_to_string(&mut text).expect("text until the end");
            texts.lock().expect("no panic").push_str(&text);
        }
    });
    (port, received)
}
