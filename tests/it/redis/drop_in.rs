//! Started as `envoyproxy/ratelimit` is: called `ratelimit`, with its environment variables and its rule directory.

use std::process::{Command, Output};

use serde_json::Value;

use super::security::tls_server;
use crate::support::certificates::Authority;
use crate::support::grpc::{Code, Rls, descriptor, request};
use crate::support::ratelimit::Environment;
use crate::support::redis::Redis;
use crate::support::{http, wait};

const TWO_AN_HOUR: &str = "
domain: a
descriptors:
  - key: k
    rate_limit: { unit: hour, requests_per_unit: 2 }
";

#[tokio::test]
async fn the_environment_of_envoyproxy_ratelimit_starts_the_service() {
    let redis = Redis::start();
    // `a.conf` is no name of a rule file, and the prose would end every load there.
    let environment = Environment::new().redis(redis.port()).rules("a.conf", TWO_AN_HOUR);
    let environment = environment.rules("README.txt", "The limits of this service.\n");
    let environment = environment.set("REDIS_POOL_SIZE", "20").set("GRPC_HOST", "localhost");
    let mut service =
        environment.set("REDIS_PERSECOND_PORT", "tcp://10.0.0.1:6379").argument("--help").start();
    service.wait_healthy();
    let mut rls = Rls::connect(service.grpc_port).await;
    for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(rls.send_one("a", &[("k", "v")]).await.0, expected);
    }
    let config = "a.k: unit=HOUR requests_per_unit=2, shadow_mode: false, quota_mode: false\n";
    let foreign = ["GET /rlconfig HTTP/1.1", "host: ratelimit.svc:6070"];
    let stream = http::connect(service.debug_port).expect("the debug port");
    assert_eq!(http::exchange(stream, &foreign, "").expect("an answer").body, config);
    let post = ["POST /healthcheck HTTP/1.1", "host: x"];
    let stream = http::connect(service.http_port).expect("the HTTP port");
    assert_eq!(http::exchange(stream, &post, "").expect("an answer").body, "OK");

    for line in [
        "reading the environment like envoyproxy/ratelimit: this program was called ratelimit",
        "REDIS_POOL_SIZE is ignored",
        "README.txt: warning: not read, because it does not look like rules",
        "ignoring command-line arguments",
        "key=store.redis.url",
    ] {
        let log = service.log_with(line);
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
    let status = service.stop();
    assert_eq!(status.code(), Some(0), "{}", service.log());
}

#[test]
fn a_command_needs_a_token_unless_the_debug_port_is_of_this_host_only() {
    let redis = Redis::start();
    let start = |host| {
        let environment = Environment::new().redis(redis.port()).rules("a.yaml", TWO_AN_HOUR);
        environment.set("DEBUG_HOST", host).start()
    };
    let needed = "ratelimitctl block: a POST to the admin port needs a token while \
                  server.admin.read_by_any_host is true: set server.admin.operator_token_file or \
                  server.admin.token_file\n";
    for (host, expected) in [("0.0.0.0", (Some(1), needed)), ("127.0.0.1", (Some(0), ""))] {
        let service = start(host);
        service.wait_healthy();
        let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
            .args(["block", "--reason", "test", "--for", "2h", "--domain", "a", "k=v", "--admin"])
            .arg(format!("http://127.0.0.1:{}", service.debug_port))
            .output()
            .expect("the binary runs");
        let error = String::from_utf8(stderr).expect("UTF-8");
        assert_eq!((status.code(), error.as_str()), expected, "{host}");
    }
}

#[test]
fn the_name_may_be_the_first_argument() {
    let redis = Redis::start();
    let environment =
        Environment::new().redis(redis.port()).rules("a.yaml", TWO_AN_HOUR).with_name_as_argument();
    let service = environment.start();
    service.wait_healthy();
    service.log_with("this program was called ratelimit");
}

#[test]
fn the_log_has_no_line_below_its_level() {
    let redis = Redis::start();
    for (level, below) in [("ERROR", &["INFO", "WARN"][..]), ("warn", &["INFO"])] {
        let environment = Environment::new().redis(redis.port()).rules("a.yaml", TWO_AN_HOUR);
        // A variable without effect is worth a warning.
        let mut service = environment.set("LOG_LEVEL", level).set("REDIS_POOL_SIZE", "5").start();
        service.wait_healthy();
        // The end of the process has written all lines.
        assert_eq!(service.stop().code(), Some(0));
        let log = service.log();
        assert!(!below.iter().any(|below| log.contains(below)), "{log}");
        assert_eq!(log.contains("REDIS_POOL_SIZE"), level == "warn", "{log}");
    }
}

