//! The stream of events.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::{RULES, ask, row};
use crate::support::http::connect;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;

const MOST_STREAMS: usize = 16;

/// An open stream.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(service: &Ratelimitd) -> Self {
        let mut stream = connect(service.admin_port()).expect("a connection");
        stream.write_all(b"GET /console/events HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("open");
        let mut events = Self(BufReader::new(stream));
        assert_eq!(events.line(), "HTTP/1.1 200 OK");
        let head: Vec<String> =
            std::iter::repeat_with(|| events.line()).take_while(|line| !line.is_empty()).collect();
        assert!(head.iter().any(|line| line == "content-type: text/event-stream"), "{head:?}");
        assert!(head.iter().any(|line| line == "cache-control: no-store"), "{head:?}");
        events
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// The next event: its name and its data. Lines with the lengths of chunks are left out.
    fn next(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let line = self.line();
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).expect("JSON"));
            }
        }
    }
}

#[test]
fn a_stream_begins_with_the_state_and_has_a_denial_within_two_seconds() {
    let service = Ratelimitd::start(RULES);
    assert!(!ask(&service, "edge", &[("user", "ann@example.org")]));
    let mut events = Events::open(&service);
    let (name, state) = events.next();
    assert_eq!((name.as_str(), &state["schema"]), ("state", &Value::from(1)));
    let denied_at = wait::unix_seconds();
    assert!(ask(&service, "edge", &[("user", "ann@example.org")]));
    loop {
        let (name, event) = events.next();
        let denied = match name.as_str() {
            "sample" => event["sample"]["denied"].as_u64(),
            "state" => event["series"]["denied"].as_array().and_then(|series| series.last()?.as_u64()),
            _ => None,
        };
        if denied == Some(1) {
            assert!(wait::unix_seconds() - denied_at <= 2);
            break;
        }
    }
    // The key that is new is in the next state, at the latest after ten seconds.
    let with_key = std::iter::repeat_with(|| events.next()).take(20).find(|(name, event)| {
        name == "state" && event["keys"].as_array().is_some_and(|keys| !keys.is_empty())
    });
    assert!(with_key.is_some());
}

/// Sixteen clients that never read cannot keep the console full.
#[test]
fn the_seventeenth_stream_takes_the_place_of_the_first() {
    let service = Ratelimitd::start(RULES);
    let mut open: Vec<_> = (0..MOST_STREAMS).map(|_| Events::open(&service)).collect();
    let mut late = Events::open(&service);
    assert_eq!(late.next().0, "state");
    late.next();
    let mut first = open.remove(0);
    assert_eq!(first.next().0, "state");
    // The end comes without an event, and the connection takes another request.
    let end = std::iter::repeat_with(|| first.line()).take(100).find(|line| line == "0");
    assert!(end.is_some(), "the first stream ends");
    for events in &mut open {
        assert_eq!(events.next().0, "state");
        events.next();
    }
}

#[test]
fn a_stop_ends_open_streams_with_a_last_event() {
    let mut service = Plan::new(RULES).set("server.drain", "0s").start();
    let mut streams = [Events::open(&service), Events::open(&service)];
    let stopped = wait::unix_seconds();
    service.terminate();
    for events in &mut streams {
        let end = std::iter::repeat_with(|| events.next()).find(|(name, _)| name == "end").expect("an end");
        assert_eq!(end.1["reason"], "the process stops");
    }
    assert!(service.wait_exit().success());
    assert!(wait::unix_seconds() - stopped <= 2, "no stream holds the stop up");
}

#[test]
fn a_reload_is_sent_at_once_as_a_state() {
    let service = Ratelimitd::start(RULES);
    let mut events = Events::open(&service);
    std::fs::write(service.rules().join("rules.yaml"), RULES.replace("unit: day", "unit: hour"))
        .expect("a file");
    let state = std::iter::repeat_with(|| events.next())
        .take(60)
        .find(|(name, event)| name == "state" && event["rules"]["generation"] == 2);
    let (_, state) = state.expect("a state");
    assert_eq!(state["marks"][0]["text"], "new rules");
    assert_eq!(row(&state, &Value::Null), None);
}
