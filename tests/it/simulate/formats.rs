//! Every format: recognized, mapped, and decided at the time of its lines.

use super::{RULES, Simulation};

/// A map of a field that has the client's address.
fn address_map(field: &str, more: &str) -> String {
    format!("domain: edge\ndescriptors:\n  - - {{ key: remote_address, {field} }}\n{more}")
}

/// Seven requests of a second address within a minute, and one of a first: two of seven are over five per minute.
fn lines(line: impl Fn(&str, u32) -> String) -> String {
    let mut text = line("192.0.2.1", 1) + "\n";
    for second in 10..17 {
        text += &(line("192.0.2.2", second) + "\n");
    }
    text
}

fn envoy(address: &str, second: u32) -> String {
    format!(
        "[2026-04-15T20:17:{second:02}.310Z] \"GET /a?b=c HTTP/2\" 200 - 154 0 226 100 \"10.0.0.1, {address}\" \
         \"nsq\"2http\" \"cc21\" \"locations\" \"10.0.2.1:80\""
    )
}

fn istio(address: &str, second: u32) -> String {
    format!(
        "[2026-04-15T20:17:{second:02}.310Z] \"GET /status HTTP/1.1\" 200 - via_upstream - \"-\" 0 135 5 4 \"-\" \
         \"curl/8\" \"id\" \"httpbin:8000\" \"127.0.0.1:80\" inbound|80|| 127.0.0.1:41854 10.44.1.23:80 \
         {address}:33456 outbound_.8000_._.httpbin default"
    )
}

fn envoy_json(address: &str, second: u32) -> String {
    format!(
        "{{\"start_time\":\"2026-04-15T20:17:{second:02}.310Z\",\"method\":\"GET\",\"x-envoy-origin-path\":\"/a\",\
         \"response_code\":\"200\",\"response_flags\":\"-\",\"x-forwarded-for\":\"{address}\",\"bytes_sent\":12}}"
    )
}

fn nginx(address: &str, second: u32) -> String {
    format!(
        "{address} - - [15/Apr/2026:20:17:{second:02} +0000] \"GET / HTTP/1.1\" 200 612 \"-\" \"curl \\x22\""
    )
}

fn nginx_msec(address: &str, second: u32) -> String {
    // The request began a tenth of a second before the line was written.
    let line = nginx(address, 59);
    format!("{line} {}.410 0.100", 1_776_284_220 + second)
}

fn haproxy(address: &str, second: u32) -> String {
    format!(
        "Apr 15 20:17:00 lb haproxy[9]: {address}:33317 [15/Apr/2026:20:17:{second:02}.655] in~ static/srv1 \
         10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {{ua}} \"GET / HTTP/1.1\""
    )
}

fn json(address: &str, second: u32) -> String {
    format!(
        "{{\"ts\":{}.310,\"request\":{{\"remote_ip\":\"{address}\"}},\"status\":200}}",
        1_776_284_220 + second
    )
}

fn csv(address: &str, second: u32) -> String {
    format!("{},\"{address}\",\"a, b\"", 1_776_284_220_000 + u64::from(second))
}

fn jsonl(address: &str, second: u32) -> String {
    let t_us = (1_776_284_220 + u64::from(second)) * 1_000_000;
    format!(
        "{{\"t_us\":{t_us},\"domain\":\"edge\",\"descriptors\":[{{\"entries\":[{{\"key\":\"remote_address\",\
         \"value\":\"{address}\"}}]}}]}}"
    )
}

#[test]
fn every_format_is_recognized_and_gives_the_same_counts() {
    let csv_text = format!("time,client ip,agent\r\n{}", lines(csv).replace('\n', "\r\n"));
    let last_hop = address_map("from: x-forwarded-for, take: trusted-hop 1", "");
    let table = [
        ("envoy", lines(envoy), last_hop.clone(), 1_000),
        ("istio", lines(istio), address_map("from: downstream_remote_address, strip: port", ""), 1_000),
        ("envoy-json", lines(envoy_json), last_hop.clone(), 1_000),
        ("nginx", lines(nginx), address_map("from: remote_addr", ""), 1_000_000),
        ("nginx", lines(nginx_msec), address_map("from: remote_addr", ""), 1_000),
        ("haproxy", lines(haproxy), address_map("from: client, strip: port", ""), 1_000),
        ("json", lines(json), address_map("from: request.remote_ip", "time: { from: ts, unit: s }"), 1_000),
        ("csv", csv_text, address_map("from: client ip", "time: { from: time, unit: ms }"), 1_000),
        ("jsonl", lines(jsonl), String::new(), 1_000_000),
    ];
    for (format, log, map, resolution_us) in table {
        let mut simulation = Simulation::new(RULES);
        if !map.is_empty() {
            simulation = simulation.map(&map);
        }
        let ended = simulation.log("access.log", &log).succeed();
        let input = &ended.report["method"]["inputs"][0];
        assert_eq!(input["format"], format, "{}", ended.stdout);
        assert_eq!(input["bytes"], log.len(), "{format}");
        assert_eq!(ended.method("lines"), 8, "{format}");
        assert_eq!(ended.method("unreadable"), 0, "{format}: {}", ended.stdout);
        assert_eq!(ended.of_rule("per-address", "asked"), 8, "{format}");
        let over = if format == "csv" { 2 } else { ended.of_rule("per-address", "over") };
        assert_eq!((over, ended.of_rule("per-address", "keys")), (2, 2), "{format}");
        assert_eq!(ended.method("clock_resolution_us"), resolution_us, "{format}");
        assert_eq!(ended.report["unmet_rules"], serde_json::json!(["edge.never"]), "{format}");
    }
}

