//! The admin port with `server.admin.token_file`.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::NamedTempFile;

use crate::support::http::{self, Response, connect, exchange};
use crate::support::process::{Plan, Ratelimitd};

const RULES: &str = "
domain: web
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 3 } }]
";

const NO_TOKEN: &str = "a request to the admin port needs the header Authorization: Bearer, with the token \
                        of server.admin.token_file\n";

const WRONG_TOKEN: &str = "wrong token: it must be that of server.admin.token_file\n";

fn token_file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("room for a few bytes");
    file
}

fn plan(file: &Path) -> Plan {
    Plan::new(RULES).set("server.admin.token_file", file.to_string_lossy())
}

fn get(service: &Ratelimitd, authorization: &[&str]) -> Response {
    let mut lines = vec!["GET /rules HTTP/1.1".to_owned(), "host: localhost".to_owned()];
    lines.extend(authorization.iter().map(|value| format!("authorization: {value}")));
    exchange(connect(service.admin_port()).expect("a connection"), &lines, "").expect("an answer")
}

fn counters(service: &Ratelimitd, arguments: &[&str]) -> Output {
    let admin = format!("127.0.0.1:{}", service.admin_port());
    Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(["counters", "show", "--admin", &admin, "--domain", "web", "user=ann"])
        .args(arguments)
        .output()
        .expect("the binary runs")
}

#[test]
fn only_the_token_opens_the_admin_port() {
    let file = token_file("s3cret\n");
    let service = plan(file.path()).start();
    assert_eq!((get(&service, &[]).status, get(&service, &[]).body.as_str()), (401, NO_TOKEN));
    let refused: [&[&str]; 6] = [
        &["s3cret"],
        &["Basic s3cret"],
        &["Bearer wrong!"],
        &["Bearer s3cre"],
        &["Bearer s3cret1"],
        &["Bearer wrong!", "Bearer s3cret"],
    ];
    for authorization in refused {
        let answer = get(&service, authorization);
        assert_eq!((answer.status, answer.body.as_str()), (401, WRONG_TOKEN), "{authorization:?}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{authorization:?}");
    }
    assert_eq!(get(&service, &["Bearer s3cret"]).status, 200);
    assert_eq!(get(&service, &["bearer s3cret"]).status, 200);
    let page = ["GET /rules HTTP/1.1", "host: localhost", "origin: null", "authorization: Bearer s3cret"];
    let page = exchange(connect(service.admin_port()).expect("a connection"), &page, "");
    assert_eq!(page.expect("an answer").status, 403, "a token makes no page an operator");
    assert_eq!(
        http::get(service.http_port(), "/metrics", &[]).expect("an answer").status,
        200,
        "the HTTP port"
    );
    assert!(!service.log().contains("s3cret"), "{}", service.log());
}

#[test]
fn a_changed_token_file_takes_effect_at_once() {
    let file = token_file("first");
    let service = plan(file.path()).start();
    assert_eq!(get(&service, &["Bearer first"]).status, 200);
    std::fs::write(file.path(), "second").expect("a file");
    assert_eq!(get(&service, &["Bearer first"]).status, 401);
    assert_eq!(get(&service, &["Bearer second"]).status, 200);

    for broken in ["", "two words"] {
        std::fs::write(file.path(), broken).expect("a file");
        for authorization in [&[][..], &["Bearer second"], &["Bearer "]] {
            let answer = get(&service, authorization);
            let body = "cannot use the admin token file; all tokens are rejected\n";
            assert_eq!((answer.status, answer.body.as_str()), (503, body), "{broken:?} {authorization:?}");
        }
    }
    service.log_with("the first line must have 1 to 4096 visible ASCII");
    std::fs::write(file.path(), "third").expect("a file");
    assert_eq!(get(&service, &["Bearer third"]).status, 200, "without a restart");
}

#[test]
fn a_broken_token_file_is_told_once_a_minute() {
    let file = token_file("s3cret");
    let mut service = plan(file.path()).set("server.drain", "0s").start();
    let ask = || {
        for _ in 0..50 {
            assert_eq!(get(&service, &["Bearer s3cret"]).status, 503);
        }
    };
    std::fs::write(file.path(), "two words").expect("a file");
    ask();
    file.close().expect("the file is removed");
    ask();
    service.terminate();
    assert!(service.wait_exit().success());
    let log = service.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("admin token file")).collect();
    assert_eq!(lines.len(), 2, "a line for each problem: {lines:?}");
    assert!(lines[0].contains("the first line must") && lines[1].contains("No such file"), "{lines:?}");
}

