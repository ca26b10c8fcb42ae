//! The file of the map: mistakes end the start, and changes apply while the process runs.

use std::path::Path;
use std::process::Command;

use map::{Map, ValueFault};

use super::{Checked, RULES};
use crate::support::process::Plan;
use crate::support::wait;

const PER_CLIENT: &str = "domain: edge\ndescriptors:\n  - - { key: client, from: remote_addr }\n";
const CLIENT: [(&str, &str); 2] = [("x-forwarded-for", "192.0.2.1"), ("x-key", "k")];

#[test]
fn a_map_that_cannot_be_used_ends_the_start_with_file_line_and_reason() {
    let folder = tempfile::TempDir::new().expect("a temporary directory");
    let file = folder.path().join("map.yaml");
    let name = file.display().to_string();
    let table = [
        (None, format!("server.http.check.map: {name}:1: No such file or directory")),
        (Some("domain: edge\n"), format!("server.http.check.map: {name}:1: 'descriptors' is missing")),
        (
            Some("domain: edge\ndescriptors:\n  - - { key: client, from: code }\n"),
            format!("server.http.check.map: {name}:3: a request has no field 'code' before it is answered"),
        ),
    ];
    for (text, expected) in table {
        if let Some(text) = text {
            std::fs::write(&file, text).expect("room for the map");
        }
        let Err(problem) = Plan::new(RULES).set("server.http.check.map", name.as_str()).try_start() else {
            panic!("{expected}");
        };
        assert_eq!(problem.status.and_then(|status| status.code()), Some(1), "{problem:?}");
        assert!(problem.log.contains(&expected), "{problem:?}");

        let rules = folder.path().join("rules.yaml");
        std::fs::write(&rules, RULES).expect("room for the rules");
        let mut validate = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
        validate.arg("validate").env("RATELIMITD__RULES__PATH", &rules);
        validate.env("RATELIMITD__SERVER__HTTP__CHECK__MAP", &file);
        let ended = validate.output().expect("the binary runs");
        let told = String::from_utf8(ended.stderr).expect("text");
        assert!(told.contains(&expected), "{told}");
        assert_eq!(ended.status.code(), Some(1));
    }
}

#[test]
fn a_changed_map_is_in_force_and_a_bad_one_is_not() {
    let checked = Checked::start(PER_CLIENT);
    assert_eq!(checked.statuses(6, "/check", &CLIENT), [200, 200, 200, 200, 200, 429]);
    std::fs::write(checked.map_file(), "domain: edge\ndescriptors: [[{ key: client, from: status }]]")
        .expect("room for the map");
    let log = checked.service.log_with("cannot load changed /check map");
    assert!(log.contains(":2: a request has no field 'status'"), "{log}");
    assert_eq!(checked.get("/check", &CLIENT).status, 429, "the old map is in force");
    std::fs::write(checked.map_file(), PER_CLIENT.replace("remote_addr", "http_x_key"))
        .expect("room for the map");
    checked.service.log_with("/check map loaded");
    assert!(!checked.service.log().contains("no rules for the domain"));
    wait::expect("another counter", || checked.get("/check", &CLIENT).status == 200);
    std::fs::write(checked.map_file(), PER_CLIENT.replace("edge", "egde")).expect("room for the map");
    let log = checked.service.log_with("no rules for the domain of the /check map");
    assert!(log.contains("domain=\"egde\""), "{log}");
}

#[test]
fn an_entry_that_may_have_no_value_is_told_at_the_start_and_by_validate() {
    let checked = Checked::start(PER_CLIENT);
    let told = "a request without a value in remote_addr meets no limit of client: add 'default: unknown'";
    checked.service.log_with(told);
    std::fs::write(checked.map_file(), PER_CLIENT.replace("remote_addr", "http_x_key")).expect("room");
    checked.service.log_with("a request without a value in http_x_key meets no limit of client");

    let validate = |map: &str, arguments: &[&str]| {
        std::fs::write(checked.map_file(), map).expect("room for the map");
        let mut validate = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
        validate.arg("validate").args(arguments).env("RATELIMITD__RULES__PATH", checked.service.rules());
        let ended = validate.env("RATELIMITD__SERVER__HTTP__CHECK__MAP", checked.map_file()).output();
        let ended = ended.expect("the binary runs");
        (ended.status.code(), String::from_utf8(ended.stderr).expect("text"))
    };
    let (code, stderr) = validate(PER_CLIENT, &[]);
    assert_eq!(code, Some(0), "{stderr}");
    let line = format!("server.http.check.map: warning: {}:3: {told}", checked.map_file().display());
    assert!(stderr.contains(&line), "{stderr}");
    assert_eq!(validate(PER_CLIENT, &["--strict"]).0, Some(1));
    let with_default = PER_CLIENT.replace("remote_addr", "remote_addr, prefix: 64, default: unknown");
    assert_eq!(validate(&with_default, &["--strict"]), (Some(0), String::new()));
}

#[test]
fn the_maps_of_the_examples_give_every_request_a_limit() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for proxy in ["caddy", "haproxy", "nginx", "simulate", "traefik"] {
        let map = Map::load(&examples.join(proxy).join("map.yaml")).expect("a valid map");
        let map = map.for_requests().expect("a map of requests");
        assert_eq!(map.warnings(), Vec::<String>::new(), "{proxy}");
        let request = map.request(|_| Ok::<_, ValueFault>(None)).expect("a request");
        assert!(!request.descriptors.is_empty(), "{proxy}");
    }
}

#[test]
fn the_shipped_maps_decide_requests_unless_they_need_the_answer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/maps");
    let mut refused = Vec::new();
    for file in std::fs::read_dir(folder).expect("the folder of the maps") {
        let path = file.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        match Map::load(&path).expect("a valid map").for_requests() {
            Ok(map) => assert_eq!(map.warnings(), Vec::<String>::new(), "{name}"),
            Err(_) => refused.push(name),
        }
    }
    assert_eq!(refused, ["llm-tokens.yaml"], "the tokens of an answer are its cost");
}
