//! What `top` makes of console states.

mod excepted;
mod screens;

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratelimitd::console::{ConsoleState, Level, SECONDS};
use serde_json::{Value, json};

use super::events::{ConsoleEvent, EventBytes, StateError, parsed_state};
use super::screen::{Next, Order, Screen};
use super::view::{Contact, InstanceSeen, View};

const END: u64 = 1_795_269_871;

/// A state as the service writes it, with two rules and two denied keys. `at`: end of its last second.
fn state_json(name: &str, id: &str, at: u64) -> Value {
    let rule = |id: u32, rule: &str, limit: &str, kind: &str, asked: f64, denied: f64| {
        json!({"id": id, "domain": "edge", "rule": rule, "limit": limit, "how": "gcra", "kind": kind,
            "asked": asked, "denied": denied, "asked_15m": 9_000, "denied_15m": (denied * 300.0) as u64,
            "since": if denied > 0.0 { json!(at - 371) } else { json!(null) }, "keys": 1,
            "more_keys": false, "spark_asked": [], "spark": []})
    };
    let key = |id: &str, rule: u32, entries: Value, denied: f64| {
        json!({"id": id, "rule": rule, "entries": entries, "secret": false, "denied": denied,
            "denied_15m": (denied * 300.0) as u64, "spark": []})
    };
    let series = |newest: u64| {
        (0..SECONDS as u64).map(|second| if second < 529 { 0 } else { newest }).collect::<Vec<_>>()
    };
    json!({
        "schema": 1, "end": at,
        "instance": {"name": name, "id": id, "version": "0.1.0", "started_at": at - 533_220,
            "reasons": [], "dashboard_url": null, "values": "token"},
        "series": {"requests": vec![5_479; SECONDS], "denied": series(371), "failed": vec![0; SECONDS],
            "policy": vec![0; SECONDS], "shadow": vec![7; SECONDS], "p50_us": [225], "p99_us": [null, 1_660],
            "store_p99_us": [1_020]},
        "marks": [],
        "notices": [{"level": "warn", "title": "▲ Newer rules rejected at 14:02:00.",
            "text": "rules/edge.yaml:41: requests_per_unit must be a whole number",
            "fix": "Generation 17 of 13:58:05 stays in force."}],
        "rules": {"total": 3, "idle": 1, "files": 1, "domains": 1, "generation": 17, "loaded_at": 1, "warnings": 0,
            "rejected": null, "list": [
                rule(0, "edge.tenant.path_/search", "600 per minute", "enforced", 656.1, 338.9),
                rule(1, "per-address", "300 per minute", "enforced", 5_157.0, 15.0),
                rule(2, "trial", "1 per day", "shadow", 9.4, 9.4)]},
        "keys": [key("3f9a51c20b7e", 0, json!([["tenant", "ac…#3f9a"], ["path", "/search"]]), 330.4),
            key("00aa51c20b7e", 1, json!([["remote_address", "19…#77aa"]]), 4.2)],
        "store": {"kind": "redis", "answers": true, "p50_us": 310, "p99_us": 1_010, "queue": 3, "batch": 18.4,
            "breakers": 10, "breakers_open": 0, "deny_hits": 361, "deny_keys": 58, "server": null,
            "last_outage": null},
        "unlimited": {"without_limit": 0.0, "names": [], "unknown_domain": 0.0, "domains": [], "allowed": 0,
            "shadow_mode": false, "evictions": 0},
    })
}

fn state(name: &str, id: &str, at: u64) -> ConsoleState {
    parsed_state(&state_json(name, id, at).to_string()).expect("a state")
}

/// An instance that has answered with a state.
fn live(address: &str, state: ConsoleState) -> InstanceSeen {
    let mut seen = InstanceSeen::new(address.to_owned());
    seen.event(ConsoleEvent::State(Box::new(state)));
    seen
}

fn dead(address: &str) -> InstanceSeen {
    let mut seen = InstanceSeen::new(address.to_owned());
    seen.contact =
        Contact::Lost { error: "Connection refused".to_owned(), wait: Some(Duration::from_secs(4)) };
    seen
}

