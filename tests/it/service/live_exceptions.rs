//! Exceptions that are set while the service runs: at one instance and at two with one Redis, which is stopped, emptied
//! and cut off.

use std::thread;

use redis::RedisResult;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::support::grpc::{Code, Rls};
use crate::support::http::{self, Response, connect, exchange};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::redis::proxy::Proxy;
use crate::support::wait;

const RULES: &str = "
domain: shop
descriptors:
  - key: tenant
    rate_limit: { unit: year, requests_per_unit: 6000, algorithm: fixed_window, name: calls }
  - key: token
    secret: true
    rate_limit: { unit: year, requests_per_unit: 6000, algorithm: gcra }
";

const HASH_KEY: &str = "0123456789abcdef0123456789abcdef";

fn plan() -> Plan {
    Plan::new(RULES).set("secrets.key", HASH_KEY)
}

fn send(service: &Ratelimitd, path: &str, body: &Value, token: &str) -> Response {
    let lines = [
        format!("POST {path} HTTP/1.1"),
        "host: localhost".to_owned(),
        "content-type: application/json".to_owned(),
        format!("authorization: Bearer {token}"),
    ];
    let lines = if token.is_empty() { &lines[..3] } else { &lines[..] };
    exchange(connect(service.admin_port()).expect("a connection"), lines, &body.to_string())
        .expect("an answer")
}

/// The answer to a call that succeeds.
fn call(service: &Ratelimitd, path: &str, body: &Value) -> Value {
    let answer = send(service, path, body, "");
    assert_eq!(answer.status, 200, "{path} {body}: {}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

fn row(value: &str, more: &Value) -> Value {
    let mut row = json!({"domain": "shop", "key": "tenant", "value": value});
    row.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    row
}

/// Sets one row, and returns it.
fn set(service: &Ratelimitd, row: &Value) -> Value {
    let answer = call(service, "/exceptions/set", &json!({"reason": "INC-42", "by": "ann", "rows": [row]}));
    answer["rows"][0].clone()
}

fn refused(service: &Ratelimitd, row: &Value) -> (u16, String) {
    let body = json!({"reason": "INC-42", "rows": [row]});
    let answer = send(service, "/exceptions/set", &body, "");
    (answer.status, answer.body)
}

fn list(service: &Ratelimitd) -> Value {
    call(service, "/exceptions/list", &json!({"ended": true}))
}

/// The code of a request of a tenant, and its limit.
async fn ask(rls: &mut Rls, tenant: &str) -> (Code, Option<u32>) {
    let (code, status) = rls.send_one("shop", &[("tenant", tenant)]).await;
    (code, status.current_limit.map(|limit| limit.requests_per_unit))
}

/// Waits until requests of a tenant have this answer.
async fn expect(rls: &mut Rls, tenant: &str, answer: (Code, Option<u32>)) {
    let asked =
        wait::until_async(wait::PATIENCE, async || (ask(rls, tenant).await == answer).then_some(())).await;
    if asked.is_none() {
        panic!("{tenant}: {:?} instead of {answer:?}", ask(rls, tenant).await);
    }
}

fn metric(service: &Ratelimitd, name: &str) -> Option<String> {
    let page = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned))
}

