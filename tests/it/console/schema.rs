//! The state has exactly the fields that `docs/console-state.schema.json` describes.

use serde_json::{Value, json};

use super::{RULES, ask, post, state_with};
use crate::support::json_schema;
use crate::support::process::Ratelimitd;

#[test]
fn the_state_has_the_fields_of_its_schema() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/console-state.schema.json");
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("the schema")).expect("JSON");
    let service = Ratelimitd::start(RULES);
    let empty = state_with(&service, "a second", |state| !state["series"]["requests"][0].is_null());
    json_schema::check(&empty, &schema, "state of an idle process");
    for _ in 0..3 {
        ask(&service, "edge", &[("user", "ann@example.org")]);
        ask(&service, "edge", &[("usr", "ann")]);
    }
    let row = json!({"domain": "edge", "key": "user", "value": "bob", "block": true, "until": "1h"});
    let set = post(&service, "/exceptions/set", &json!({"rows": [row], "reason": "a test"}), "");
    assert_eq!(set.status, 200, "{}", set.body);
    std::fs::write(service.rules().join("rules.yaml"), RULES.replace("unit: day", "unit: dya"))
        .expect("a rule file");
    let is_full = |state: &Value| {
        let has = |part: &Value| !part.is_null();
        has(&state["keys"][0])
            && has(&state["marks"][0])
            && has(&state["rules"]["rejected"])
            && has(&state["live"]["kinds"][0])
    };
    let full = state_with(&service, "keys, a mark, rejected rules and a live exception", is_full);
    json_schema::check(&full, &schema, "state");
}