#[test]
fn rates_are_added_up_and_keys_are_joined_by_what_is_shown() {
    let mut other = state_json("b", "2", END - 1);
    // Row ids are unique only within a process.
    other["rules"]["list"][0]["id"] = json!(7);
    other["keys"][0]["rule"] = json!(7);
    other["keys"][0]["id"] = json!("ffffffffffff");
    other["keys"][1]["entries"] = json!([["remote_address", "20…#1234"]]);
    other["rules"]["list"][1]["limit"] = json!("500 per minute");
    other["rules"]["list"][0]["since"] = json!(END - 800);
    other["store"]["answers"] = json!(false);
    other["series"]["p99_us"] = json!([2_500]);
    let other = parsed_state(&other.to_string()).expect("a state");
    let view = View::merged(&[live("a:6070", state("a", "1", END)), live("b:6070", other), dead("c:6070")]);

    assert!((view.per_second.requests - 2.0 * 5_479.0).abs() < 1e-9, "{:?}", view.per_second);
    assert!((view.per_second.denied - 2.0 * 371.0).abs() < 1e-9, "{:?}", view.per_second);
    assert_eq!((view.end, view.p99_us), (END, Some(2_500)), "the newest end, the slowest instance");
    let redis = view.redis.expect("counters in Redis");
    assert_eq!((redis.instances, redis.answering), (2, 1));

    let rules: Vec<_> = view.rules.iter().map(|rule| (&*rule.name.rule, &*rule.name.limit)).collect();
    assert_eq!(
        rules,
        [
            ("edge.tenant.path_/search", "600 per minute"),
            ("trial", "1 per day"),
            ("per-address", "300 per minute"),
            ("per-address", "500 per minute"),
        ],
        "a limit that differs between instances has two rows"
    );
    assert!((view.rules[0].denied - 677.8).abs() < 1e-9, "{:?}", view.rules[0]);
    assert_eq!((view.rules[0].denied_15m, view.rules[0].since), (2 * 101_670, Some(END - 800)));
    assert_eq!(view.keys.len(), 3, "{:?}", view.keys);
    assert!((view.keys[0].denied - 660.8).abs() < 1e-9, "{:?}", view.keys[0]);
    assert_eq!(view.keys[0].denied_15m, 2 * 99_120);

    let errors: Vec<_> = view.instances.iter().map(|line| line.error.as_deref()).collect();
    assert_eq!(errors, [None, None, Some("Connection refused")]);
    assert_eq!(view.notices.len(), 2, "one of each instance");
}

#[test]
fn keys_of_one_instance_are_not_joined_although_they_are_shown_as_equal() {
    let with_twins = |name: &str, id: &str| {
        let mut state = state_json(name, id, END);
        let mut twin = state["keys"][1].clone();
        twin["id"] = json!("11aa51c20b7e");
        state["keys"].as_array_mut().expect("a list").push(twin);
        parsed_state(&state.to_string()).expect("a state")
    };
    let view = View::merged(&[live("a:1", with_twins("a", "1")), live("b:1", with_twins("b", "2"))]);
    let counts: Vec<_> = view.keys.iter().map(|key| key.denied_15m).collect();
    assert_eq!(counts, [2 * 99_120, 2 * 1_260, 2 * 1_260]);
}

#[test]
fn a_process_with_two_addresses_is_counted_once() {
    let seen = [live("a:6070", state("a", "1", END)), live("b:6070", state("a", "1", END))];
    let view = View::merged(&seen);
    assert!((view.per_second.requests - 5_479.0).abs() < 1e-9, "{:?}", view.per_second);
    assert_eq!(view.instances[1].same_as.as_deref(), Some("a:6070"));
}

