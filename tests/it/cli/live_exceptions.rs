//! `ratelimitctl exceptions`, `block`, `unblock` and `grant` against a service.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

use crate::support::grpc::{Code, Rls};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;

const RULES: &str = "
domain: shop
descriptors:
  - key: remote_address
    rate_limit: { unit: hour, requests_per_unit: 60, algorithm: gcra }
  - key: customer_id
    rate_limit: { name: monthly, unit: year, requests_per_unit: 2, algorithm: fixed_window }
";

/// A service, with the file of its operators' token.
struct OnCall {
    service: Ratelimitd,
    token: NamedTempFile,
}

impl OnCall {
    fn start(plan: Plan) -> Self {
        let token = NamedTempFile::new().expect("a temporary file");
        fs::write(token.path(), "operator").expect("room for a few bytes");
        let path = token.path().display().to_string();
        Self { service: plan.set("server.admin.operator_token_file", path).start(), token }
    }
}

fn run(OnCall { service, token }: &OnCall, line: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(line)
        .args(["--admin", &format!("127.0.0.1:{}", service.admin_port())])
        .arg("--token-file")
        .arg(token.path())
        .env("USER", "ann")
        .env("TZ", "Europe/Berlin")
        .output()
        .expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

fn done(on_call: &OnCall, line: &[&str]) -> String {
    let (code, text, error) = run(on_call, line);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{line:?}");
    text
}

async fn ask(rls: &mut Rls, key: &str, value: &str) -> Code {
    rls.send_one("shop", &[(key, value)]).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn people_on_call_block_unblock_and_grant() {
    let on_call = OnCall::start(Plan::new(RULES));
    let mut rls = Rls::connect(on_call.service.grpc_port()).await;
    let of_address = ["--domain", "shop", "remote_address=10.0.0.7"];
    let block = |more: &[&'static str]| [&["block", "--reason", "abuse"][..], &of_address, more].concat();

    let (code, _, error) = run(&on_call, &block(&[]));
    assert_eq!(
        (code, error.as_str()),
        (Some(1), "ratelimitctl block: say how long: --until 2h, or --permanent\n")
    );
    let text = done(&on_call, &block(&["--for", "2h"]));
    let expected = "in effect: shop remote_address=";
    assert!(text.starts_with(expected) && text.contains(": block until 2"), "{text}");
    assert!(
        text.contains(":00 (2") && text.contains("Z, in ") && text.contains("): abuse, by ann\n  id "),
        "{text}"
    );
    assert_eq!(ask(&mut rls, "remote_address", "10.0.0.7").await, Code::OverLimit);
    assert_eq!(ask(&mut rls, "remote_address", "10.0.0.8").await, Code::Ok);

    let text = done(&on_call, &block(&["--permanent", "--by", "bob"]));
    assert!(text.contains(": block, without an end: abuse, by bob\n  replaces: block until 2"), "{text}");

    let text = done(&on_call, &["exceptions", "list", "--domain", "shop"]);
    let (head, row) = text.split_once('\n').expect("two lines");
    assert!(head.starts_with("1 row of this process only; version "), "{head}");
    assert!(row.starts_with("shop remote_address=") && !row.contains("10.0.0.7"), "{row}");
    assert!(row.contains(": block, without an end: abuse, by bob [operator, "), "{row}");

    let unblock = [&["unblock", "--reason", "over"][..], &of_address].concat();
    let text = done(&on_call, &unblock);
    assert!(text.starts_with("removed: shop remote_address=") && text.lines().count() == 1, "{text}");
    assert_eq!(ask(&mut rls, "remote_address", "10.0.0.7").await, Code::Ok);
    let (code, _, error) = run(&on_call, &unblock);
    assert_eq!((code, error.as_str()), (Some(1), "ratelimitctl unblock: no row is for this\n"));

    let mut codes = Vec::new();
    for _ in 0..3 {
        codes.push(ask(&mut rls, "customer_id", "acme").await);
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);
    let grant =
        ["grant", "--domain", "shop", "--limit-name", "monthly", "--add", "1", "--reason", "ticket 12"];
    let text = done(&on_call, &[&grant[..], &["customer_id=acme"]].concat());
    assert!(text.contains(", only limit monthly: add 1 until 2"), "{text}");
    // The denial has not counted: the limit is prepaid.
    let (code, status) = rls.send_one("shop", &[("customer_id", "acme")]).await;
    let limit = status.current_limit.map(|limit| limit.requests_per_unit);
    assert_eq!((code, limit), (Code::Ok, Some(3)));
    for (domain, name, entry, reason) in [
        (
            "shop",
            "*",
            "remote_address=10.0.0.7",
            "no limit that the row applies to has the algorithm 'fixed_window', which 'add' needs",
        ),
        ("shop", "nope", "customer_id=acme", "no limit of the domain matches 'path' and 'limit_name'"),
        (
            "shop",
            "monthly",
            "custmer_id=acme",
            "no rule of the domain has the key 'custmer_id': the row changes nothing",
        ),
        ("shpo", "monthly", "customer_id=acme", "no domain of the rules matches 'domain'"),
    ] {
        let line = ["grant", "--domain", domain, "--limit-name", name, "--add", "1", "--reason", "r", entry];
        let (code, _, error) = run(&on_call, &line);
        let expected = format!("ratelimitctl grant: rows[0]: {reason}\n");
        assert_eq!((code, error), (Some(1), expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_exported_emptied_and_imported_again() {
    let mut redis = Redis::start();
    let on_call = OnCall::start(Plan::new(RULES).redis(&redis.url()));
    let set = |line: &[&'static str]| {
        let set = ["exceptions", "set", "--domain", "shop", "--reason", "INC-42"];
        run(&on_call, &[&set[..], line].concat())
    };
    assert_eq!(set(&["remote_address=10.0.0.0/8", "--block", "--permanent"]).0, Some(0));
    let acme = ["customer_id=acme", "--multiplier", "2", "--until", "1d", "--json"];
    let (_, answer, _) = set(&acme);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let version = answer["rows"][0]["version"].as_str().expect("a version").to_owned();
    let (code, _, error) = set(&[&acme[..], &["--if-version", "0"]].concat());
    assert_eq!(code, Some(1));
    assert!(error.contains(&format!("the row has changed: it has version {version} now")), "{error}");

    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("live.yaml");
    let exported = done(&on_call, &["exceptions", "export", "--reason", "backup"]);
    let ended =
        "- { domain: shop, key: customer_id, value: old, block: true, until: 2020-01-01T00:00:00Z }\n";
    fs::write(&file, exported.clone() + ended).expect("a file");
    let removed = done(&on_call, &["exceptions", "remove", "--all", "--reason", "move"]);
    assert_eq!(removed.lines().filter(|line| line.starts_with("removed: ")).count(), 2, "{removed}");
    assert!(done(&on_call, &["exceptions", "list"]).starts_with("0 rows in Redis, read "));

    let file = file.to_str().expect("UTF-8");
    let text = done(&on_call, &["exceptions", "import", file, "--reason", "back"]);
    assert_eq!(text, "2 rows set, 1 skipped because they have ended\n");
    let again = done(&on_call, &["exceptions", "export", "--reason", "check"]);
    let rows = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(rows(&again), rows(&exported));
    on_call.service.log_with("values of exceptions shown through the admin port");
    fs::write(file, "- { domain: shop, key: a, value: b, blok: true }\n").expect("a file");
    let (code, _, error) = run(&on_call, &["exceptions", "import", file, "--reason", "back"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("live.yaml:1: ") && error.contains("did you mean 'block'?"), "{error}");

    let id = answer["rows"][0]["id"].as_str().expect("an id").to_owned();
    let text = done(&on_call, &["exceptions", "remove", &id, "--reason", "over"]);
    assert!(text.starts_with("removed: shop customer_id="), "{text}");
    redis.stop();
    let (code, _, error) = set(&acme);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("the rows in Redis cannot be changed now: "), "{error}");
    let port = on_call.service.admin_port();
    drop(on_call);
    let gone = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(["exceptions", "list", "--admin", &format!("127.0.0.1:{port}")])
        .output()
        .expect("the binary runs");
    assert_eq!(gone.status.code(), Some(2));
}
