//! Commands with the settings of a service whose rules come from an xDS server: they ask the server once.

use std::process::{Command, Output};

use serde_json::json;

use super::one_rule;
use super::resource::resource;
use crate::support::ads::AdsServer;
use crate::support::program::program_of;

/// Runs a command in an environment of envoyproxy/ratelimit. Returns its exit code, standard output and standard error.
async fn run(server: &AdsServer, arguments: &[&str], more: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(program_of(arguments));
    command
        .env_clear()
        .args(arguments)
        .env("CONFIG_TYPE", "GRPC_XDS_SOTW")
        .env("CONFIG_GRPC_XDS_SERVER_URL", server.address())
        .env("CONFIG_GRPC_XDS_NODE_ID", "ratelimit-7")
        .env("REDIS_URL", "redis:6379")
        .envs(more.iter().copied());
    let run = tokio::task::spawn_blocking(move || command.output().expect("the binary runs"));
    let Output { status, stdout, stderr } = run.await.expect("no panic");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_asks_the_server_of_the_settings_and_says_where_a_field_comes_from() {
    let server = AdsServer::start().await;
    let limit = json!({"unit": "YEAR", "requests_per_unit": 4});
    let descriptors = json!([{"key": "route", "descriptors": [{"key": "user", "rate_limit": limit}]}]);
    let http =
        resource(&json!({"name": "eg/http listener", "domain": "eg/http", "descriptors": descriptors}));
    server.set("7", vec![http, one_rule("other", 3)]);
    let upgrades = r#"[{"domain": "eg/*", "path": "route.user", "algorithm": "gcra", "burst": 2}]"#;
    let variables = [("RATELIMITD__UPGRADES", upgrades)];
    let line = ["explain", "--domain", "eg/http", "route=r,user=ann"];
    let (code, text, error) = run(&server, &line, &variables).await;
    assert_eq!((code, error.as_str()), (Some(0), ""), "{text}");
    let first =
        format!("Rules from the xDS server {}, version '7', resource 'eg/http listener'\n", server.address());
    assert!(text.starts_with(&first), "{text}");
    for part in [
        "Rule eg/http.route.user",
        "    admits            4 ",
        "    algorithm         gcra",
        "    upgraded          from upgrades[0] of the settings: algorithm, burst\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let received = server.received();
    assert_eq!(received.len(), 1, "it acknowledges nothing: {received:?}");
    let node = received[0].request.node.as_ref().expect("a node");
    assert_eq!(node.id, "ratelimit-7");

    let (code, text, _) = run(&server, &["explain", "--domain", "nowhere", "a=b"], &[]).await;
    assert_eq!(code, Some(1));
    assert!(text.contains("version '7'\nNo limit: ") && text.contains("'eg/http', 'other'"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn validate_and_migrate_read_the_rules_of_the_server() {
    let server = AdsServer::start().await;
    server.set("1", vec![one_rule("a", 1), one_rule("b", 2)]);
    let (code, text, error) = run(&server, &["validate"], &[]).await;
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert_eq!(text, "all rate limit configs ok\n2 files, 2 domains, 2 rules, 2 limits, 0 warnings\n");
    let (code, text, error) = run(&server, &["migrate"], &[]).await;
    assert_eq!((code, error.as_str()), (Some(0), ""), "{text}");
    let line = format!("# The rules of the xDS server {}:\n", server.address());
    assert!(text.contains(&line) && text.contains("# valid: resources 2, domains 2, rules 2"), "{text}");

    server.set("2", vec![one_rule("", 1)]);
    let (code, text, error) = run(&server, &["validate"], &[]).await;
    assert_eq!((code, text.as_str()), (Some(1), ""));
    let first = format!("cannot load the rules of xDS server {}, version 2:\n", server.address());
    assert!(error.starts_with(&first) && error.contains("empty domain"), "{error}");
    assert!(error.ends_with("\n1 error, 0 warnings\n"), "{error}");
    let (code, text, _) = run(&server, &["migrate"], &[]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("# invalid: the service would start, not ready\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_is_told_and_is_no_reason_against_migration() {
    let server = AdsServer::new();
    let (code, text, error) = run(&server, &["explain", "--domain", "d", "a=b"], &[]).await;
    assert_eq!((code, text.as_str()), (Some(1), ""));
    let expected =
        format!("rules.xds.address: cannot get rules from xDS server {}: no connection: ", server.address());
    assert!(error.starts_with(&expected), "{error}");
    let (code, text, _) = run(&server, &["migrate"], &[]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("# not read: {expected}")), "{text}");
    let (code, text, _) = run(&server, &["migrate", "--settings-only"], &[]).await;
    assert_eq!(code, Some(0));
    assert!(!text.contains("xDS server"), "{text}");
}