#[test]
fn a_map_makes_descriptors_costs_and_conditions() {
    let rules = "
domain: api
descriptors:
  - key: path
    value: /users/*
    descriptors:
      - { key: method, value: GET, rate_limit: { name: users, unit: hour, requests_per_unit: 10 } }
  - key: plan
    value: free
    descriptors: [{ key: key, rate_limit: { name: keys, unit: hour, requests_per_unit: 100 } }]
";
    let map = "
domain: api
time: { from: t, unit: s }
descriptors:
  - - { key: path, from: path, strip: query, template: [\"/users/*\"] }
    - { key: method, from: method, default: GET }
  - - { key: plan, value: free }
    - { key: key, from: headers.Key }
  - { entries: [{ key: plan, value: free }], when: path == /never }
cost: { from: bytes, unit: 1024 }
keep: host == \"api\" and not path starts_with /health
good: code < 400
was_limited: code == 429
";
    let log = "\
{\"t\":1776284220,\"path\":\"/users/1?x=1\",\"host\":\"api\",\"bytes\":5000,\"code\":200,\"headers\":{\"Key\":[\"k1\"]}}
{\"t\":1776284221,\"path\":\"/users/2\",\"host\":\"api\",\"bytes\":\"9000\",\"code\":429}
{\"t\":1776284222,\"path\":\"/users/2\",\"host\":\"www\",\"code\":200}
{\"t\":1776284223,\"path\":\"/health\",\"host\":\"api\",\"code\":200}
{\"t\":1776284224,\"host\":\"api\",\"code\":200}
{\"t\":1776284225,\"path\":\"/users/3\",\"host\":\"api\",\"bytes\":\"many\",\"code\":200}
";
    let ended =
        Simulation::new(rules).map(map).log("log.json", log).with(&["--lenient", "--show-keys"]).succeed();
    // 5 units fit, 9 more do not: both lines are over ten kilobytes together.
    assert_eq!((ended.of_rule("users", "asked"), ended.of_rule("users", "units")), (2, 14));
    assert_eq!((ended.of_rule("users", "over"), ended.of_rule("users", "good_over")), (1, 0));
    assert_eq!(ended.of_rule("keys", "units"), 5);
    assert_eq!((ended.method("not_kept"), ended.method("without_descriptor")), (2, 1));
    assert_eq!(ended.method("unreadable"), 1);
    let agreement = &ended.report["method"]["agreement"];
    assert_eq!((agreement["both_deny"].as_u64(), agreement["both_admit"].as_u64()), (Some(1), Some(1)));
    let users = &ended.report["rules"][0];
    assert_eq!(users["top_denied"][0]["key"], "{api|path=/users/*}|method=GET");
}

#[test]
fn explain_line_shows_the_request_and_its_limits() {
    let map = address_map("from: remote_addr", "good: code < 400\n");
    let log = "\n192.0.2.1 - - [15/Apr/2026:20:17:01 +0000] \"GET / HTTP/1.1\" 200 612 \"-\" \"curl\"\n";
    let explained =
        Simulation::new(RULES).map(&map).log("access.log", log).with(&["--explain-line", "2"]).succeed();
    for expected in
        ["remote_addr: 192.0.2.1", "descriptor remote_address=192.0.2.1", "good: true", "per-address"]
    {
        assert!(explained.stdout.contains(expected), "{expected}: {}", explained.stdout);
    }
    let bytes = log.replace("curl", "\u{ff}").into_bytes().into_iter().filter(|byte| *byte != 0xc3);
    let other = Simulation::new(RULES).map(&map).log("access.log", bytes.collect::<Vec<_>>());
    let refused = other.with(&["--explain-line", "2"]).succeed();
    assert!(refused.stdout.contains("cannot read the line: invalid UTF-8 after"), "{}", refused.stdout);
    let blank = Simulation::new(RULES).map(&map).log("access.log", log).with(&["--explain-line", "1"]).run();
    assert!(blank.code == 2 && blank.stderr.contains("line 1 does not exist"), "{}", blank.stderr);
}

#[test]
fn explain_line_of_a_csv_log_explains_requests_and_not_the_header() {
    let map = address_map("from: client ip", "time: { from: time, unit: s }\n");
    let log = "time,client ip,path\n1776284221,192.0.2.1,/\n1776284222,192.0.2.2,/a\n";
    let explain =
        |number| Simulation::new(RULES).map(&map).log("a.csv", log).with(&["--explain-line", number]);
    let header = explain("1").run();
    assert!(header.code == 2 && header.stderr.contains("line 1 does not exist"), "{}", header.stderr);
    for (number, address) in [("2", "192.0.2.1"), ("3", "192.0.2.2")] {
        let explained = explain(number).succeed();
        let expected = [format!("line {number} (csv)"), format!("descriptor remote_address={address}")];
        assert!(expected.iter().all(|text| explained.stdout.contains(text)), "{}", explained.stdout);
    }
}

#[test]
fn a_map_that_names_an_unknown_field_is_refused_with_the_known_ones() {
    let log = "192.0.2.1 - - [15/Apr/2026:20:17:01 +0000] \"GET / HTTP/1.1\" 200 612 \"-\" \"curl\"\n";
    let map = address_map("from: x-forwarded-for", "");
    let ended = Simulation::new(RULES).map(&map).log("access.log", log).run();
    assert_eq!(ended.code, 2);
    for expected in
        ["map.yaml:3", "nginx has no field 'x-forwarded-for'", "remote_addr, identity, remote_user"]
    {
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
    let ended = Simulation::new(RULES).log("access.log", log).run();
    assert!(ended.code == 2 && ended.stderr.contains("--map"), "{}", ended.stderr);
    let ended = Simulation::new(RULES).map(&map).log("access.log", "hello\nworld\n").run();
    assert!(ended.code == 2 && ended.stderr.contains("--format"), "{}", ended.stderr);
}

#[test]
fn a_field_of_envoys_json_has_its_own_name_or_that_of_the_text_formats() {
    let map = "domain: edge\ndescriptors:\n  - - { key: path, from: path }\nwas_limited: flags has RL\n";
    let line = |path: &str, flags: &str| {
        format!(
            "{{\"start_time\":\"2026-04-15T20:17:01.310Z\",\"response_code\":200,\"{path}\":\"/a\",\"{flags}\":\"RL\"}}\n"
        )
    };
    let log = line("x-envoy-origin-path", "response_flags") + &line("path", "flags");
    for number in ["1", "2"] {
        let explained = Simulation::new(RULES)
            .map(map)
            .log("access.log", &log)
            .with(&["--explain-line", number])
            .succeed();
        for expected in ["line", "envoy-json", "descriptor path=/a", "was_limited: true"] {
            assert!(explained.stdout.contains(expected), "{number}: {}", explained.stdout);
        }
    }
}

#[test]
fn the_time_is_that_of_the_first_field_that_a_line_has() {
    let time = "time: [{ from: decided_at_us, unit: us }, { from: start_time }]";
    let map = address_map("from: ip", time);
    // The second request began later and was decided earlier; the third one met no limit.
    let log = "\
{\"start_time\":\"2026-04-15T20:17:01.310Z\",\"decided_at_us\":\"1776284229000000\",\"ip\":\"a\"}
{\"start_time\":\"2026-04-15T20:17:02.310Z\",\"decided_at_us\":1776284225000000,\"ip\":\"a\"}
{\"start_time\":\"2026-04-15T20:17:03.310Z\",\"decided_at_us\":null,\"ip\":\"a\"}
{\"ip\":\"a\"}
";
    let ended = Simulation::new(RULES)
        .map(&map)
        .log("a.json", log)
        .with(&["--format", "json", "--lenient"])
        .succeed();
    let totals = &ended.report["totals"];
    assert_eq!(
        (&totals["first_us"], &totals["last_us"]),
        (&1_776_284_223_310_000_u64.into(), &1_776_284_229_000_000_u64.into())
    );
    assert_eq!(
        ended.report["method"]["unreadable_lines"][0]["reason"],
        "decided_at_us, start_time is missing, so the line has no time"
    );
}