#[tokio::test]
async fn a_row_is_in_effect_at_once_here_and_within_a_poll_elsewhere() {
    let redis = Redis::start();
    let [a, b] = [(); 2].map(|()| plan().redis(&redis.url()).start());
    let (mut at_a, mut at_b) = (Rls::connect(a.grpc_port()).await, Rls::connect(b.grpc_port()).await);
    b.log_with("exceptions in Redis are known");
    let first = set(&a, &row("acme", &json!({"multiplier": "2", "until": "2h"})));
    assert_eq!(ask(&mut at_a, "acme").await, (Code::Ok, Some(12000)));
    assert_eq!((&first["in_force"], &first["before"]), (&json!(true), &Value::Null));
    assert!(!first.to_string().contains("acme"), "{first}");
    expect(&mut at_b, "acme", (Code::Ok, Some(12000))).await;
    b.log_with("exceptions changed by another instance added=1 changed=0 removed=0");

    let second = set(&b, &row("acme", &json!({"limit": 5000})));
    assert_eq!((&second["before"]["multiplier"], &second["id"]), (&json!("2"), &first["id"]));
    assert_eq!(ask(&mut at_b, "acme").await, (Code::Ok, Some(5000)));
    let stale = row("acme", &json!({"limit": 4000, "if_version": first["version"]}));
    let (status, told) = refused(&a, &stale);
    let version = second["version"].as_str().expect("text");
    assert_eq!(status, 409);
    assert!(
        told.starts_with(&format!("rows[0]: the row has changed: it has version {version} now\n{{")),
        "{told}"
    );
    assert!(!told.contains("acme"), "{told}");
    assert_eq!(ask(&mut at_a, "acme").await, (Code::Ok, Some(5000)), "a change reads Redis first");

    thread::scope(|scope| {
        for (service, limit) in [(&a, 4100), (&b, 4200)] {
            scope.spawn(move || set(service, &row("acme", &json!({"limit": limit}))));
        }
    });
    let page = |service: &Ratelimitd| list(service)["rows"].clone();
    wait::expect("equal tables", || page(&a) == page(&b));
    assert_eq!(ask(&mut at_a, "acme").await, ask(&mut at_b, "acme").await);

    let blocked = set(&a, &row("acme", &json!({"block": true, "until": "2s"})));
    assert_eq!(blocked["row"]["reason"], "INC-42");
    assert_eq!(ask(&mut at_a, "acme").await.0, Code::OverLimit);
    expect(&mut at_a, "acme", (Code::Ok, Some(6000))).await;
    assert_eq!(page(&a)[0]["state"], "ended");
    let without_ended = call(&a, "/exceptions/list", &json!({}));
    assert_eq!((&without_ended["rows"], &without_ended["source"]), (&json!([]), &json!("redis")));

    let body = json!({"reason": "INC-42 is over", "rows": [row("acme", &json!({}))]});
    let removed = call(&b, "/exceptions/remove", &body);
    assert_eq!(removed["removed"][0]["id"], first["id"]);
    let again = send(&b, "/exceptions/remove", &body, "");
    assert_eq!((again.status, again.body.as_str()), (404, "no row is for this\n"));
    assert_eq!(
        metric(&a, r#"ratelimitd_exception_writes_total{op="set",result="refused"}"#).as_deref(),
        Some("1")
    );
    let age = metric(&a, r#"ratelimitd_exceptions_age_seconds{source="live"}"#).expect("an age");
    assert!(age.parse::<u64>().is_ok_and(|age| age < 30), "{age}");
    let log = a.log_with("exception set through the admin port");
    assert!(log.contains("setting exceptions through the admin port") && !log.contains("acme"), "{log}");
}

#[tokio::test]
async fn rows_stay_without_redis_and_come_back_to_an_empty_one() {
    let mut redis = Redis::start();
    let [a, b] = [(); 2].map(|()| plan().redis(&redis.url()).start());
    let (mut at_a, mut at_b) = (Rls::connect(a.grpc_port()).await, Rls::connect(b.grpc_port()).await);
    let kept = set(&a, &row("evil", &json!({"block": true})));
    expect(&mut at_b, "evil", (Code::OverLimit, Some(0))).await;
    redis.stop();
    assert_eq!(ask(&mut at_a, "evil").await.0, Code::OverLimit);
    let (status, told) = refused(&a, &row("evil", &json!({"limit": 5})));
    assert_eq!(status, 503, "{told}");
    assert!(told.starts_with("the rows in Redis cannot be changed now: "), "{told}");
    let body = json!({"reason": "x", "ids": [kept["id"]]});
    assert_eq!(send(&a, "/exceptions/remove", &body, "").status, 503);
    let page = list(&a);
    assert_eq!(page["rows"][0]["version"], kept["version"]);
    wait::expect("an age", || list(&a)["age_s"].as_f64().is_some_and(|age| age > 0.0));
    assert_eq!([ask(&mut at_a, "evil").await.0, ask(&mut at_b, "evil").await.0], [Code::OverLimit; 2]);

    redis.restart();
    let id = kept["id"].as_str().expect("text");
    let stored = || {
        let keys: RedisResult<Vec<String>> = redis.run(&["KEYS", "*{exceptions}:rows"]);
        let row: RedisResult<String> = redis.run(&["HGET", keys.ok()?.first()?, id]);
        row.ok()
    };
    let stored = wait::until(wait::PATIENCE, stored).expect("the row is restored");
    assert!(stored.starts_with(kept["version"].as_str().expect("text")), "{stored}");
    wait::expect("equal tables", || list(&a)["rows"] == list(&b)["rows"]);
    let restored = |service| metric(service, "ratelimitd_exception_restores_total").unwrap_or_default();
    assert!(restored(&a) != "0" || restored(&b) != "0");

    // A process that starts has the rows of Redis.
    let c = plan().redis(&redis.url()).start();
    let mut at_c = Rls::connect(c.grpc_port()).await;
    expect(&mut at_c, "evil", (Code::OverLimit, Some(0))).await;
}

#[tokio::test]
async fn a_removal_wins_over_an_instance_that_missed_it() {
    let mut redis = Redis::start();
    let proxies = [(); 2].map(|()| Proxy::start(redis.address()));
    let [a, b] =
        proxies.each_ref().map(|proxy| plan().redis(&format!("redis://{}/", proxy.address())).start());
    let (mut at_a, mut at_b) = (Rls::connect(a.grpc_port()).await, Rls::connect(b.grpc_port()).await);
    let blocked = set(&a, &row("evil", &json!({"block": true})));
    expect(&mut at_b, "evil", (Code::OverLimit, Some(0))).await;
    let cut_off = |proxy: &Proxy| {
        proxy.refuse();
        proxy.cut();
    };
    cut_off(&proxies[1]);
    call(&a, "/exceptions/remove", &json!({"reason": "over", "ids": [blocked["id"]]}));
    cut_off(&proxies[0]);
    redis.restart();
    proxies[1].restore();
    b.log_with("Redis has lost rows of exceptions; restored them");
    proxies[0].restore();
    expect(&mut at_b, "evil", (Code::Ok, Some(6000))).await;
    expect(&mut at_a, "evil", (Code::Ok, Some(6000))).await;
    wait::expect("no row", || list(&a)["rows"] == json!([]) && list(&b)["rows"] == json!([]));
}

#[tokio::test]
async fn the_value_of_a_secret_key_does_not_leave_the_process() {
    let redis = Redis::start();
    let service = plan().redis(&redis.url()).start();
    let secret = json!({"domain": "shop", "key": "token", "value": "s3cret-token", "block": true});
    let shown = set(&service, &secret);
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(rls.send_one("shop", &[("token", "s3cret-token")]).await.0, Code::OverLimit);
    assert_eq!(rls.send_one("shop", &[("token", "another")]).await.0, Code::Ok);
    let keys: Vec<String> = redis.run(&["KEYS", "*{exceptions}:rows"]).expect("KEYS");
    let stored: Vec<String> = redis.run(&["HVALS", &keys[0]]).expect("HVALS");
    assert!(stored.concat().contains("%k") && !stored.concat().contains("s3cret"), "{stored:?}");
    assert!(shown["row"]["value"].as_str().is_some_and(|value| value.starts_with("%k")), "{shown}");
    assert!(!service.log().contains("s3cret"));
    let every_domain = json!({"domain": "*", "key": "token", "value": "s3cret-token", "block": true});
    let told = "rows[0]: values of 'token' are secret, and hashed per domain: name one domain\n";
    assert_eq!(refused(&service, &every_domain), (400, told.to_owned()));
    set(&service, &row("acme", &json!({"limit": 5})));
    let marked = RULES.replace("  - key: tenant\n", "  - key: tenant\n    secret: true\n");
    std::fs::write(service.rules().join("rules.yaml"), marked).expect("a rule file");
    service.log_with(
        "exceptions have values of a secret key in clear; remove and set them key=\"tenant\" rows=1",
    );
    let body =
        json!({"reason": "over", "rows": [{"domain": "shop", "key": "token", "value": "s3cret-token"}]});
    call(&service, "/exceptions/remove", &body);
    assert_eq!(rls.send_one("shop", &[("token", "s3cret-token")]).await.0, Code::Ok);
    // A row from before the key was secret is found by its value.
    call(&service, "/exceptions/remove", &json!({"reason": "over", "rows": [row("acme", &json!({}))]}));
    assert_eq!(ask(&mut rls, "acme").await.1, Some(6000));
}

#[tokio::test]
async fn rows_of_one_process_have_the_same_rules() {
    let folder = tempfile::tempdir().expect("a folder");
    let blocks = "- { domain: '*', key: tenant, value: evil, block: true }\n";
    std::fs::write(folder.path().join("blocks.yaml"), blocks).expect("a file");
    let service = plan().set("exceptions.path", folder.path().display().to_string()).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let exempt = set(&service, &row("evil", &json!({"exempt": true})));
    let warning = exempt["warnings"][0].as_str().expect("a warning");
    assert!(
        warning.starts_with("a row of ") && warning.ends_with("blocks.yaml:1 blocks this value"),
        "{warning}"
    );
    assert_eq!(ask(&mut rls, "evil").await.0, Code::OverLimit);

    let two = json!({"reason": "x", "rows": [
        row("one", &json!({"limit": 5})), row("two", &json!({"block": true, "exempt": true})),
    ]});
    let answer = send(&service, "/exceptions/set", &two, "");
    assert_eq!((answer.status, answer.body.as_str()), (400, "rows[1]: set 'block' or 'exempt', not both\n"));
    assert_eq!(ask(&mut rls, "one").await, (Code::Ok, Some(6000)), "nothing was written");
    for (body, status, text) in [
        (
            json!({"rows": [row("one", &json!({"limit": 5}))]}),
            400,
            "a change needs a reason of 1 to 200 characters",
        ),
        (json!({"reason": "x", "rows": []}), 400, "a call needs 1 to 1000 rows"),
        (
            json!({"reason": "x", "rows": vec![row("one", &json!({"limit": 5})); 1_001]}),
            400,
            "a call needs 1 to 1000",
        ),
        (
            json!({"reason": "x", "rows": vec![row("one", &json!({"limit": 5})); 2]}),
            400,
            "rows[1]: an earlier row is",
        ),
        (
            json!({"reason": "x", "rows": [row("one", &json!({"limit": 5, "if_version": 0}))]}),
            400,
            "rows[0]: 'if_version'",
        ),
        (json!({"reason": "x", "row": []}), 400, "the body is not as expected: unknown field `row`"),
        (json!({"reason": "x", "rows": ["y".repeat(4 << 20)]}), 413, ""),
        (
            json!({"reason": "x", "rows": [{"domain": "shop", "key": "token", "value": "x", "add": 5}]}),
            400,
            "rows[0]: no limit that the row applies to has the algorithm 'fixed_window', which 'add' needs",
        ),
    ] {
        let answer = send(&service, "/exceptions/set", &body, "");
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.body.contains(text), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_grant_stands_beside_a_multiplier() {
    let service = plan().start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let granted = set(&service, &row("one", &json!({"add": 500})));
    assert!(granted["row"]["until"].as_str().is_some_and(|until| until.ends_with("T00:00:00Z")), "{granted}");
    assert_eq!(ask(&mut rls, "one").await, (Code::Ok, Some(6500)));
    set(&service, &row("one", &json!({"multiplier": "2"})));
    assert_eq!(ask(&mut rls, "one").await, (Code::Ok, Some(12500)), "it does not replace the grant");
    let page = list(&service);
    assert_eq!((&page["source"], &page["rows"][0]["state"]), (&json!("process"), &json!("in_force")));
    assert!(!page.to_string().contains("\"one\""), "{page}");
    let live = || {
        let page = http::get(service.admin_port(), "/exceptions", &[]).expect("an answer").body;
        serde_json::from_str::<Value>(&page).expect("JSON")["live"].clone()
    };
    let kinds = json!({"add": 1, "multiplier": 1});
    wait::expect("the counts", || live()["kinds"] == kinds);
    assert_eq!(live()["origins"], json!({"grant": 1, "operator": 1}));
    let gauge = r#"ratelimitd_exceptions{kind="add",source="live"}"#;
    wait::expect("the gauge follows", || metric(&service, gauge).as_deref() == Some("1"));
    let past = row("one", &json!({"add": 5, "from": "2020-01-01T00:00:00Z"}));
    assert_eq!(refused(&service, &past), (400, "rows[0]: the end is in the past\n".to_owned()));
    let body = json!({"reason": "over", "rows": [row("one", &json!({"path": "tenant"}))]});
    let answer = send(&service, "/exceptions/remove", &body, "");
    assert_eq!((answer.status, answer.body.contains("rows[0]: 'path' does not select rows")), (400, true));
    let body = json!({"reason": "over", "ids": [granted["id"]]});
    assert_eq!(call(&service, "/exceptions/remove", &body)["removed"].as_array().map(Vec::len), Some(1));
    assert_eq!(ask(&mut rls, "one").await, (Code::Ok, Some(12000)));
}

#[tokio::test]
async fn values_and_changes_need_their_tokens() {
    let token_file = |text: &str| {
        let file = NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("room for a few bytes");
        file
    };
    let (viewer, operator) = (token_file("viewer"), token_file("operator"));
    let service = plan()
        .set("server.admin.token_file", viewer.path().to_string_lossy())
        .set("server.admin.operator_token_file", operator.path().to_string_lossy())
        .start();
    let set = json!({"reason": "INC-42", "rows": [row("acme", &json!({"limit": 5, "reason": "own", "by": "bob"}))]});
    let set_answer = send(&service, "/exceptions/set", &set, "operator");
    let set_answer: Value = serde_json::from_str(&set_answer.body).expect("JSON");
    assert_eq!(set_answer["rows"][0]["row"]["reason"], "own");
    let ids = json!({"reason": "x", "ids": [set_answer["rows"][0]["id"]]});
    let reason = json!({"reason": "x"});
    let paths = [("set", &set), ("remove", &ids), ("export", &reason)];
    let needs = "this action needs the token of server.admin.operator_token_file\n";
    for (path, body) in paths {
        let path = format!("/exceptions/{path}");
        let answer = send(&service, &path, body, "viewer");
        assert_eq!((answer.status, answer.body.as_str()), (403, needs), "{path}");
        assert_eq!(send(&service, &path, body, "").status, 401, "{path}");
    }
    assert_eq!(send(&service, "/exceptions/list", &json!({}), "viewer").status, 200);
    assert_eq!(send(&service, "/exceptions/export", &json!({}), "operator").status, 400, "no reason");
    let file = send(&service, "/exceptions/export", &reason, "operator");
    let expected = r#"- {"by":"bob","domain":"shop","key":"tenant","limit":5,"reason":"own","value":"acme"}"#;
    assert_eq!(file.body, format!("{expected}\n"));
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("live.yaml"), file.body).expect("a file");
    let again = plan().set("exceptions.path", folder.path().display().to_string()).start();
    let mut rls = Rls::connect(again.grpc_port()).await;
    assert_eq!(ask(&mut rls, "acme").await, (Code::Ok, Some(5)));
    let log = service.log_with("values of exceptions shown through the admin port");
    assert!(!log.contains("acme"), "{log}");
}

#[tokio::test]
async fn the_key_of_a_row_of_the_console_gets_an_exception_without_its_value() {
    let service = plan().start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    set(&service, &row("acme-corp", &json!({"limit": 1})));
    for _ in 0..2 {
        ask(&mut rls, "acme-corp").await;
    }
    let state = || {
        let page = http::get(service.admin_port(), "/console/state", &[]).expect("an answer").body;
        serde_json::from_str::<Value>(&page).expect("JSON")
    };
    let id = wait::until(wait::PATIENCE, || state()["keys"][0]["id"].as_str().map(str::to_owned));
    let id = id.expect("a denied key");
    let body = json!({"id": id, "effect": {"multiplier": "2"}, "until": "2h", "reason": "INC-42"});
    let answer = call(&service, "/console/except", &body);
    assert_eq!(answer["rows"][0]["before"]["limit"], 1);
    assert!(!answer.to_string().contains("acme-corp"), "{answer}");
    assert_eq!(ask(&mut rls, "acme-corp").await, (Code::Ok, Some(12000)));
    for (change, status, text) in [
        (json!({"id": "000000000000"}), 404, "no row has the id"),
        (json!({"entry": 7}), 409, "the value of this entry is not known"),
        (json!({"reason": ""}), 400, "a change needs a reason"),
        (json!({"effect": {"blok": true}}), 400, "rows[0]: unknown column 'blok'"),
        (json!({"effect": null}), 400, "expected a map"),
        (json!({"effect": {}}), 400, "the row changes nothing"),
        (json!({"entry": "0"}), 400, "expected usize"),
        (json!({"untill": "2h"}), 400, "unknown field `untill`"),
    ] {
        let mut body = body.clone();
        body.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
        let answer = send(&service, "/console/except", &body, "");
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.body.contains(text), "{}", answer.body);
    }
}

#[test]
fn rows_are_refused_if_each_process_would_have_its_own() {
    let redis = Redis::start();
    let service = plan().redis(&redis.url()).set("exceptions.redis", false).start();
    let told = "exceptions.redis is off: the row would be in force in one process only\n";
    assert_eq!(refused(&service, &row("acme", &json!({"limit": 5}))), (409, told.to_owned()));
    assert_eq!(list(&service)["source"], Value::Null);
}

/// A row costs the space of its value, its id and a few words: what it says is shared with other rows.
#[test]
fn a_row_takes_less_than_800_bytes_where_it_is_set_and_where_it_is_read() {
    const ROWS: usize = 25_000;
    const MOST_KIB: u64 = 20_000_000 / 1_024;
    let redis = Redis::start();
    let services = [(); 2].map(|()| plan().redis(&redis.url()).start());
    let [a, b] = &services;
    for service in &services {
        service.log_with("exceptions in Redis are known");
    }
    let before = services.each_ref().map(Ratelimitd::peak_memory_kib);
    for page in 0..ROWS / 250 {
        let rows = (250 * page..250 * (page + 1)).map(|n| {
            let limit = [10, 100, 1_000, 5_000][n % 4];
            row(&format!("customer-{n:08}"), &json!({"limit": limit, "until": format!("{}m", 60 + n)}))
        });
        let body =
            json!({"reason": "back from Git, ticket 4711", "by": "ann", "rows": rows.collect::<Vec<_>>()});
        let answer = send(a, "/exceptions/set", &body, "");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    wait::expect("all rows at the other instance", || {
        metric(b, "ratelimitd_exceptions{kind=\"limit\",source=\"live\"}").as_deref() == Some("25000")
    });
    let after = services.each_ref().map(Ratelimitd::peak_memory_kib);
    for (before, after) in before.into_iter().zip(after) {
        assert!(after - before < MOST_KIB, "{before} KiB, then {after} KiB");
    }
}
