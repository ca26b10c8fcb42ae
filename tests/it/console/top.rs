//! `ratelimitctl top` with real services: once, as JSON, of several instances, and live on a terminal.

use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{RULES, ask, state_with, sum};
use crate::support::ports;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::terminal::OnTerminal;
use crate::support::wait;

const DENIED: [(&str, &str); 2] = [("tenant", "acme-corp"), ("path", "/search")];

/// A service whose tags are those of all services with this key.
fn plan() -> Plan {
    Plan::new(RULES).set("secrets.key", "k".repeat(32))
}

/// Denies this many requests of one tenant, and waits until the console has them.
fn deny(service: &Ratelimitd, count: u64) {
    let before = super::state(service);
    let before = sum(&before, "denied");
    let mut denied = 0;
    while denied < count {
        denied += u64::from(ask(service, "edge", &DENIED));
    }
    state_with(service, "the denials", |state| sum(state, "denied") == before + count);
}

fn admin(service: &Ratelimitd) -> String {
    format!("127.0.0.1:{}", service.admin_port())
}

fn command(admins: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"));
    command.arg("top");
    command.args(admins.iter().flat_map(|admin| ["--admin", admin]));
    command
}

fn run(admins: &[&str], arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        command(admins).args(arguments).output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn once_it_says_who_is_limited() {
    let service = plan().start();
    deny(&service, 12);
    // Standard output is no terminal, so it is the same without --once.
    for arguments in [&["--once"][..], &[]] {
        let (code, text, error) = run(&[&admin(&service)], arguments);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{text}");
        assert!(text.starts_with("ratelimitctl top  ") && text.contains("  ready  "), "{text}");
        assert!(text.contains("requests/s denied ("), "{text}");
        assert!(text.contains("100 % of the denials are by edge.tenant.path_/search"), "{text}");
        let row = text.lines().find(|line| line.starts_with("tenant=ac…#")).expect("a row of the key");
        assert!(row.contains(" path=/search  edge.tenant.path_/search "), "{row}");
        assert!(row.ends_with("≥ 12"), "{row}");
        assert!(!text.contains("acme-corp") && !text.contains('\x1b'), "{text}");
    }
}

#[test]
fn a_terminal_without_a_size_gets_the_text_too() {
    let service = Ratelimitd::start(RULES);
    let terminal = OnTerminal::start_with(command(&[&admin(&service)]).arg("--once"), 0);
    wait::expect("the text", || terminal.written().contains("this process only"));
}

#[test]
fn as_json_two_instances_are_added_up_and_a_dead_one_is_named() {
    let services = [plan().start(), plan().start()];
    deny(&services[0], 12);
    deny(&services[1], 30);
    let dead = format!("127.0.0.1:{}", ports::free());
    let [first, second] = [admin(&services[0]), admin(&services[1])];

    let (code, line, error) = run(&[&first, &second], &["--json"]);
    assert_eq!((code, error.as_str(), line.lines().count()), (Some(0), "", 1), "{line}");
    let view: Value = serde_json::from_str(&line).expect("JSON");
    let rule = &view["rules"][0];
    assert_eq!((&rule["rule"], &rule["denied_15m"]), (&json!("edge.tenant.path_/search"), &json!(42)));
    let keys = view["keys"].as_array().expect("a list");
    assert_eq!((keys.len(), &keys[0]["denied_15m"]), (1, &json!(42)), "the tags agree: {view}");
    assert_eq!(view["instances"].as_array().map(Vec::len), Some(2));

    let (code, line, error) = run(&[&first, &dead], &["--once", "--json"]);
    assert_eq!(code, Some(1), "{line}");
    assert!(error.starts_with(&format!("ratelimitctl top: {dead}: cannot connect to {dead}")), "{error}");
    let view: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(view["rules"][0]["denied_15m"], 12);
    assert_eq!(view["instances"][0]["error"], Value::Null);
    assert!(view["instances"][1]["error"].as_str().is_some_and(|error| error.contains("refused")), "{view}");

    let (code, text, _) = run(&[&first, &dead], &["--once"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("1 of 2 instances\n") && text.contains(&format!("■ {dead} does not answer: ")),
        "{text}"
    );

    let (code, text, error) = run(&[&dead], &["--once"]);
    assert_eq!((code, text.as_str()), (Some(2), ""), "{error}");
}

#[test]
fn without_secrets_key_the_keys_of_instances_stay_apart() {
    let services = [Ratelimitd::start(RULES), Ratelimitd::start(RULES)];
    services.iter().for_each(|service| deny(service, 3));
    let (_, line, _) = run(&[&admin(&services[0]), &admin(&services[1])], &["--json"]);
    let view: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(view["keys"].as_array().map(Vec::len), Some(2), "{view}");
    assert_eq!(view["rules"][0]["denied_15m"], 6);
}

#[test]
fn a_process_that_is_named_twice_is_counted_once() {
    let service = plan().start();
    deny(&service, 7);
    let named = [admin(&service), format!("localhost:{}", service.admin_port())];
    let (code, line, error) = run(&[&named[0], &named[1]], &["--json"]);
    assert_eq!(code, Some(0), "{error}");
    let view: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        (&view["rules"][0]["denied_15m"], &view["instances"][1]["same_as"]),
        (&json!(7), &json!(named[0]))
    );
}

#[test]
fn a_token_is_sent_and_other_ports_are_recognized() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), "s3cret\n").expect("room for a few bytes");
    let path = file.path().to_str().expect("UTF-8");
    let service = plan().set("server.admin.token_file", path).start();
    let (code, text, error) = run(&[&admin(&service)], &["--once", "--token-file", path]);
    assert_eq!(code, Some(0), "{error}");
    assert!(text.contains("No requests."), "{text}");
    let (code, _, error) = run(&[&admin(&service)], &["--once"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("needs the header Authorization: Bearer"), "{error}");
    let (code, _, error) = run(&[&format!("127.0.0.1:{}", service.http_port())], &["--once"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("it is not the admin port of ratelimitd"), "{error}");
}

#[test]
fn on_a_terminal_it_is_live_until_q() {
    let mut service = plan().start();
    deny(&service, 5);
    let mut top = OnTerminal::start(&mut command(&[&admin(&service)]));
    top.expect("edge.tenant.path_/search");
    top.expect("  ready  ");
    deny(&service, 20);
    top.expect("≥ 25");
    top.press("p");
    top.expect("PAUSED");
    deny(&service, 1);
    assert!(top.screen().contains("≥ 25"), "{}", top.screen());
    top.press("p");
    top.expect("≥ 26");
    top.press("/nothing");
    top.expect("filter: nothing_");
    top.expect("No rule to show.");
    // Esc ends the filter. A key that comes with it would be read as Alt and that key, so wait for the table.
    top.press("\x1b");
    top.expect("ASKED/S");
    top.press("\x1b[B");
    top.expect("> edge.tenant.path_/search");
    top.press("\r");
    top.expect("keys of edge.tenant.path_/search");

    service.kill();
    top.expect("does not answer");
    top.expect("≥ 26");
    service.restart();
    top.expect("is a new process");
    top.press("q");
    assert_eq!(top.wait_exit().code(), Some(0));
}

#[test]
fn a_signal_and_ctrl_c_leave_the_terminal_as_it_was() {
    let service = plan().start();
    let ended = |end: &dyn Fn(&mut OnTerminal)| {
        let mut top = OnTerminal::start(&mut command(&[&admin(&service)]));
        top.expect("q quit");
        end(&mut top);
        assert_eq!(top.wait_exit().code(), Some(0));
    };
    ended(&|top| top.terminate());
    ended(&|top| top.press("\x03"));
}

#[test]
fn changes_are_lines_until_the_reader_has_gone() {
    let service = plan().start();
    let script = format!(
        "{} top --json --follow --admin {} | head -n 3",
        env!("CARGO_BIN_EXE_ratelimitctl"),
        admin(&service)
    );
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash runs");
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let ends: Vec<_> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["end"].as_u64().expect("a time"))
        .collect();
    assert!(ends.len() == 3 && ends.is_sorted() && ends[0] < ends[2], "{ends:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
