//! The proxies of `examples/` that ask `/check`: the shipped configurations, with other ports, in the real proxies in
//! front of the running service.

mod example;
mod hostile;
mod service;

use crate::support::redis::Redis;
use crate::support::wait;
use crate::tools::REMEDY;
use example::{Example, Running};

/// What the rule `writes` admits in a minute.
const WRITES: usize = 5;
/// More than the lines that a proxy logs about its own start.
const DENIALS: usize = 30;

/// In place of the deadlines of the examples, where no test is about them: a busy machine delays an answer longer.
const PATIENT: &[(&str, &str)] = &[("100ms", "3s"), ("500ms", "6s"), ("TIMEOUT = 500", "TIMEOUT = 6000")];

const NGINX: Example = Example {
    folder: "examples/nginx",
    files: &["nginx.conf"],
    program: "nginx",
    // One process: nothing outlives the test, and nothing changes its user.
    arguments: &["-e", "stderr", "-p", ".", "-g", "master_process off;", "-c", "nginx.conf"],
    for_the_test: &[(
        "http {",
        "http { client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; \
         uwsgi_temp_path uwsgi; scgi_temp_path scgi;",
    )],
    fails_closed: &[
        ("server 127.0.0.1:10001 backup;", ""),
        ("error_page 403 = @denied;", "error_page 403 = @denied; error_page 500 = @undecided;"),
        (
            "location @denied {",
            "location @undecided { add_header Retry-After 1 always; return 503; } location @denied {",
        ),
    ],
    refusals: &[503],
    behind_a_proxy: &[(
        "events {}\n\nhttp {",
        "events {}\n\nhttp { set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;",
    )],
    remedy: "make tools",
};

const CADDY: Example = Example {
    folder: "examples/caddy",
    files: &["Caddyfile"],
    program: "caddy",
    arguments: &["run", "--config", "Caddyfile"],
    for_the_test: &[],
    fails_closed: &[
        (
            "\t\t@undecided status 5xx\n\t\thandle_response @undecided {\n\t\t\tvars ratelimit undecided\n\t\t}\n",
            "",
        ),
        ("respond 204", "respond 503"),
    ],
    refusals: &[503],
    behind_a_proxy: &[
        ("uri /check\n", "uri /check\n\t\ttrusted_proxies 127.0.0.1/32\n"),
        ("from: request.remote_ip", "from: request.headers.X-Forwarded-For, take: trusted-hop 1"),
    ],
    remedy: REMEDY,
};

const HAPROXY: Example = Example {
    folder: "examples/haproxy",
    files: &["haproxy.cfg", "ratelimitd.lua"],
    program: "haproxy",
    arguments: &["-f", "haproxy.cfg"],
    for_the_test: &[("examples/haproxy/", "")],
    fails_closed: &[("# http-request return status 503", "http-request return status 503")],
    refusals: &[503],
    behind_a_proxy: &[(
        "    http-request lua.ratelimitd\n",
        "    http-request set-src req.hdr_ip(x-forwarded-for,-1) if { src 127.0.0.1 }\n    http-request lua.ratelimitd\n",
    )],
    remedy: REMEDY,
};

const TRAEFIK: Example = Example {
    folder: "examples/traefik",
    files: &["traefik.yaml", "dynamic.yaml"],
    program: ".tools/bin/traefik",
    arguments: &["--configFile=traefik.yaml"],
    for_the_test: &[("examples/traefik/", "")],
    fails_closed: &[("service: check\n", "service: ratelimitd\n")],
    // 502 until its probe has failed.
    refusals: &[502, 503],
    behind_a_proxy: &[
        (
            "address: 127.0.0.1:10000\n",
            "address: 127.0.0.1:10000\n    forwardedHeaders: { trustedIPs: [127.0.0.1/32] }\n",
        ),
        ("format: json\n", "format: json\n  fields: { headers: { names: { X-Forwarded-For: keep } } }\n"),
        ("middlewares: [ratelimitd]", "middlewares: [not-of-the-client, ratelimitd]"),
        (
            "  middlewares:\n    ratelimitd:\n",
            "  middlewares:\n    not-of-the-client: { headers: { customRequestHeaders: \
             { X-Forwarded-Method: \"\", X-Forwarded-Uri: \"\" } } }\n    ratelimitd:\n",
        ),
        ("trustForwardHeader: false", "trustForwardHeader: true"),
        ("from: ClientHost", "from: request_X-Forwarded-For, take: trusted-hop 1"),
    ],
    remedy: "make check-traefik",
};

/// Denials reach the client, cost the proxy no line of its error log and no connection, and are those of a simulation
/// of its access log.
fn check_denials(example: &Example) {
    let proxy = Running::start(example, &[], PATIENT);
    let admitted = [(); WRITES].map(|()| proxy.post(&[]).status);
    assert_eq!(admitted, [200; WRITES]);
    let (errors, connections) = (proxy.error_lines(), proxy.connections());
    for _ in 0..DENIALS {
        let denied = proxy.post(&[]);
        assert_eq!(denied.status, 429, "{denied:?}");
        let wait: u64 = denied.header("retry-after").expect("Retry-After").parse().expect("seconds");
        assert!((1..=60).contains(&wait), "{denied:?}");
        assert!(
            denied.header("ratelimit").is_some_and(|limits| limits.contains("\"writes\";r=0")),
            "{denied:?}"
        );
        assert!(
            denied.header("ratelimit-policy").is_some_and(|policy| policy.contains("q=5;w=60")),
            "{denied:?}"
        );
    }
    // Some proxies open a connection for each probe of the service's health.
    let opened = proxy.connections() - connections;
    assert!(opened < DENIALS / 2, "{opened} connections for {DENIALS} calls");

    check_agreement(&proxy, WRITES, DENIALS);
    let logged = proxy.error_lines() - errors;
    assert!(logged < DENIALS / 2, "{logged} lines for {DENIALS} denials");
}

