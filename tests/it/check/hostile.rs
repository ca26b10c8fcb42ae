//! Headers that no usual client sends.

use super::Checked;
use crate::support::http::{self, Response};

const MAP: &str = "
domain: edge
descriptors:
  - - { key: client, from: remote_addr, take: trusted-hop 1, strip: port, lowercase: true, template: [\"/**\"] }
  - - { key: path, from: path, strip: query, template: [\"/users/*\"] }
    - { key: method, from: method }
  - - { key: header, from: http_x_key }
    - { key: host, from: RequestHost }
  - - { key: before, from: http_x_forwarded_for, take: first }
keep: not path starts_with \"/none\"
";

fn send(checked: &Checked, path: &[u8], headers: &[(&str, &[u8])]) -> std::io::Result<Response> {
    http::get_with_bytes(checked.port(), path, headers)
}

#[test]
fn bytes_that_are_no_text_are_decided() {
    let checked = Checked::start(MAP);
    let pieces: [&[u8]; 14] = [
        b"\xff",
        b"\xc3",
        b"caf\xe9, \xff",
        b",",
        b",,, ,",
        b" ",
        b"[",
        b"]",
        b"[::1",
        b":",
        b"http://",
        b"https://\xff",
        b"http://[/\xff?\xc3",
        b"\t",
    ];
    let names = ["x-forwarded-for", "x-forwarded-uri", "x-forwarded-method", "x-forwarded-host", "x-key"];
    for name in names {
        for piece in pieces {
            for path in [&b"/check"[..], b"/check/%ff?%c3"] {
                let headers = [("x-original-thing", &b"x"[..]), (name, piece), ("x-forwarded-for", piece)];
                let answer = send(&checked, path, &headers).expect("an answer");
                assert!(matches!(answer.status, 200 | 429), "{name} {piece:?}: {answer:?}");
            }
        }
    }
    let answer = send(&checked, b"/check/\xff", &[("x-forwarded-for", b"192.0.2.1")]).expect("an answer");
    assert_eq!(answer.status, 400, "no path of HTTP");
    checked.assert_metric(r#"ratelimitd_request_errors_total{kind="panic",transport="http"} 0"#);
}

#[test]
fn long_and_many_headers_are_answered() {
    let checked = Checked::start(MAP);
    let long = |bytes: usize| send(&checked, b"/check", &[("x-forwarded-for", &b"1,".repeat(bytes / 2)[..])]);
    assert_eq!(long(30 << 10).expect("an answer").status, 200);
    for kib in [45, 64, 100, 500, 900] {
        for _ in 0..25 {
            assert_eq!(long(kib << 10).expect("an answer").status, 431, "{kib} KiB");
        }
    }
    let thousand = vec![("x-forwarded-for", &b"1"[..]); 1_000];
    assert_eq!(send(&checked, b"/check", &thousand).expect("an answer").status, 431);
    let many = vec![("x-forwarded-for", &b"1"[..]); 90];
    assert_eq!(send(&checked, b"/check", &many).expect("an answer").status, 200);
    assert_eq!(checked.get("/livez", &[]).status, 200);
}
