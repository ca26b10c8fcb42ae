//! Live exceptions: what the state and the samples say of them, and the notices.

use engine::{PauseCause, PauseEvent};

use super::super::history::News;
use super::*;

fn blocks(rows: u64) -> LiveObserved {
    let [kinds, origins] = ["block", "operator"].map(|name| vec![(name.to_owned(), rows)]);
    let version = "1795701835000001".to_owned();
    let text = format!("{rows} blocks");
    LiveObserved { text, source: "redis".to_owned(), age_s: Some(0.4), version, kinds, origins }
}

fn sample(process: &Observed) -> ConsoleSample {
    let frame = process.console.history.lock().frame(News::Sample);
    let (_, sample) = frame.split_once("data: ").expect("an event");
    serde_json::from_str(sample.trim()).expect("a sample")
}

#[test]
fn the_state_and_the_samples_have_the_live_rows() {
    let mut process = Observed::start(1);
    assert_eq!(process.second()["live"], Value::Null, "rows cannot be set");
    process.live = Some(blocks(2));
    let state = process.second();
    let live = json!({
        "text": "2 blocks", "source": "redis", "age_s": 0.4, "version": "1795701835000001",
        "kinds": [["block", 2]], "origins": [["operator", 2]],
    });
    assert_eq!(state["live"], live);
    assert_eq!(serde_json::to_value(&sample(&process).live).expect("JSON"), live);
    let mut shown: ConsoleState = serde_json::from_value(state).expect("a state");
    process.live = Some(blocks(1));
    process.second();
    shown.add(sample(&process));
    assert_eq!(shown.live, Some(blocks(1)));
}

#[test]
fn old_rows_are_noticed_and_unknown_ones_once_redis_has_had_time_to_answer() {
    let mut process = Observed::start(1);
    let mut titles = |end, live| {
        (process.end, process.live) = (end - 1, Some(live));
        process.notices()
    };
    let aged = |age_s| LiveObserved { age_s, ..blocks(1) };
    let warn = |title: &str| vec![("warn".to_owned(), format!("▲ {title}"))];
    assert_eq!(titles(T0 + 10, aged(None)), []);
    assert_eq!(titles(T0 + 11, aged(None)), warn("The exceptions in Redis are not known yet."));
    assert_eq!(titles(T0 + 12, aged(Some(10.9))), []);
    assert_eq!(titles(T0 + 13, aged(Some(11.2))), warn("The exceptions in Redis were last read 11 s ago."));
    let of_process = LiveObserved { source: "process".to_owned(), ..aged(None) };
    assert_eq!(titles(T0 + 14, of_process), []);
}

#[test]
fn a_hundred_bans_in_five_minutes_are_noticed() {
    let mut process = Observed::start(1);
    process.live = Some(blocks(1));
    let ban = PauseEvent { domain: "d".into(), rule: "per-user".into(), cause: PauseCause::Unreadable };
    let mut titles = |bans| {
        (0..bans).for_each(|_| process.metrics.families.pauses.banned(&ban));
        process.notices()
    };
    assert_eq!(titles(99), []);
    (2..300).for_each(|_| assert_eq!(titles(0), []));
    let noticed = vec![("warn".to_owned(), "▲ 100 values banned in 5 minutes.".to_owned())];
    assert_eq!(titles(1), noticed, "the last second of five minutes");
    assert_eq!(titles(0), [], "the first 99 are older");
}