/// A client chooses neither its address nor its method, and no header of its own ends in an error.
fn check_forged_headers(example: &Example) {
    let forged = [
        ("x-forwarded-for", "198.51.100.7"),
        ("x-forwarded-method", "GET"),
        ("x-forwarded-uri", "/other"),
        ("x-forwarded-host", "other.example"),
        ("x-original-method", "GET"),
        ("x-original-uri", "/other"),
        ("x-original-url", "/other"),
        ("x-original-host", "other.example"),
    ];
    let proxy = Running::start(example, &[], PATIENT);
    let codes = [(); WRITES + 1].map(|()| proxy.post(&forged).status);
    assert_eq!(codes, [200, 200, 200, 200, 200, 429]);
}

/// With the changes for a load balancer in front, the address that it adds is the client, in the log as well.
fn check_behind_a_proxy(example: &Example) {
    let proxy = Running::start(example, example.behind_a_proxy, PATIENT);
    let post = |address: &str| {
        // The first address, the method and the path may be written by the client itself.
        let addresses = format!("203.0.113.9, {address}");
        let forged = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/other")];
        proxy.post(&[&forged[..], &[("x-forwarded-for", &addresses)]].concat()).status
    };
    assert_eq!([(); WRITES + 1].map(|()| post("198.51.100.7")), [200, 200, 200, 200, 200, 429]);
    assert_eq!(post("198.51.100.8"), 200);
    check_agreement(&proxy, WRITES + 1, 1);
}

/// A simulation of the access log, which has this many requests that are admitted and denied, denies the same requests.
fn check_agreement(proxy: &Running, admitted: usize, denied: usize) {
    wait::expect("the access log", || proxy.access_log().matches("POST").count() == admitted + denied);
    let report = proxy.simulate();
    let agreement = &report["method"]["agreement"];
    assert_eq!(report["method"]["unreadable"], 0, "{agreement}");
    let counts = ["both_deny", "only_recorded", "only_simulated"].map(|field| agreement[field].as_u64());
    assert_eq!(counts, [Some(denied as u64), Some(0), Some(0)], "{agreement}\n{}", proxy.access_log());
}

/// Without ratelimitd the requests pass, whether it refuses connections or is silent; the limit holds again after it.
fn check_fails_open(example: &Example) {
    let mut proxy = Running::start(example, &[], &[]);
    for outage in [Running::stop_service, Running::silence_service] {
        outage(&mut proxy);
        let passed = [(); 2 * WRITES].map(|()| proxy.post(&[]).status);
        assert_eq!(passed, [200; 2 * WRITES]);
        proxy.end_outage();
        wait::expect("the limit holds again", || proxy.post(&[]).status == 429);
    }
}

/// An error of ratelimitd, here because Redis is away, is no decision either.
fn check_store_outage(example: &Example) {
    let mut redis = Redis::start();
    let proxy = Running::start_with_redis(example, redis.url());
    redis.stop();
    wait::expect("ratelimitd cannot decide", || proxy.check() == 500);
    let passed = [(); 2 * WRITES].map(|()| proxy.post(&[]).status);
    assert_eq!(passed, [200; 2 * WRITES]);
}

/// With the change that the page of the example names, no request passes without a decision.
fn check_fails_closed(example: &Example) {
    let mut proxy = Running::start(example, example.fails_closed, PATIENT);
    assert_eq!(proxy.post(&[]).status, 200);
    proxy.stop_service();
    let codes = [(); 2 * WRITES].map(|()| proxy.post(&[]).status);
    assert!(codes.iter().all(|code| example.refusals.contains(code)), "{codes:?}");
    proxy.end_outage();
    wait::expect("requests pass again", || proxy.post(&[]).status == 200);
}

macro_rules! tests_of {
    ($($module:ident: $example:ident),*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn denials() {
                check_denials(&$example);
            }

            #[test]
            fn forged_headers() {
                check_forged_headers(&$example);
            }

            #[test]
            fn behind_a_proxy() {
                check_behind_a_proxy(&$example);
            }

            #[test]
            fn hostile_requests() {
                hostile::check(&$example, &[]);
            }

            #[test]
            fn around_the_balancer() {
                hostile::check_around_the_balancer(&$example);
            }

            #[test]
            fn fails_open() {
                check_fails_open(&$example);
            }

            #[test]
            fn store_outage() {
                check_store_outage(&$example);
            }

            #[test]
            fn fails_closed() {
                check_fails_closed(&$example);
            }
        }
    )*};
}

/// Caddy then passes on heads that ratelimitd refuses, and marks it as away if it does not get the answer.
#[test]
fn hostile_requests_through_a_caddy_without_a_bound() {
    hostile::check(&CADDY, &[("\tservers {\n\t\tmax_header_size 16KiB\n\t}\n", "")]);
}

#[test]
fn paths_with_dots_through_nginx() {
    hostile::check_paths_of_nginx(&NGINX);
}

tests_of!(nginx: NGINX, caddy: CADDY, haproxy: HAPROXY, traefik: TRAEFIK);