#[test]
fn an_instance_that_is_lost_is_not_counted_unless_all_are() {
    let mut seen = [live("a:6070", state("a", "1", END)), live("b:6070", state("b", "2", END))];
    seen[1].contact = Contact::Lost { error: "reset".to_owned(), wait: None };
    assert!((View::merged(&seen).per_second.requests - 5_479.0).abs() < 1e-9);
    seen[0].contact = Contact::Lost { error: "reset".to_owned(), wait: None };
    let view = View::merged(&seen);
    assert!((view.per_second.requests - 2.0 * 5_479.0).abs() < 1e-9, "the numbers before");
    assert!(view.instances.iter().all(|line| line.is_counted && line.error.is_some()));
}

#[test]
fn another_process_under_the_same_address_is_told() {
    let mut seen = live("a:6070", state("a", "1", END));
    assert!(View::merged(&[seen.clone()]).notices.iter().all(|line| line.notice.level != Level::Bad));
    seen.event(ConsoleEvent::State(Box::new(state("a", "2", END + 9))));
    let view = View::merged(&[seen.clone()]);
    assert_eq!(view.notices[0].notice.title, "■ a restarted: a:6070 is a new process.");
    seen.event(ConsoleEvent::State(Box::new(state("b", "3", END + 10))));
    let view = View::merged(&[seen.clone()]);
    assert_eq!(view.notices[0].notice.title, "■ a:6070 is another process now: a before, b now.");
    seen.event(ConsoleEvent::State(Box::new(state("b", "3", END + 1_000))));
    assert!(View::merged(&[seen]).notices.iter().all(|line| line.notice.level != Level::Bad));
}

#[test]
fn a_sample_changes_rows_and_adds_a_second() {
    let mut seen = live("a:6070", state("a", "1", END));
    let sample = |end: u64| {
        format!(
            "event: sample\nid: 1-2\ndata: {{\"end\":{end},\"sample\":{{\"requests\":10,\"denied\":5,\"failed\":1,\
             \"policy\":0,\"shadow\":0,\"p50_us\":null,\"p99_us\":null,\"store_p99_us\":7}},\
             \"rules\":[[0,1.5,0.5,99],[77,1.0,1.0,1]],\"keys\":[[\"3f9a51c20b7e\",0.4,98],[\"x\",1.0,1]],\
             \"marks\":[],\"reasons\":[\"draining\"]}}\n\n"
        )
    };
    let events = EventBytes::default().add(sample(END + 3).as_bytes()).expect("an event");
    events.into_iter().for_each(|event| seen.event(event));
    let view = View::merged(&[seen]);
    assert_eq!((view.end, view.p99_us, view.store_p99_us), (END + 3, None, Some(7)));
    // Two seconds are missing: the mean of 371 twice, 0 twice and 5.
    assert!((view.per_second.denied - 149.4).abs() < 1e-9, "{:?}", view.per_second);
    assert_eq!(view.denied_seconds.len(), SECONDS);
    assert_eq!(view.denied_seconds[SECONDS - 4..], [371, 0, 0, 5]);
    let rule = view.rules.iter().find(|rule| rule.name.rule == "edge.tenant.path_/search").expect("a rule");
    assert_eq!(
        (rule.denied_15m, view.instances[0].reasons.as_slice()),
        (99, ["draining".to_owned()].as_slice())
    );
    assert!(view.keys.iter().any(|key| key.denied_15m == 98), "{:?}", view.keys);
}

#[test]
fn events_arrive_in_pieces_of_any_size() {
    let state = state_json("a", "1", END);
    let text = format!("event: state\nid: 1-1\ndata: {state}\n\n: a remark\n\nevent: end\ndata: {{}}\n\n");
    for size in [1, 2, 7, text.len()] {
        let mut bytes = EventBytes::default();
        let pieces = text.as_bytes().chunks(size);
        let events: Vec<_> = pieces.flat_map(|piece| bytes.add(piece).expect("events")).collect();
        assert!(matches!(&events[..], [ConsoleEvent::State(_), ConsoleEvent::End]), "{size}: {events:?}");
    }
    let error = EventBytes::default().add(b"event: state\ndata: {\n\n").expect_err("not JSON");
    assert!(matches!(error, StateError::Json(_)), "{error}");
    let error = EventBytes::default().add(&vec![b'x'; (16 << 20) + 1]).expect_err("no end");
    assert!(matches!(error, StateError::Size), "{error}");
    let error = parsed_state("{\"schema\": 2}").expect_err("another format");
    assert!(matches!(error, StateError::Schema(2)), "{error}");
}

