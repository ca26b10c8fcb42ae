//! The cases whose answers differ from those of the reference on purpose.

use super::case;

/// In the order of their names.
pub const DIFFERENCES: [&str; 15] = [
    // Parts of a counter's key are joined by `_`.
    "collision-of-two-descriptors",
    "composite-join-of-key-and-value",
    // Errors are gRPC `UNKNOWN`.
    "error-empty-domain",
    "error-no-descriptors",
    // `/json` answers `Bad Request` without a reason.
    "json-400-not-json",
    "json-400-service-errors",
    "json-400-wrong-fields",
    // `/json` takes any method with a body.
    "json-methods-with-a-body",
    // `/json` answers `Bad Request` without a reason.
    "json-methods-without-a-body",
    "json-number-spellings",
    // `detailed_metric`, `value_to_metric` put request values.
    "metadata-with-detailed-metric",
    "metadata-with-value-to-metric",
    // A bad first rule file starts a server.
    "no-configuration",
    // A limit of 0 has a counter.
    "override-zero-requests",
    // `STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT` still charges the counter that denies.
    "stop-increment-of-its-own",
];

#[test]
fn every_difference_is_a_case() {
    let cases = case::all();
    for name in DIFFERENCES {
        assert!(cases.iter().any(|case| case.name == name), "{name} is no case");
    }
    assert!(DIFFERENCES.is_sorted_by(|a, b| a < b), "sorted, each case once");
}