#[tokio::test]
async fn first_rules_that_are_not_valid_heal_with_the_files() {
    let redis = Redis::start();
    let broken = TWO_AN_HOUR.replace("hour", "fortnight");
    let service = Environment::new().redis(redis.port()).rules("a.yaml", &broken).start();
    assert_eq!(service.healthcheck(), 500);
    let ready = http::get(service.http_port, "/readyz", &[]).expect("an answer").body;
    let reason = "no rate limit configuration loaded (";
    assert!(ready.contains(reason) && ready.contains("invalid rate limit unit 'fortnight'"), "{ready}");
    let mut rls = Rls::connect(service.grpc_port).await;
    let error = rls.send(request("a", vec![descriptor(&[("k", "v")])])).await.expect_err("no rules");
    assert_eq!(error.message(), "no rate limit configuration loaded");
    let json = ["POST /json HTTP/1.1", "host: x"];
    let body = r#"{"domain": "a", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#;
    let stream = http::connect(service.http_port).expect("the HTTP port");
    let answer = http::exchange(stream, &json, body).expect("an answer");
    assert_eq!((answer.status, answer.body.as_str()), (503, "no rate limit configuration loaded\n"));

    std::fs::write(service.rules().join("a.yaml"), TWO_AN_HOUR).expect("a rule file");
    service.wait_healthy();
    assert_eq!(rls.send_one("a", &[("k", "v")]).await.1.limit_remaining, 1);
    // From now on a mistake changes nothing.
    std::fs::write(service.rules().join("a.yaml"), &broken).expect("a rule file");
    wait::expect("the mistake is told", || service.log().contains("keeping current rules"));
    assert_eq!(service.healthcheck(), 200);
    assert_eq!(rls.send_one("a", &[("k", "v")]).await.1.limit_remaining, 0);
}

#[test]
fn a_directory_without_rules_is_an_empty_rule_set() {
    let redis = Redis::start();
    let service = Environment::new().redis(redis.port()).start();
    service.wait_healthy();
    service.log_with("no rules loaded; every request is admitted");
    let metrics = http::get(service.http_port, "/metrics", &[]).expect("an answer").body;
    assert!(metrics.contains("ratelimitd_rule_domains 0\n"), "{metrics}");

    let strict =
        Environment::new().redis(redis.port()).set("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true");
    let service = strict.start();
    let reason = || http::get(service.http_port, "/readyz", &[]).expect("an answer").body;
    wait::expect("Redis is reached", || reason() == "not ready: the active rules have no domain\n");
    std::fs::write(service.rules().join("a.yaml"), "domain: a\n").expect("a rule file");
    service.wait_healthy();
    std::fs::remove_file(service.rules().join("a.yaml")).expect("a file");
    wait::expect("the service is not healthy", || service.healthcheck() == 500);
}

#[test]
fn the_log_has_the_keys_of_envoyproxy_ratelimit() {
    let redis = Redis::start();
    let environment = Environment::new().redis(redis.port()).rules("a.yaml", TWO_AN_HOUR);
    let service = environment.set("LOG_FORMAT", "JSON").start();
    service.wait_healthy();
    let log = service.log_with("rules loaded");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for line in &lines {
        let keys = ["@timestamp", "@message", "level"].map(|key| line[key].as_str().unwrap_or_default());
        assert!(!keys[0].is_empty() && !keys[1].is_empty(), "{line}");
        assert!(["info", "warning", "error"].contains(&keys[2]), "{line}");
        assert!(humantime::parse_rfc3339(keys[0]).is_ok(), "{line}");
    }
    let rules = lines.iter().find(|line| line["@message"] == "rules loaded").expect("a line");
    assert_eq!((rules["rules"].as_u64(), rules["level"].as_str()), (Some(1), Some("info")));
}

#[test]
fn a_certificate_that_does_not_fit_is_told_by_the_health_endpoint() {
    let (theirs, other) = (Authority::new(), Authority::new());
    let (_redis, port) = tls_server(&theirs, &theirs.certificate_for(&["redis.internal"]), "no");
    let environment = |authority: &Authority| {
        let file = authority.file().display().to_string();
        let environment =
            Environment::new().redis(port).rules("a.yaml", TWO_AN_HOUR).set("REDIS_TLS", "true");
        environment.set("REDIS_TLS_CACERT", &file)
    };
    for (authority, reason) in [(&other, "invalid peer certificate: "), (&theirs, "not valid for name")] {
        let service = environment(authority).start();
        let body = || http::get(service.http_port, "/readyz", &[]).expect("an answer").body;
        wait::expect(reason, || {
            body().contains("the TLS handshake with the store fails") && body().contains(reason)
        });
        assert!(!body().contains("127.0.0.1:"), "{}", body());
    }
    let skipping = environment(&theirs).set("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "true").start();
    skipping.wait_healthy();
}

#[test]
fn a_client_certificate_that_redis_misses_is_told_by_the_health_endpoint() {
    let authority = Authority::new();
    let (_redis, port) = tls_server(&authority, &authority.certificate_for(&["127.0.0.1"]), "yes");
    let file = authority.file().display().to_string();
    let environment = Environment::new().redis(port).rules("a.yaml", TWO_AN_HOUR).set("REDIS_TLS", "true");
    let service = environment.set("REDIS_TLS_CACERT", &file).start();
    let body = || http::get(service.http_port, "/readyz", &[]).expect("an answer").body;
    wait::expect("the alert of Redis", || {
        body().contains("the TLS handshake with the store fails (received fatal alert: ")
    });
    service.log_with("TLS verification with Redis failed; not ready");
}

#[test]
fn an_outage_of_redis_makes_it_unhealthy_if_the_environment_says_so() {
    let mut redis = Redis::start();
    let environment = Environment::new().redis(redis.port()).rules("a.yaml", TWO_AN_HOUR);
    let service = environment.set("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true").start();
    service.wait_healthy();
    redis.stop();
    let body = r#"{"domain": "a", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#;
    wait::expect("the service is not healthy", || {
        let stream = http::connect(service.http_port).expect("the HTTP port");
        let _ = http::exchange(stream, &["POST /json HTTP/1.1", "host: x"], body);
        service.healthcheck() == 500
    });
    redis.restart();
    service.wait_healthy();
}
