//! The recipe of docs/recipes-proxies.md that counts only failures: a login that succeeds returns its unit.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::in_project;
use super::pages::{recipe, recipe_route};
use crate::support::envoy::upstream::{Seen, Upstream};
use crate::support::envoy::{Bootstrap, Envoy};
use crate::support::process::Ratelimitd;
use crate::support::{http, wait};

const DENIED: &str = "cluster.upstream.ratelimit.over_limit";
const ACTIVE: &str = "http.ingress.downstream_rq_active";
/// The failures that the rules of the recipe allow.
const LIMIT: u64 = 5;

struct Logins {
    envoy: Envoy,
    service: Ratelimitd,
    upstream: Upstream,
    /// Requests to `/held` are answered from then on.
    released: Arc<AtomicBool>,
}

/// 401, unless the password is right.
fn login(request: &Seen, released: &AtomicBool) -> u16 {
    if request.path == "/held" {
        wait::expect("the test goes on", || released.load(Ordering::SeqCst));
    }
    if request.header("x-password") == Some("right") { 200 } else { 401 }
}

impl Logins {
    fn start() -> Self {
        let rules =
            std::fs::read_to_string(in_project("examples/recipes/failed-logins.yaml")).expect("the rules");
        let released = Arc::new(AtomicBool::new(false));
        let upstream = Upstream::start({
            let released = Arc::clone(&released);
            move |request: &Seen| login(request, &released)
        });
        let service = Ratelimitd::start(&rules);
        let bootstrap = Bootstrap::new(service.grpc_port())
            .domain("failed-logins")
            .upstream_port(upstream.port())
            .fail_closed()
            .route(recipe_route(&recipe("Count only failures", "envoy")));
        Self { envoy: Envoy::start(&bootstrap), service, upstream, released }
    }

    fn attempt(&self, path: &str, login: &str, password: &str) -> u16 {
        self.envoy.get_with(path, &[("x-login", login), ("x-password", password)]).status
    }

    /// Twelve attempts at the same time, which the upstream answers when all are decided. Returns their statuses.
    fn at_once(&self, login: &str, password: &str) -> Vec<u16> {
        thread::scope(|scope| {
            let attempts: Vec<_> =
                (0..12).map(|_| scope.spawn(|| self.attempt("/held", login, password))).collect();
            wait::expect("the denials", || self.envoy.stat(DENIED) == 12 - LIMIT);
            wait::expect("the requests", || self.upstream.seen().len() as u64 == LIMIT);
            self.released.store(true, Ordering::SeqCst);
            let mut statuses: Vec<u16> =
                attempts.into_iter().map(|attempt| attempt.join().expect("an answer")).collect();
            statuses.sort_unstable();
            statuses
        })
    }

    /// The failures that the login has left.
    fn left(&self, login: &str) -> u64 {
        self.service.left("failed-logins", ("login", login))
    }

    /// Envoy settles after the response.
    fn expect_left(&self, login: &str, units: u64) {
        wait::expect(&format!("{units} failures left for {login}"), || self.left(login) == units);
    }
}

#[test]
fn only_failures_are_counted() {
    let logins = Logins::start();
    for _ in 0..8 {
        assert_eq!(logins.attempt("/", "ann", "right"), 200);
        logins.expect_left("ann", LIMIT);
    }
    let guesses: Vec<u16> = (0..7).map(|_| logins.attempt("/", "ann", "wrong")).collect();
    assert_eq!(guesses, [401, 401, 401, 401, 401, 429, 429]);
    assert_eq!(logins.attempt("/", "ann", "right"), 429);
    assert_eq!(logins.attempt("/", "bob", "right"), 200);
}

#[test]
fn guesses_at_the_same_time_cannot_pass_together() {
    let logins = Logins::start();
    let statuses = logins.at_once("ann", "wrong");
    assert_eq!(statuses, [[401_u16; 5].as_slice(), &[429; 7]].concat());
    assert_eq!(logins.attempt("/", "ann", "right"), 429);
}

#[test]
fn correct_logins_at_the_same_time_return_what_they_have_taken() {
    let logins = Logins::start();
    let statuses = logins.at_once("ann", "right");
    assert_eq!(statuses, [[200_u16; 5].as_slice(), &[429; 7]].concat());
    logins.expect_left("ann", LIMIT);
}

#[test]
fn a_guess_counts_if_its_client_hangs_up() {
    let logins = Logins::start();
    let mut stream = http::connect(logins.envoy.port("http")).expect("Envoy listens");
    let request = "GET /held HTTP/1.1\r\nhost: localhost\r\nx-login: ann\r\nx-password: wrong\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("Envoy reads");
    wait::expect("the request", || logins.upstream.seen().len() == 1);
    drop(stream);
    wait::expect("the end of the stream", || logins.envoy.stat(ACTIVE) == 0);
    assert_eq!(logins.left("ann"), LIMIT - 1);
    logins.released.store(true, Ordering::SeqCst);
    // Calls to the limiter are made in order: a late return of the unit would be here by now.
    assert_eq!(logins.attempt("/", "bob", "right"), 200);
    logins.expect_left("bob", LIMIT);
    assert_eq!(logins.left("ann"), LIMIT - 1);
}