#[test]
fn denials_since_when() {
    let view = |denied: Vec<u64>| {
        let mut state = state_json("a", "1", END);
        state["series"]["denied"] = json!(denied);
        View::merged(&[live("a", parsed_state(&state.to_string()).expect("a state"))])
    };
    let row =
        |parts: &[(usize, u64)]| parts.iter().flat_map(|(count, denied)| vec![*denied; *count]).collect();
    let cases: [(Vec<u64>, Option<u64>); 6] = [
        (row(&[]), None),
        (row(&[(900, 0)]), None),
        (row(&[(5, 0), (1, 3)]), Some(END - 1)),
        (row(&[(100, 1), (31, 0), (2, 1), (30, 0), (1, 1), (4, 0)]), Some(END - 37)), // a pause of 30 s ends nothing
        (row(&[(100, 1), (31, 0)]), None),                                            // it is over
        (row(&[(900, 1)]), Some(END - 900)),
    ];
    for (denied, expected) in cases {
        assert_eq!(view(denied.clone()).denied_since, expected, "{denied:?}");
    }
}

#[test]
fn keys_of_the_keyboard_filter_sort_and_choose() {
    let view = View::merged(&[live("a", state("a", "1", END))]);
    let mut screen = Screen::default();
    let mut press = |keys: &[KeyCode]| {
        let last = keys.iter().map(|key| screen.press(KeyEvent::from(*key), &view)).last();
        let rules: Vec<_> = screen.rules(&view).iter().map(|rule| rule.name.rule.clone()).collect();
        (last == Some(Next::Quit), rules.join(" "), screen.keys(&view).len(), screen.clone())
    };
    let (_, rules, keys, _) = press(&[]);
    assert_eq!((rules.as_str(), keys), ("edge.tenant.path_/search per-address trial", 2));
    let (_, rules, _, screen) = press(&[KeyCode::Char('s')]);
    assert_eq!((rules.as_str(), screen.order), ("per-address edge.tenant.path_/search trial", Order::Asked));
    // The arrows select a row, which stays selected when the order changes, and Enter chooses its keys.
    let (_, _, keys, screen) = press(&[KeyCode::Down, KeyCode::Char('s'), KeyCode::Enter]);
    assert_eq!((screen.selected_row(&screen.rules(&view)), keys), (Some(1), 1));
    let (_, _, keys, screen) = press(&[KeyCode::Up, KeyCode::Up, KeyCode::PageDown, KeyCode::Esc]);
    assert_eq!((screen.selected, keys), (None, 2));
    // While a filter is typed, letters are not commands; a filter finds rules, and keys by what is shown of them.
    let typed = "/QP#77AA".chars().map(KeyCode::Char).chain([KeyCode::Backspace; 7]).collect::<Vec<_>>();
    let (has_quit, _, _, screen) = press(&typed);
    assert!(!has_quit && screen.is_typing && screen.filter.is_empty() && !screen.is_paused);
    let (_, rules, keys, screen) = press(&[KeyCode::Char('#'), KeyCode::Char('7'), KeyCode::Enter]);
    assert_eq!((rules.as_str(), keys, screen.is_typing), ("", 1, false));
    let (_, rules, _, _) = press(&[KeyCode::Esc, KeyCode::Char('d')]);
    assert_eq!(
        rules, "edge.tenant.path_/search per-address trial",
        "all of them deny, one of them in shadow mode"
    );
    assert!(press(&[KeyCode::Char('p')]).3.is_paused);
    assert!(press(&[KeyCode::Char('q')]).0);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    let mut typing = Screen { is_typing: true, ..Screen::default() };
    assert_eq!(typing.press(control_c, &view), Next::Quit);
    for _ in 0..1_000 {
        typing.press(KeyEvent::from(KeyCode::Char('x')), &view);
    }
    assert_eq!(typing.filter.len(), 100);
}
