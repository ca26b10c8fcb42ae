//! The bounds of a pull request.

use super::{RULES, Simulation};

const MAP: &str = "domain: edge\ndescriptors:\n  - - { key: remote_address, from: remote_addr }\n";

/// Ten requests of one address in a minute: half are over five per minute.
fn log() -> String {
    let line = |second| {
        format!(
            "192.0.2.1 - - [15/Apr/2026:20:17:{second:02} +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"curl\"\n"
        )
    };
    (0..10).map(line).collect()
}

#[test]
fn a_broken_bound_ends_with_code_3_and_names_the_rule() {
    let good = format!("{MAP}good: code < 400\n");
    let table = [
        (
            &["--max-denied", "49.9999%"][..],
            3,
            "--max-denied 49.9999% is broken by per-address: 5 of 10 requests",
        ),
        (&["--max-denied", "50%"], 0, ""),
        (&["--max-good-denied", "10%"], 3, "5 of 10 good requests"),
        (&["--max-keys-hit", "0"], 3, "per-address: 1 of 1 keys"),
        (&["--max-keys-hit", "1", "--max-denied", "100%"], 0, ""),
    ];
    for (bounds, code, reason) in table {
        let ended = Simulation::new(RULES).map(&good).log("a.log", log()).with(bounds).run();
        assert_eq!(ended.code, code, "{bounds:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(reason), "{bounds:?}: {}", ended.stderr);
        let checks = ended.report["bounds"].as_array().expect("bounds");
        assert_eq!(checks.iter().all(|check| check["is_kept"] == true), code == 0, "{checks:?}");
    }
}

#[test]
fn a_bound_that_cannot_be_checked_is_refused() {
    let ended = Simulation::new(RULES).map(MAP).log("a.log", log()).with(&["--max-good-denied", "1%"]).run();
    assert!(ended.code == 2 && ended.stderr.contains("`good`"), "{}", ended.stderr);
    let ended = Simulation::new(RULES).map(MAP).log("a.log", log()).with(&["--max-denied", "0.5"]).run();
    assert!(ended.code == 2 && ended.stderr.contains("0.5%"), "{}", ended.stderr);
}
