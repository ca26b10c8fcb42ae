//! The waiting room of docs/recipes-proxies.md: requests reach the upstream in turn, and no client can change its wait.

use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::pages::{filters, recipe, recipe_route};
use super::{FAILED_OPEN, in_project};
use crate::support::envoy::upstream::Upstream;
use crate::support::envoy::{Bootstrap, Envoy, route};
use crate::support::process::Ratelimitd;
use crate::support::wait;

const DELAY: &str = "x-envoy-fault-delay-request";
const PERCENTAGE: &str = "x-envoy-fault-delay-request-percentage";
/// Requests that the fault filter has delayed.
const DELAYED: &str = "http.ingress.fault.delays_injected";
/// Requests that ratelimitd has admitted.
const ADMITTED: &str = "cluster.upstream.ratelimit.ok";
/// The middle one of the times between two requests: 50 ms, and the bar of 10 ms.
const MIDDLE_GAP: RangeInclusive<Duration> = Duration::from_millis(40)..=Duration::from_millis(60);

struct Room {
    envoy: Envoy,
    upstream: Upstream,
    _service: Ratelimitd,
}

impl Room {
    /// The room of the page; requests to `/free` have no limit.
    fn open() -> Self {
        let rules =
            std::fs::read_to_string(in_project("examples/recipes/waiting-room.yaml")).expect("the rules");
        let (service, upstream) = (Ratelimitd::start(&rules), Upstream::start(|_| 200));
        let page = recipe("A waiting room", "envoy");
        let bootstrap = Bootstrap::new(service.grpc_port())
            .upstream_port(upstream.port())
            .http_filters(filters(&page))
            .route(route("/free", json!([])))
            .route(recipe_route(&page));
        Self { envoy: Envoy::start(&bootstrap), upstream, _service: service }
    }

    /// Sends this many requests at the same time, and returns how many of them have this status.
    fn send(&self, count: usize, status: u16) -> usize {
        let statuses: Vec<u16> = thread::scope(|scope| {
            let clients: Vec<_> = (0..count).map(|_| scope.spawn(|| self.envoy.get("/").status)).collect();
            clients.into_iter().map(|client| client.join().expect("an answer")).collect()
        });
        statuses.into_iter().filter(|seen| *seen == status).count()
    }
}

#[test]
fn requests_reach_the_upstream_in_turn() {
    let room = Room::open();
    assert_eq!(room.send(30, 200), 30);
    let seen = room.upstream.seen();
    let times: Vec<Instant> = seen.iter().map(|request| request.at).collect();
    let mut gaps: Vec<Duration> =
        times.windows(2).map(|pair| pair[1].saturating_duration_since(pair[0])).collect();
    gaps.sort_unstable();
    assert!(MIDDLE_GAP.contains(&gaps[gaps.len() / 2]), "{gaps:?}");
    let whole: Duration = gaps.iter().sum();
    assert!(whole >= Duration::from_millis(1_350), "30 requests within {whole:?}");
    assert!(seen.iter().all(|request| request.header(DELAY).is_none()), "the upstream sees the header");
    assert_eq!(room.envoy.stat(FAILED_OPEN), 0);
}

#[test]
fn requests_above_the_burst_are_denied_at_once() {
    let room = Room::open();
    let denied = room.send(130, 429);
    // While the requests come, a few turns pass.
    assert!((5..=30).contains(&denied), "{denied} of 130 are denied");
    assert_eq!(room.upstream.seen().len(), 130 - denied);
    assert_eq!(room.envoy.stat("http.ingress.fault.faults_overflow"), 0);
}

#[test]
fn a_client_cannot_change_its_wait() {
    for forged in [(DELAY, "1"), (PERCENTAGE, "0"), (DELAY, "0")] {
        let room = Room::open();
        thread::scope(|scope| {
            let clients = scope.spawn(|| room.send(15, 200));
            wait::expect("the decisions", || room.envoy.stat(ADMITTED) == 15);
            assert_eq!(room.envoy.get_with("/forged", &[forged]).status, 200);
            assert_eq!(clients.join().expect("answers"), 15);
        });
        let last = room.upstream.seen().last().map(|request| request.path.clone());
        assert_eq!(last.as_deref(), Some("/forged"), "{forged:?}: it waits for its turn");
    }
}

#[test]
fn a_client_cannot_delay_itself_where_there_is_no_limit() {
    let room = Room::open();
    assert_eq!(room.envoy.get_with("/free", &[(DELAY, "600000")]).status, 200);
    assert_eq!((room.envoy.stat(DELAYED), room.upstream.seen().len()), (0, 1));
}
