//! Keys with an exception.

use ratelimitd::console::{ConsoleExceptions, RowsOfKind};
use serde_json::json;

use super::super::events::parsed_state;
use super::super::frame::text;
use super::super::sentence::exceptions_text;
use super::super::view::View;
use super::{END, live, state_json};

#[test]
fn a_blocked_key_says_which_row_and_until_when_and_two_limits_stay_apart() {
    let with_rows = |name: &str, id: &str| {
        let mut state = state_json(name, id, END);
        state["keys"][0]["exception"] =
            json!({"kind": "block", "row": "blocks.yaml:3", "until": END + 7_200});
        state["keys"][1]["exception"] = json!({"kind": "exempt", "row": null, "until": END + 100_000});
        let mut of_another_limit = state["keys"][1].clone();
        of_another_limit["limit"] = json!("9 per day");
        of_another_limit["exception"] = json!({"kind": "multiplier", "row": "a.csv:2", "until": null});
        state["keys"].as_array_mut().expect("a list").push(of_another_limit);
        state["live"] = json!({"text": "3 live exceptions: 1 block, 2 multipliers; 14 bans", "source": "redis",
            "age_s": 0.4, "version": "7", "kinds": [["block", 14]], "origins": [["penalty", 14]]});
        state["exceptions"] =
            json!({"block": {"rows": 3, "requests_15m": 413}, "exempt": {"rows": 0, "requests_15m": 0}});
        parsed_state(&state.to_string()).expect("a state")
    };
    let view = View::merged(&[live("a:1", with_rows("a", "1")), live("b:1", with_rows("b", "2"))]);
    assert_eq!(view.exceptions.block, RowsOfKind { rows: 3, requests_15m: 826 }, "both have the same files");
    let shown = text(&view, 20, 160);
    for line in [
        "3 rows block: 826 requests denied in 15 min.\n",
        "3 live exceptions: 1 block, 2 multipliers; 14 bans.\n",
        "edge.tenant.path_/search, blocked until 16:04:31 (blocks.yaml:3) ",
        "per-address (edge), exempt until 2026-11-22 ",
        "per-address (edge), 9 per day, limit changed (a.csv:2) ",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    assert_eq!(view.keys.len(), 3, "{:?}", view.keys);
}

#[test]
fn rows_are_counted_in_words() {
    let kind = |rows, requests_15m| RowsOfKind { rows, requests_15m };
    let said = |block, exempt| exceptions_text(&ConsoleExceptions { block, exempt });
    assert_eq!(said(kind(0, 0), kind(0, 0)), None);
    let both = "1 row blocks: 0 requests denied in 15 min. 2 rows exempt: 1,413 requests admitted in 15 min.";
    assert_eq!(said(kind(1, 0), kind(2, 1_413)).as_deref(), Some(both));
    // The exceptions have ended.
    assert_eq!(said(kind(0, 9), kind(0, 0)).as_deref(), Some("0 rows block: 9 requests denied in 15 min."));
}

#[test]
fn a_redis_that_is_away_has_no_latency() {
    let mut state = state_json("a", "1", END);
    state["store"]["answers"] = json!(false);
    state["series"]["store_p99_us"] = json!([49, null]);
    let state = parsed_state(&state.to_string()).expect("a state");
    let shown = text(&View::merged(&[live("a:1", state)]), 5, 160);
    assert!(shown.contains("Redis unavailable\n"), "{shown}");
}
