//! The recorded behaviours, compared with what statsd and DogStatsD got there.

use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;

use serde_json::json;

use super::behaviour::{Behaviour, Values};
use crate::support::grpc::Rls;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::{http, wait};

/// The page that says what is different.
const PAGE: &str = include_str!("../../../docs/metrics.md");

/// Lines that differ on purpose.
struct Difference {
    /// In the behaviour with this name; in all, if it is empty.
    behaviour: &'static str,
    /// Lines of theirs that begin so are not sent here.
    gone: &'static [&'static str],
    /// Lines that are not sent there, or with another value.
    here: &'static [(&'static str, u64)],
    /// The row of the page that says so.
    documented: &'static str,
}

const DIFFERENCES: [Difference; 8] = [
    Difference {
        behaviour: "",
        gone: &["ratelimit.redis_pool.", "ratelimit.redis_per_second_pool."],
        here: &[],
        documented: "| M11 |",
    },
    Difference {
        behaviour: "13-override",
        gone: &["ratelimit.service.rate_limit.shop.", "ratelimit.service.rate_limit.nodomain."],
        here: &[
            ("ratelimit.service.rate_limit.override.override.total_hits", 4),
            ("ratelimit.service.rate_limit.override.override.over_limit", 1),
            ("ratelimit.service.rate_limit.override.override.near_limit", 1),
            ("ratelimit.service.rate_limit.override.override.within_limit", 3),
            ("ratelimit.service.rate_limit.domain_not_found", 1),
        ],
        documented: "| M1 |",
    },
    Difference {
        behaviour: "14-unknown-domain",
        gone: &["ratelimit.service.rate_limit.nowhere.", "ratelimit.service.rate_limit.else."],
        here: &[("ratelimit.service.rate_limit.domain_not_found", 4)],
        documented: "| M2 |",
    },
    Difference {
        behaviour: "17-local-cache",
        gone: &[
            "ratelimit.localcache.averageAccessTime",
            "ratelimit.localcache.evacuateCount",
            "ratelimit.localcache.expiredCount",
            "ratelimit.localcache.overwriteCount",
            "ratelimit.service.rate_limit.shop.sh.over_limit_with_local_cache",
        ],
        here: &[("ratelimit.localcache.lookupCount", 6), ("ratelimit.localcache.missCount", 2)],
        documented: "| M12 |",
    },
    Difference {
        behaviour: "17-local-cache",
        gone: &[],
        here: &[
            ("ratelimit.localcache.hitCount", 4),
            ("ratelimit.service.rate_limit.shop.user.over_limit_with_local_cache", 6),
        ],
        documented: "| M15 |",
    },
    Difference {
        behaviour: "19-odd-names",
        gone: &["ratelimit.service.rate_limit.shop/eu_1.ip_line\nbreak."],
        here: &[
            ("ratelimit.service.rate_limit.shop/eu_1.ip_line_break.total_hits", 1),
            ("ratelimit.service.rate_limit.shop/eu_1.ip_line_break.within_limit", 1),
        ],
        documented: "| M9 |",
    },
    Difference { behaviour: "20-extra-tags", gone: &["reserved_tag"], here: &[], documented: "| M9 |" },
    // What was counted before the last flush is sent: here, nothing was.
    Difference {
        behaviour: "22-reload",
        gone: &["ratelimit.service.rate_limit.shop."],
        here: &[],
        documented: "| M4 |",
    },
];

fn expected_here(behaviour: &str, there: &Values) -> Values {
    let mut here = there.clone();
    for difference in &DIFFERENCES {
        if difference.behaviour.is_empty() || difference.behaviour == behaviour {
            here.retain(|series, _| !difference.gone.iter().any(|start| series.starts_with(start)));
            here.extend(difference.here.iter().map(|&(series, value)| (series.to_owned(), value)));
        }
    }
    if behaviour == "28-mogrifiers" {
        // The same as in 14-unknown-domain.
        here.remove("ratelimit.service.rate_limit.nowhere.domain_not_found");
        here.insert("ratelimit.service.rate_limit.domain_not_found".to_owned(), 1);
    }
    here
}

#[test]
fn every_difference_of_the_lines_is_documented() {
    for Difference { documented, .. } in &DIFFERENCES {
        assert!(PAGE.contains(documented), "docs/metrics.md does not have {documented:?}");
    }
}

