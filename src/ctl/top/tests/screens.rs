//! Whole screens, as text.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::super::columns::{cut, fitted, wrapped};
use super::super::frame::{draw, text};
use super::super::screen::Screen;
use super::super::sentence::{sentence, share_text};
use super::super::view::{InstanceSeen, View};
use super::{END, dead, live, state, state_json};
use crate::top::events::parsed_state;

/// What a terminal of this size shows, without trailing spaces.
fn shown(view: &View, screen: &Screen, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal");
    terminal.draw(|frame| draw(frame, view, screen)).expect("a frame");
    let lines = terminal.backend().to_string();
    let lines = lines.lines().map(|line| line.trim_matches('"').trim_end());
    lines.collect::<Vec<_>>().join("\n")
}

fn one() -> View {
    View::merged(&[live("127.0.0.1:6070", state("ratelimit-7d9c6f-x2x4z", "9f1c2a7e", END))])
}

#[test]
fn sixty_columns() {
    let expected = "\
ratelimitctl top  14:04:31 UTC  ratelimit-7d9c6f-x2x4z  rea…
371 of 5,479 requests/s denied (6.8 %), since 13:58:20. 96 %
of the denials are by edge.tenant.path_/search; 97 % of
these are of one key, tenant=ac…#3f9a path=/search. Redis
answers.
▲ Newer rules rejected at 14:02:00. rules/edge.yaml:41: req…
requests 5,479/s   denied 371/s   would deny 7.0/s
by policy 0/s   no decision 0/s   p99 1.66ms
Redis p99 1.02ms
denied, 15 min  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▆█████████████████

  RULE                      ASKED/S  DENIED/S   SHARE
  edge.tenant.path_/search      656       339    52 %
  per-address (edge)          5,157        15  0.29 %
  trial (edge), shadow          9.4       9.4   100 %

KEY                           DENIED/S  OF RULE    15 MIN
tenant=ac…#3f9a path=/search       330     97 %  ≥ 99,120
remote_address=19…#77aa            4.2     28 %   ≥ 1,260




q quit  p pause  / filter  s by asked  d denying  ↑↓ Enter:…";
    assert_eq!(shown(&one(), &Screen::default(), 60, 24), expected);
}

#[test]
fn a_hundred_columns() {
    let view = one();
    let selected = Some(view.rules[0].name.clone());
    let screen = Screen { chosen_rule: selected.clone(), selected, is_paused: true, ..Screen::default() };
    let expected = "\
ratelimitctl top  14:04:31 UTC  PAUSED  ratelimit-7d9c6f-x2x4z  ready  0.1.0  up 6d 4h 7m  this pro…
371 of 5,479 requests/s denied (6.8 %), since 13:58:20. 96 % of the denials are by
edge.tenant.path_/search; 97 % of these are of one key, tenant=ac…#3f9a path=/search. Redis answers.
▲ Newer rules rejected at 14:02:00. rules/edge.yaml:41: requests_per_unit must be a whole number. G…
requests 5,479/s   denied 371/s   would deny 7.0/s   by policy 0/s   no decision 0/s   p99 1.66ms
Redis p99 1.02ms
denied, 15 min  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▇█████████████████████████████████

  RULE                      LIMIT           ASKED/S  DENIED/S   SHARE   15 MIN     SINCE
> edge.tenant.path_/search  600 per minute      656       339    52 %  101,670  13:58:20
  per-address (edge)        300 per minute    5,157        15  0.29 %    4,500  13:58:20
  trial (edge), shadow      1 per day           9.4       9.4   100 %    2,820  13:58:20

KEY                           RULE                      DENIED/S  OF RULE    15 MIN
tenant=ac…#3f9a path=/search  edge.tenant.path_/search       330     97 %  ≥ 99,120








q quit  p pause  / filter  s by asked  d denying  keys of edge.tenant.path_/search, Esc: of all";
    assert_eq!(shown(&view, &screen, 100, 24), expected);
}

