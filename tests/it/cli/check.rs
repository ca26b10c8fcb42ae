//! `ratelimitctl check` against a running service: its text, its JSON, its exit codes.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::ports;
use crate::support::process::Ratelimitd;

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 2, name: per user } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: soft, rate_limit: { name: soft, unit: year, requests_per_unit: 1, on_over: announce } }
  - { key: worker, rate_limit: { unit: hour, requests_per_unit: 1, burst: 2, algorithm: leaky_bucket, mode: queue } }
  - { key: tenant, rate_limit: { unit: year, requests_per_unit: 10, algorithm: fixed_window, reserve: 5 } }
";

fn check(port: u16, arguments: &[&str]) -> (Option<i32>, String, String) {
    let address = format!("127.0.0.1:{port}");
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(["check", "--address", &address, "--timeout", "10s"])
        .args(if arguments.contains(&"--domain") { &[][..] } else { &["--domain", "shop"] })
        .args(arguments)
        .output()
        .expect("the binary runs");
    let utf8 = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), utf8(stdout), utf8(stderr))
}

#[test]
fn text_and_exit_code_report_the_answer() {
    let service = Ratelimitd::start(RULES);
    let port = service.grpc_port();
    let (code, text, _) = check(port, &["user=ann", "free=x", "other=y"]);
    assert_eq!(code, Some(0), "{text}");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "OK");
    assert!(lines[1].starts_with("  user=ann: OK, 1 of 2 per year left, resets in "), "{text}");
    // Such as `38d 2h 11m`.
    let (_, reset) = lines[1].split_once("resets in ").expect("a time");
    let reset = reset.strip_suffix(" (rule per user)").unwrap_or_else(|| panic!("no rule in {text}"));
    let is_part = |part: &str| {
        part.strip_suffix(['d', 'h', 'm', 's'])
            .is_some_and(|count| count.parse().is_ok_and(|count: u32| count < 367))
    };
    assert!(reset.split(' ').count() <= 3 && reset.split(' ').all(is_part), "{text}");
    assert_eq!(lines[2..], ["  free=x: OK, unlimited", "  other=y: OK, no limit applies"]);

    let (code, text, _) = check(port, &["--peek", "--count", "2", "user=ann"]);
    assert_eq!((code, text.lines().last()), (Some(0), Some("2 OK, 0 over limit")), "a peek charges nothing");
    let (code, text, _) = check(port, &["--count", "2", "user=ann"]);
    assert_eq!((code, text.lines().last()), (Some(1), Some("1 OK, 1 over limit")));
    assert!(text.contains("user=ann: OVER LIMIT, 0 of 2 per year left"), "{text}");
    assert_eq!(check(port, &["--hits", "3", "user=bob"]).0, Some(1));
}

#[test]
fn a_reserve_is_tried_with_a_peek_and_the_units_of_its_charge() {
    let service = Ratelimitd::start(RULES);
    for (arguments, left) in [(["--peek", "--count=1"], 5), (["--hits", "7"], 3), (["--count", "1"], 2)] {
        let (code, text, _) = check(service.grpc_port(), &[&arguments[..], &["tenant=acme"]].concat());
        let left = format!("tenant=acme: OK, {left} of 10 per year left");
        assert!(code == Some(0) && text.contains(&left), "{arguments:?}: {text}");
    }
}

#[test]
fn an_announced_limit_is_printed_with_its_header_for_the_upstream() {
    let service = Ratelimitd::start(RULES);
    let (code, text, _) = check(service.grpc_port(), &["--hits", "2", "soft=x"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.lines().last(), Some("  to the upstream: x-ratelimit-announce: soft;over"));
    let (_, line, _) = check(service.grpc_port(), &["--json", "soft=x"]);
    let answer: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        answer["request_headers_to_add"],
        json!([{"key": "x-ratelimit-announce", "value": "soft;over"}])
    );
    assert_eq!(answer["dynamic_metadata"], json!({"announce": {"soft": "over"}}));
}

#[test]
fn json_output_has_one_line_per_answer() {
    let service = Ratelimitd::start(RULES);
    let (code, lines, _) = check(service.grpc_port(), &["--json", "--count", "3", "user=ann", "other=y"]);
    assert_eq!(code, Some(1));
    let answers: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let codes: Vec<_> = answers.iter().map(|answer| &answer["overall_code"]).collect();
    assert_eq!(codes, [&json!("OK"), &json!("OK"), &json!("OVER_LIMIT")]);
    let limit = json!({"requests_per_unit": 2, "unit": "year", "unit_multiplier": 1, "name": "per user", "remaining": 1});
    assert_eq!(answers[0]["statuses"][0]["current_limit"], limit);
    assert_eq!(answers[1]["statuses"][0]["current_limit"]["remaining"], 0, "zeros are present");
    assert_eq!(answers[0]["statuses"][1]["current_limit"], Value::Null);
}

