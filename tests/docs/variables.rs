//! The table of the variables of `envoyproxy/ratelimit`.

use ratelimitd::envoy_ratelimit::{RatelimitVariable, ratelimit_variables};
use ratelimitd::settings::Settings;

use crate::compare_or_update;

#[test]
fn the_table_of_variables_is_that_of_the_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/migrating.md");
    let page = std::fs::read_to_string(path).expect("docs/migrating.md");
    let head = "| variable, its default | setting | difference |\n|---|---|---|\n";
    let (before, rest) = page.split_once(head).expect("the head of the table");
    let (_, after) = rest.split_once("\n\n").expect("text follows the table");
    let variables = ratelimit_variables();
    let rows: Vec<String> = variables.iter().map(RatelimitVariable::documentation).collect();
    compare_or_update(path, &format!("{before}{head}{}\n\n{after}", rows.join("\n")));
}

#[test]
fn the_table_of_variables_names_settings_that_exist() {
    let keys: Vec<_> = Settings::catalogue().into_iter().map(|setting| setting.key).collect();
    for variable in ratelimit_variables() {
        let row = variable.documentation();
        let second = row.split('|').nth(2).expect("a second column");
        for key in second.split('`').skip(1).step_by(2) {
            assert!(keys.iter().any(|known| known == key), "{row}: there is no setting {key}");
        }
    }
}