#[test]
fn two_hundred_columns_and_three_instances() {
    let seen = [
        live("10.0.0.1:6070", state("a", "1", END)),
        live("10.0.0.2:6070", state("b", "2", END)),
        dead("10.0.0.3:6070"),
    ];
    let screen = Screen { filter: "search".to_owned(), is_typing: true, ..Screen::default() };
    let expected = "\
ratelimitctl top  14:04:31 UTC  2 of 3 instances
■ 10.0.0.3:6070 does not answer: Connection refused. Retrying within 4 s.
742 of 10,958 requests/s denied (6.8 %), since 13:58:20. 96 % of the denials are by edge.tenant.path_/search; 97 % of
these are of one key, tenant=ac…#3f9a path=/search. Redis answers.
▲ Newer rules rejected at 14:02:00. rules/edge.yaml:41: requests_per_unit must be a whole number. Generation 17 of 13:58:05 stays in force. (a)
▲ Newer rules rejected at 14:02:00. rules/edge.yaml:41: requests_per_unit must be a whole number. Generation 17 of 13:58:05 stays in force. (b)
requests 10,958/s   denied 742/s   would deny 14/s   by policy 0/s   no decision 0/s   p99 1.66ms   Redis p99 1.02ms
denied, 15 min  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▂█████████████████████████████████████

  RULE                      LIMIT           ASKED/S  DENIED/S  SHARE   15 MIN     SINCE
  edge.tenant.path_/search  600 per minute    1,312       678   52 %  203,340  13:58:20

KEY                           RULE                      DENIED/S  OF RULE     15 MIN
tenant=ac…#3f9a path=/search  edge.tenant.path_/search       661     97 %  ≥ 198,240





filter: search_  Enter keeps it, Esc clears it";
    assert_eq!(shown(&View::merged(&seen), &screen, 200, 20), expected);
}

#[test]
fn notices_of_many_instances_leave_room_for_the_tables() {
    let mut seen: Vec<_> =
        (0..20).map(|n| live(&format!("a:{n}"), state("a", &n.to_string(), END))).collect();
    seen.extend((0..20).map(|n| dead(&format!("b:{n}"))));
    let view = View::merged(&seen);
    let screen = shown(&view, &Screen::default(), 100, 40);
    let count = |sign: char| screen.lines().filter(|line| line.starts_with(sign)).count();
    assert_eq!((count('▲'), count('■')), (6, 6), "{screen}");
    assert!(screen.contains("\nKEY "), "{screen}");
    assert_eq!(text(&view, 20, 200).matches('▲').count(), 20);
}

#[test]
fn a_text_has_whole_notices_and_as_many_rows_as_are_wanted() {
    let expected = "\
ratelimitctl top  14:04:31 UTC  ratelimit-7d9c6f-x2x4z  ready  0.1.0  up 6d 4h …
371 of 5,479 requests/s denied (6.8 %), since 13:58:20. 96 % of the denials are
by edge.tenant.path_/search; 97 % of these are of one key, tenant=ac…#3f9a
path=/search. Redis answers.
▲ Newer rules rejected at 14:02:00. rules/edge.yaml:41: requests_per_unit must
be a whole number. Generation 17 of 13:58:05 stays in force.
requests 5,479/s   denied 371/s   would deny 7.0/s   by policy 0/s
no decision 0/s   p99 1.66ms   Redis p99 1.02ms
denied, 15 min  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▇████████████████████████

RULE                 LIMIT           ASKED/S  DENIED/S  SHARE   15 MIN     SINCE
edge.tenant.path_/…  600 per minute      656       339   52 %  101,670  13:58:20

KEY                        RULE                      DENIED/S  OF RULE    15 MIN
tenant=ac…#3f9a path=/se…  edge.tenant.path_/search       330     97 %  ≥ 99,120
";
    assert_eq!(text(&one(), 1, 80), expected);
}

#[test]
fn without_an_answer_there_is_only_the_reason() {
    let expected = "\
ratelimitctl top  127.0.0.1:6070  no answer  this process only
■ 127.0.0.1:6070 does not answer: Connection refused. Retrying within 4 s.

No rule to show.


No key to show that was over a limit.
q quit  p pause  / filter  s by asked  d denying  ↑↓ Enter: keys of a rule";
    assert_eq!(shown(&View::merged(&[dead("127.0.0.1:6070")]), &Screen::default(), 80, 8), expected);
    let connecting = View::merged(&[InstanceSeen::new("127.0.0.1:6070".to_owned())]);
    let first = shown(&connecting, &Screen::default(), 80, 8);
    assert!(
        first.starts_with("ratelimitctl top  127.0.0.1:6070  connecting  this process only\n"),
        "{first}"
    );
}

#[test]
fn every_size_of_a_terminal_is_drawn() {
    let view = one();
    for (columns, rows) in [(1, 1), (3, 200), (20, 5), (59, 10), (500, 3)] {
        shown(&view, &Screen::default(), columns, rows);
        text(&view, 20, columns);
    }
}