#[test]
fn counters_presents_the_token_of_a_file() {
    let (file, wrong) = (token_file("s3cret"), token_file("guess"));
    let service = plan(file.path()).start();
    let path = |file: &NamedTempFile| file.path().to_str().expect("UTF-8").to_owned();

    let Output { status, stdout, stderr } = counters(&service, &["--token-file", &path(&file)]);
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    assert!(String::from_utf8_lossy(&stdout).contains("3 of 3 left"));

    let wrong = ["--token-file", &path(&wrong)];
    for (arguments, told) in [(&[][..], NO_TOKEN), (&wrong, WRONG_TOKEN)] {
        let Output { status, stderr, .. } = counters(&service, arguments);
        let printed = String::from_utf8_lossy(&stderr).into_owned();
        assert_eq!(
            (status.code(), printed),
            (Some(2), format!("ratelimitctl counters: {told}")),
            "{arguments:?}"
        );
    }
    let Output { status, stderr, .. } = counters(&service, &["--token-file", "/nowhere/token"]);
    let printed = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(2));
    assert!(printed.contains("--token-file /nowhere/token: No such file"), "{printed}");
}

#[test]
fn the_operators_token_opens_every_page_of_a_port_that_any_host_may_read() {
    let (operator, wrong) = (token_file("operator"), token_file("guess"));
    let path = |file: &NamedTempFile| file.path().display().to_string();
    let service = Plan::new(RULES)
        .set("server.admin.read_by_any_host", true)
        .set("server.admin.operator_token_file", path(&operator))
        .start();
    let admin = format!("http://127.0.0.1:{}", service.admin_port());
    let run = |line: &str, token: Option<&NamedTempFile>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"));
        command.args(line.split(' ')).args(["--admin", &admin]);
        command.args(token.map(|file| format!("--token-file={}", path(file))));
        let Output { status, stderr, .. } = command.output().expect("the binary runs");
        (status.code(), String::from_utf8(stderr).expect("UTF-8"))
    };
    for line in [
        "counters show --domain web user=ann",
        "explain --domain web user=ann",
        "usage now --domain web user=ann",
        "exceptions list",
        "counters reset --reason test --domain web user=ann",
        "block --reason test --for 2h --domain web user=bob",
    ] {
        assert_eq!(run(line, Some(&operator)), (Some(0), String::new()), "{line}");
        for (token, told) in [
            (None, "needs the header Authorization: Bearer, with the token of"),
            (Some(&wrong), "wrong token: it must be that of"),
        ] {
            let (code, error) = run(line, token);
            let told = format!("{told} server.admin.operator_token_file");
            assert!(code != Some(0) && error.contains(&told), "{line}: {code:?} {error}");
        }
    }
    assert_eq!(get(&service, &[]).status, 200, "a page that is only read");
}

#[test]
fn a_token_file_without_a_token_ends_the_process_with_the_reason() {
    let empty = token_file("\n");
    for (path, reason) in
        [(empty.path(), "the first line must"), (Path::new("/nowhere/token"), "No such file")]
    {
        let Err(problem) = plan(path).try_start() else { panic!("{} has no token", path.display()) };
        assert_eq!(problem.status.and_then(|status| status.code()), Some(1), "{problem:?}");
        let reason = format!("server.admin.token_file: {}: {reason}", path.display());
        assert!(problem.log.contains(&reason), "{problem:?}");
    }
    let off = plan(empty.path()).set("server.admin.address", "off").try_start();
    assert!(off.is_ok(), "no port needs the token");
}

#[test]
fn a_wrong_token_is_counted_and_logged_and_told_apart_from_a_missing_one() {
    let (viewer, operator) = (token_file("viewer"), token_file("operator"));
    let operator_path = operator.path().display().to_string();
    let service = plan(viewer.path()).set("server.admin.operator_token_file", operator_path).start();
    let reset = |token: &str| {
        let mut head =
            vec!["POST /counters/reset HTTP/1.1", "host: localhost", "content-type: application/json"];
        let authorization = format!("authorization: Bearer {token}");
        if !token.is_empty() {
            head.push(&authorization);
        }
        let answer = exchange(connect(service.admin_port()).expect("a connection"), &head, "{}");
        let answer = answer.expect("an answer");
        (answer.status, answer.body)
    };
    let told = |text: &str| format!("{text}\n");
    let setting = "server.admin.operator_token_file";
    let table = [
        (
            "",
            401,
            told(&format!("this action needs the header Authorization: Bearer, with the token of {setting}")),
        ),
        ("viewer", 403, told(&format!("this action needs the token of {setting}"))),
        ("guess", 401, told(&format!("wrong token: it must be that of {setting}"))),
    ];
    for (token, status, body) in table {
        assert_eq!(reset(token), (status, body), "{token}");
    }
    assert_eq!(get(&service, &["Bearer guess"]).status, 401);
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    for (reason, count) in [("missing", 1), ("wrong", 2), ("not_operator", 1), ("too_many_wrong", 0)] {
        let series = format!("ratelimitd_admin_refused_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&series), "{series}{metrics}");
    }
    let log = service.log_with("admin port rejected a wrong token");
    assert_eq!(log.matches("admin port rejected a wrong token").count(), 1, "once a minute: {log}");
    assert!(log.contains("client=127.0.0.1") && !log.contains("guess"), "{log}");
}
