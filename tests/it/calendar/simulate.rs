//! `simulate` counts in the windows of the log's time, however old the log is.

use std::time::UNIX_EPOCH;

use crate::simulate::Simulation;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: users, unit: month, requests_per_unit: 2, algorithm: fixed_window, calendar: Europe/Berlin }
";
const MAP: &str = "
domain: d
time: { from: t, unit: ms }
descriptors:
  - - { key: user, from: user }
";

/// Two months of summer time in Berlin, which begin at 22:00 UTC. Windows of 30 days from the epoch end at other times.
const TIMES: [&str; 7] = [
    "2019-05-31T21:59:58Z",
    "2019-05-31T21:59:59Z",
    "2019-05-31T22:00:00Z",
    "2019-06-10T00:00:00Z",
    "2019-06-30T21:59:59Z", // the third one of June
    "2019-06-30T22:00:00Z",
    "2019-07-01T22:00:00Z",
];

#[test]
fn months_of_an_old_log_are_those_of_the_calendar() {
    let line = |time: &str| {
        let at =
            humantime::parse_rfc3339(time).expect("a time").duration_since(UNIX_EPOCH).expect("after 1970");
        format!("{{\"t\":{},\"user\":\"ann\"}}\n", at.as_millis())
    };
    let log: String = TIMES.into_iter().map(line).collect();
    let ended = Simulation::new(RULES).map(MAP).log("a.json", &log).with(&["--algorithms"]).succeed();
    assert_eq!((ended.of_rule("users", "asked"), ended.of_rule("users", "over")), (7, 1));
    let rule = &ended.report["rules"][0];
    assert_eq!(rule["calendar"], "Europe/Berlin/month/1");
    // What other numbers would do: the months have two, three and two requests.
    let denied = |limit: u64| {
        let points = rule["what_if"]["points"].as_array().expect("points");
        let point =
            points.iter().find(|point| point["limit"] == limit).unwrap_or_else(|| panic!("no {limit}"));
        point["denied"].as_u64().expect("a count")
    };
    assert_eq!([1, 2, 3].map(denied), [4, 1, 0]);
    assert!(ended.stdout.contains("2/Europe/Berlin/month/1 fixed_window"), "{}", ended.stdout);
}
