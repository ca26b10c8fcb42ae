//! `ratelimitctl check` shows the end of the window in local time.

use std::process::Command;

use crate::support::process::Plan;

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: month, requests_per_unit: 2, calendar: Asia/Tokyo, name: per user } }
  - { key: plain, rate_limit: { unit: month, requests_per_unit: 2 } }
";

#[test]
fn check_shows_when_the_next_window_starts() {
    let service = Plan::new(RULES).set("response.dynamic_metadata", true).start();
    let address = format!("127.0.0.1:{}", service.grpc_port());
    let output = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args([
            "check",
            "--address",
            &address,
            "--timeout",
            "10s",
            "--domain",
            "shop",
            "user=ann",
            "plain=ann",
        ])
        .output()
        .expect("the binary runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[1].starts_with("  user=ann: OK, 1 of 2 per month left, resets in "), "{text}");
    // Tokyo has no summer time.
    assert!(lines[1].ends_with("-01 00:00:00 +09:00 (Asia/Tokyo)"), "{text}");
    assert!(!lines[2].contains("next window"), "{text}");
}