/// Counters are summed, of gauges the last value counts, of durations their number. Tags are sorted.
fn summed(lines: &str) -> Values {
    let mut values = Values::new();
    for line in lines.lines() {
        let (name, rest) = line.split_once(':').unwrap_or_else(|| panic!("{line}"));
        let mut parts = rest.split('|');
        let (value, kind) = (parts.next().expect("a value"), parts.next().expect("a kind"));
        let mut tags: Vec<_> = parts.next().map_or_else(Vec::new, |tags| tags[1..].split(',').collect());
        tags.sort_unstable();
        let series = if tags.is_empty() { name.to_owned() } else { format!("{name}|#{}", tags.join(",")) };
        let value: u64 = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        match kind {
            "c" => *values.entry(series).or_default() += value,
            "g" => {
                values.insert(series, value);
            }
            "ms" => *values.entry(series).or_default() += 1,
            _ => panic!("{line}"),
        }
    }
    values
}

/// What has arrived. The process that sends has ended, so nothing is on its way.
fn datagrams(receive: impl Fn(&mut [u8]) -> std::io::Result<usize>) -> String {
    let (mut lines, mut packet) = (String::new(), [0; 65_536]);
    loop {
        match receive(&mut packet) {
            Ok(length) => {
                assert!(length <= 1_432, "a datagram of {length} bytes");
                lines.push_str(std::str::from_utf8(&packet[..length]).expect("text"));
                lines.push('\n');
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return lines,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Plays the behaviour until the process has ended. The last flush is at the end.
async fn play(behaviour: &Behaviour, plan: Plan, redis: &mut Option<Redis>) {
    let mut service = plan.set("server.drain", "0s").start();
    behaviour.play(&service, redis).await;
    service.terminate();
    assert!(service.wait_exit().success());
}

fn differences(behaviour: &Behaviour, there: &Values, lines: &str) -> Vec<String> {
    let (expected, found) = (expected_here(&behaviour.name, there), summed(lines));
    let names = expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name)));
    let different = names.filter(|name| expected.get(*name) != found.get(*name));
    let text = |name: &String| {
        format!("{}: {name}: expected {:?}, found {:?}", behaviour.name, expected.get(name), found.get(name))
    };
    different.map(text).collect()
}

/// Plays a behaviour that sends to `format` by UDP. Returns the lines that are different.
pub async fn compare(behaviour: &Behaviour, format: &str, mut redis: Option<Redis>) -> Vec<String> {
    let there = if format == "statsd" { &behaviour.statsd } else { &behaviour.dogstatsd };
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = format!("udp://{}", socket.local_addr().expect("an address"));
    let plan = behaviour
        .plan(redis.as_ref())
        .set("metrics.statsd.address", address)
        .set("metrics.statsd.format", format)
        .set("metrics.statsd.flush_interval", "1h")
        .set("metrics.statsd.mogrifiers", mogrifiers(behaviour));
    play(behaviour, plan, &mut redis).await;
    socket.set_nonblocking(true).expect("a socket option");
    differences(behaviour, there, &datagrams(|packet| socket.recv(packet)))
}

/// The mogrifiers of the environment, as the setting spells them.
fn mogrifiers(behaviour: &Behaviour) -> String {
    let names = behaviour.environment.get("USE_DOG_STATSD_MOGRIFIERS").map_or("", String::as_str);
    let variable = |name: &str, part: &str| {
        let name = format!("DOG_STATSD_MOGRIFIER_{name}_{part}");
        behaviour.environment.get(&name).cloned().unwrap_or_default()
    };
    let row = |name: &str| {
        json!({
            "pattern": variable(name, "PATTERN"),
            "name": variable(name, "NAME"),
            "tags": variable(name, "TAGS"),
        })
    };
    let rows: Vec<_> = names.split(',').filter(|name| !name.is_empty()).map(row).collect();
    json!(rows).to_string()
}

/// The behaviours that were recorded for `format`, with or without Redis.
pub fn recorded(format: &str, needs_redis: bool) -> Vec<Behaviour> {
    let is_recorded = |behaviour: &Behaviour| match format {
        "statsd" => !behaviour.statsd.is_empty(),
        _ => !behaviour.dogstatsd.is_empty(),
    };
    let all = Behaviour::all().into_iter();
    all.filter(|behaviour| is_recorded(behaviour) && behaviour.needs_redis() == needs_redis).collect()
}

#[tokio::test]
async fn recorded_behaviours_lead_to_the_recorded_lines_of_statsd() {
    let mut problems = Vec::new();
    for behaviour in recorded("statsd", false) {
        problems.extend(compare(&behaviour, "statsd", None).await);
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test]
async fn recorded_behaviours_lead_to_the_recorded_lines_of_dogstatsd() {
    let mut problems = Vec::new();
    for behaviour in recorded("dogstatsd", false) {
        problems.extend(compare(&behaviour, "dogstatsd", None).await);
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn one_level() -> Behaviour {
    let all = Behaviour::all();
    all.into_iter().find(|one| one.name == "02-one-level").expect("it is recorded")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statsd_over_tcp_gets_counters_at_the_interval_and_the_rest_at_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("tcp://{}", listener.local_addr().expect("an address"));
    let behaviour = one_level();
    let plan = behaviour.plan(None).set("metrics.statsd.address", address).set("server.drain", "0s");
    let mut service = plan.set("metrics.statsd.flush_interval", "100ms").start();
    // The connection is made by the first flush, so counters come before the end.
    let (mut stream, _) = listener.accept().expect("a connection");
    behaviour.play(&service, &mut None).await;
    service.terminate();
    assert!(service.wait_exit().success());
    let mut lines = String::new();
    stream.read_to_string(&mut lines).expect("lines until the end");
    assert_eq!(differences(&behaviour, &behaviour.statsd, &lines), [""; 0]);
}

#[tokio::test]
async fn counters_with_one_name_are_sent_as_their_sum() {
    const RULES: &str = "
domain: d
descriptors:
  - { key: path, value: 'a:b', rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: path, value: a_b, rate_limit: { unit: day, requests_per_unit: 100 } }
";
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = format!("udp://{}", socket.local_addr().expect("an address"));
    let plan = Plan::new(RULES).set("metrics.statsd.address", address).set("server.drain", "0s");
    let mut service = plan.set("metrics.statsd.flush_interval", "100ms").start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    for path in ["a:b", "a:b", "a:b", "a_b"] {
        rls.send_one("d", &[("path", path)]).await;
    }
    socket.set_read_timeout(Some(wait::PATIENCE)).expect("a socket option");
    // The flush with the hits, and two more: each sends this gauge.
    let (mut lines, mut packet) = (String::new(), [0; 65_536]);
    let later_flushes =
        |lines: &str| Some(lines.split_once("total_hits")?.1.matches("runtime.num_values").count());
    while later_flushes(&lines).is_none_or(|flushes| flushes < 3) {
        let length = socket.recv(&mut packet).expect("a flush");
        lines += std::str::from_utf8(&packet[..length]).expect("text");
        lines.push('\n');
    }
    service.terminate();
    assert!(service.wait_exit().success());
    socket.set_nonblocking(true).expect("a socket option");
    lines += &datagrams(|packet| socket.recv(packet));
    assert_eq!(summed(&lines)["ratelimit.service.rate_limit.d.path_a_b.total_hits"], 4);
}

#[tokio::test]
async fn dogstatsd_on_a_unix_socket_gets_the_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dsd.socket");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    let behaviour = one_level();
    let plan = behaviour.plan(None).set("metrics.statsd.address", format!("unix://{}", path.display()));
    play(&behaviour, plan.set("metrics.statsd.format", "dogstatsd"), &mut None).await;
    socket.set_nonblocking(true).expect("a socket option");
    let lines = datagrams(|packet| socket.recv(packet));
    assert_eq!(differences(&behaviour, &behaviour.dogstatsd, &lines), [""; 0]);
}

fn lost_lines(service: &Ratelimitd) -> u64 {
    let page = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let line = page.lines().find_map(|line| line.strip_prefix("ratelimitd_statsd_lost_lines_total "));
    line.and_then(|count| count.parse().ok()).expect("a count")
}

#[tokio::test]
async fn lines_that_cannot_be_sent_are_lost_and_counted_and_no_call_waits() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let no_listener = format!("tcp://{}", closed.local_addr().expect("an address"));
    drop(closed);
    // `.invalid` has no addresses: neither is the start an error.
    for address in [no_listener.as_str(), "udp://statsd.invalid:8125", "unix:///nowhere/dsd.socket"] {
        let behaviour = one_level();
        let plan = behaviour.plan(None).set("metrics.statsd.address", address).set("server.drain", "0s");
        let mut service = plan.set("metrics.statsd.flush_interval", "100ms").start();
        behaviour.play(&service, &mut None).await;
        wait::expect("lost lines", || lost_lines(&service) > 4);
        assert!(service.log().contains("cannot send metrics to statsd"), "{}", service.log());
        service.terminate();
        assert!(service.wait_exit().success());
    }
}

/// Its connections are made by the system, up to its backlog, and nothing reads them.
#[tokio::test]
async fn a_statsd_that_does_not_read_delays_no_call_and_no_stop() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("tcp://{}", listener.local_addr().expect("an address"));
    let behaviour = one_level();
    let plan = behaviour.plan(None).set("metrics.statsd.address", address);
    let plan = plan.set("metrics.statsd.flush_interval", "100ms");
    play(&behaviour, plan, &mut None).await;
}