#[test]
fn hostile_texts_move_no_cursor_and_turn_no_line() {
    let mut state = state_json("a\u{1b}[2J", "1", END);
    state["rules"]["list"][0]["rule"] = json!("edge.\u{202e}abc\u{7}");
    state["keys"][0]["entries"] = json!([["ten\nant", "\u{9b}31m\u{0}"], ["漢字漢字", "é\u{301}"]]);
    state["notices"][0]["title"] = json!("▲ \u{1b}]0;x\u{7}\r");
    let state = parsed_state(&state.to_string()).expect("a state");
    let view = View::merged(&[live("a", state)]);
    for found in [text(&view, 20, 200), shown(&view, &Screen::default(), 200, 30)] {
        let is_hostile = |letter: &char| letter.is_control() && *letter != '\n' || *letter == '\u{202e}';
        assert_eq!(found.chars().find(is_hostile), None, "{found}");
        assert!(found.contains("漢字漢字=") && found.contains("edge."), "{found}");
        assert!(!found.lines().any(|line| line.starts_with("ant")), "{found}");
    }
}

#[test]
fn numbers_of_any_size_are_shown() {
    let most = u64::MAX;
    let mut state = state_json("a", "1", END);
    state["end"] = json!(most);
    state["instance"]["started_at"] = json!(most);
    for series in ["requests", "denied", "failed", "policy", "shadow", "p99_us", "store_p99_us"] {
        state["series"][series] = json!(vec![most; 900]);
    }
    for (list, fields) in
        [("rules", ["asked", "denied", "denied_15m"]), ("keys", ["denied", "denied", "denied_15m"])]
    {
        let rows = if list == "rules" { &mut state["rules"]["list"] } else { &mut state["keys"] };
        for row in rows.as_array_mut().expect("a list") {
            fields.iter().for_each(|field| row[*field] = json!(most));
        }
    }
    state["rules"]["list"][0]["since"] = json!(most);
    state["rules"]["list"][1]["since"] = json!(0);
    let state = parsed_state(&state.to_string()).expect("a state");
    let mut other = state.clone();
    other.instance.id = "2".to_owned();
    let view = View::merged(&[live("a", state), live("b", other)]);
    assert!(text(&view, 20, 200).contains("18,446,744,073,709,551,615"));
    shown(&view, &Screen::default(), 100, 30);
}

#[test]
fn the_sentence_names_what_matters() {
    let view = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut state = state_json("a", "1", END);
        change(&mut state);
        sentence(&View::merged(&[live("a", parsed_state(&state.to_string()).expect("a state"))]))
    };
    let none = vec![0; 900];
    let cases = [
        (
            view(&|_| {}),
            "371 of 5,479 requests/s denied (6.8 %), since 13:58:20. 96 % of the denials are by \
             edge.tenant.path_/search; 97 % of these are of one key, tenant=ac…#3f9a path=/search. Redis answers.",
        ),
        (
            view(&|state| {
                state["series"]["denied"] = json!(none);
                state["store"] = json!({"kind": "memory", "answers": true});
            }),
            "5,479 requests/s, none denied.",
        ),
        (
            view(&|state| {
                state["series"]["requests"] = json!(none);
                state["store"]["answers"] = json!(false);
            }),
            "No requests. Redis does not answer.",
        ),
        (
            view(&|state| {
                state["keys"] = json!([]);
                state["series"]["denied"] = json!(vec![5_479; 900]);
                state["series"]["failed"] = json!([1]);
            }),
            "5,479 of 5,479 requests/s denied (100 %), for more than 15 min. 96 % of the denials are by \
             edge.tenant.path_/search; no single key has half of these. 1.0 requests/s got no decision. Redis answers.",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn shares_have_two_digits() {
    let table = [
        ((0.0, 0.0), "0 %"),
        ((1.0, 0.0), "0 %"),
        ((0.29, 100.0), "0.29 %"),
        ((6.77, 100.0), "6.8 %"),
        ((97.4, 100.0), "97 %"),
        ((3.0, 2.0), "100 %"),
    ];
    for ((part, whole), expected) in table {
        assert_eq!(share_text(part, whole), expected);
    }
}

#[test]
fn texts_fit_into_their_width() {
    let table = [
        ("short", 5, "short"),
        ("shorter", 5, "shor…"),
        ("漢字漢字", 5, "漢字…"),
        ("a\u{1b}b", 5, "a\u{fffd}b"),
        ("", 5, ""),
        ("abc", 0, "…"),
    ];
    for (whole, width, expected) in table {
        assert_eq!(cut(whole, width), expected, "{whole} in {width}");
    }
    assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
    assert_eq!(wrapped("onetwothree four", 7), ["onetwo…", "four"]);
    assert_eq!(wrapped("", 7), [""; 0]);
    let row = |texts: [usize; 3]| texts.map(|length| "x".repeat(length)).to_vec();
    let rows = [row([30, 12, 4]), row([10, 20, 6])];
    assert_eq!(fitted(&rows, 2, 2, 100), [30, 20, 6]);
    assert_eq!(fitted(&rows, 2, 2, 40), [15, 15, 6], "the widest texts become narrower");
    assert_eq!(fitted(&rows, 2, 2, 10), [8, 8, 6], "but not narrower than this");
}
