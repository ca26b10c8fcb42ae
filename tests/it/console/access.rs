//! Which senders the console answers: never a foreign host name or page.

use super::RULES;
use crate::support::http::{connect, exchange};
use crate::support::process::{Plan, Ratelimitd};

fn status(service: &Ratelimitd, request: &str, headers: &[&str]) -> u16 {
    let lines: Vec<&str> = [request].into_iter().chain(headers.iter().copied()).collect();
    exchange(connect(service.admin_port()).expect("a connection"), &lines, "").expect("an answer").status
}

#[test]
fn the_console_is_closed_to_foreign_pages_and_names() {
    let services = [
        Ratelimitd::start(RULES),
        // The console stays closed where other pages are open.
        Plan::new(RULES).set("server.admin.read_by_any_host", true).start(),
    ];
    for service in &services {
        let state = "GET /console/state HTTP/1.1";
        assert_eq!(status(service, state, &["host: localhost"]), 200);
        assert_eq!(status(service, state, &["host: 127.0.0.1:6070", "sec-fetch-site: same-origin"]), 200);
        let refused: [(&[&str], u16); 6] = [
            (&["host: evil.example"], 421),
            (&["host: evil.example:6070", "sec-fetch-site: same-origin"], 421),
            (&["host: localhost", "sec-fetch-site: cross-site"], 403),
            (&["host: localhost", "sec-fetch-site: cross-site", "sec-fetch-dest: document"], 403),
            (&["host: localhost", "origin: http://localhost:3000"], 403),
            (&["host: localhost", "origin: null"], 403),
        ];
        for (headers, expected) in refused {
            for path in ["/console/state", "/console/state?rules=all", "/console/events"] {
                assert_eq!(
                    status(service, &format!("GET {path} HTTP/1.1"), headers),
                    expected,
                    "{path} {headers:?}"
                );
            }
        }
        for path in ["/console/show", "/console/reset", "/console/values", "/console/except", "/explain"] {
            let post = format!("POST {path} HTTP/1.1");
            let json = "content-type: application/json";
            assert_eq!(status(service, &post, &["host: evil.example", json]), 421, "{path}");
            assert_eq!(status(service, &post, &["host: localhost", "origin: null", json]), 403, "{path}");
        }
    }
    assert_eq!(status(&services[0], "POST /console/show HTTP/1.1", &["host: localhost"]), 415);
    let json = ["host: localhost", "content-type: application/json"];
    assert_eq!(status(&services[1], "POST /console/show HTTP/1.1", &json), 403, "it needs a token");
}