#[test]
fn no_answer_and_invalid_arguments_exit_with_code_2() {
    let unused = ports::free();
    let (code, out, error) = check(unused, &["user=ann"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(error.contains("cannot connect") && error.contains("refused"), "{error}");

    let service = Ratelimitd::start(RULES);
    let long = format!("user={}", "x".repeat(70_000));
    let (code, _, error) = check(service.grpc_port(), &[&long]);
    assert_eq!(code, Some(2));
    assert!(error.contains("InvalidArgument: descriptor 0"), "{error}");

    for arguments in [&["=v"][..], &[], &["--count", "0", "a=b"], &["--peek", "--hits", "2", "a=b"]] {
        assert_eq!(check(service.grpc_port(), arguments).0, Some(2), "{arguments:?}");
    }
}

#[test]
fn the_delay_of_a_queue_is_printed() {
    let service = Ratelimitd::start(RULES);
    let port = service.grpc_port();
    let (code, text, _) = check(port, &["worker=a"]);
    assert_eq!((code, text.lines().next()), (Some(0), Some("OK, wait 0s")));
    let (_, text, _) = check(port, &["worker=a"]);
    let first = text.lines().next().expect("a line");
    let is_an_hour = |wait: &str| wait == "1h" || wait.starts_with("59m") || wait.starts_with("58m");
    assert!(first.strip_prefix("OK, wait ").is_some_and(is_an_hour), "{first}");
    let (code, text, _) = check(port, &["worker=a"]);
    assert_eq!((code, text.lines().next()), (Some(1), Some("OVER LIMIT")));

    let (_, line, _) = check(port, &["--json", "worker=b"]);
    let answer: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(answer["dynamic_metadata"], json!({"delay_ms": 0}));
    let (_, line, _) = check(port, &["--json", "user=b"]);
    assert!(line.contains(r#""dynamic_metadata":null"#), "{line}");
}

#[test]
fn limits_and_refunds_can_be_sent() {
    let service = Ratelimitd::start(RULES);
    let port = service.grpc_port();
    let (code, text, _) = check(port, &["--limit", "3/15minute", "any=x"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("any=x: OK, 2 of 3 per 15 minutes left"), "{text}");
    let (_, text, error) = check(port, &["--limit", "5/week", "any=x"]);
    assert!(text.contains("any=x: OK, 4 of 5 per 7 days left"), "{text}{error}");
    let (_, text, _) = check(port, &["--hits", "2", "user=ann"]);
    assert!(text.contains("user=ann: OK, 0 of 2 per year left"), "{text}");
    let (code, text, _) = check(port, &["--hits", "2", "--refund", "user=ann"]);
    assert_eq!(code, Some(0), "{text}");
    let (_, text, _) = check(port, &["--peek", "user=ann"]);
    assert!(text.contains("user=ann: OK, 2 of 2 per year left"), "{text}");
    for arguments in [&["--limit", "5", "a=b"][..], &["--peek", "--refund", "a=b"]] {
        assert_eq!(check(port, arguments).0, Some(2), "{arguments:?}");
    }
}

/// A port on which a server sends a greeting to each caller, and reads what it sends for a while.
fn greeting_port(greeting: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut caller in listener.incoming().flatten() {
            // The caller may have left already.
            let _ = caller.write_all(greeting);
            let _ = caller.read(&mut [0; 4_096]);
        }
    });
    port
}

#[test]
fn a_port_that_is_not_grpc_is_named() {
    let service = Ratelimitd::start(RULES);
    let ports = [
        ("HTTP", service.http_port()),
        ("admin", service.admin_port()),
        ("SSH", greeting_port(b"SSH-2.0-OpenSSH_9.6\r\n")),
        (
            "Redis",
            greeting_port(b"-ERR unknown command 'PRI', with args beginning with: '*' 'HTTP/2.0' \r\n"),
        ),
        // It speaks HTTP/2, and resets the first stream.
        ("HTTP/2", greeting_port(b"\0\0\0\x04\0\0\0\0\0\0\0\x04\x03\0\0\0\0\x01\0\0\0\x01")),
        ("nothing", greeting_port(b"")),
    ];
    for (name, port) in ports {
        let (code, _, error) = check(port, &["user=ann"]);
        assert_eq!(code, Some(2), "{name}");
        let is_named = error.contains("does not answer with gRPC") && error.contains("server.grpc.address");
        assert!(is_named, "{name}: {error}");
    }
}

#[test]
fn a_descriptor_without_a_value_is_refused_and_takes_nothing() {
    let service = Ratelimitd::start(RULES);
    let (code, text, error) = check(service.grpc_port(), &["user"]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    let reason = "'user' has no value; write user=VALUE, or user= for an empty value";
    assert!(error.contains(reason), "{error}");
    let (_, text, _) = check(service.grpc_port(), &["--peek", "user="]);
    assert!(text.contains("user=: OK, 2 of 2 per year left"), "{text}");
}

#[test]
fn an_unknown_domain_is_named_on_standard_error() {
    let service = Ratelimitd::start(RULES);
    let port = service.grpc_port();
    for arguments in
        [&["user=ann"][..], &["--json", "user=ann"], &["--count", "3", "--limit", "5/minute", "user=ann"]]
    {
        let (code, _, error) = check(port, &[&["--domain", "typo"], arguments].concat());
        let expected = "ratelimitctl check: no rule file has the domain \"typo\", so no limit applies\n";
        assert_eq!((code, error.as_str()), (Some(0), expected), "{arguments:?}");
    }
    // In the domain `shop`: no limit for the descriptor, an unlimited one, a used one.
    for arguments in [["other=y"], ["free=x"], ["user=ann"]] {
        let (code, _, error) = check(port, &[&["--domain", "shop"][..], &arguments].concat());
        assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}");
    }
    let (_, text, _) = check(port, &["--domain", "shop", "--peek", "user=ann"]);
    assert!(text.contains("1 of 2 per year left"), "the question takes no units: {text}");
}
