//! The variables of `envoyproxy/ratelimit` in docs/migrating.md: each one, with its default and its settings.

use ratelimitd::envoy_ratelimit::{RatelimitVariable, ratelimit_variables};
use ratelimitd::settings::Settings;

/// The text below a heading of docs/migrating.md, up to the next heading.
fn section(heading: &str) -> &'static str {
    let page = include_str!("../../docs/migrating.md");
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).expect("the section");
    rest.split("\n#").next().unwrap_or_default()
}

/// The variables of a row, each with its default, and with the settings of the second cell. Variables may share a row.
fn starts(row: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut cells = row.trim_matches('|').split('|').map(str::trim);
    let (variables, settings) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
    variables.split(", ").map(move |variable| (variable, settings))
}

/// The variables in the table below a heading.
fn variables_below(heading: &str) -> Vec<(&'static str, &'static str)> {
    section(heading).lines().filter(|line| line.starts_with("| `")).flat_map(starts).collect()
}

#[test]
fn the_tables_have_every_variable_with_its_default_and_its_settings() {
    let variables: Vec<String> = ratelimit_variables().iter().map(RatelimitVariable::documentation).collect();
    let mut expected: Vec<_> = variables
        .iter()
        .flat_map(|row| starts(row))
        .filter(|(_, setting)| setting.starts_with('`'))
        .collect();
    let tables = ["### Work as before", "### Work, with a difference"];
    let mut found: Vec<_> = tables.into_iter().flat_map(variables_below).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "docs/migrating.md differs from the program");
}

#[test]
fn a_variable_with_a_difference_is_in_the_table_of_differences() {
    let [same, other] = ["### Work as before", "### Work, with a difference"].map(variables_below);
    for variable in ratelimit_variables() {
        let name = format!("`{}`", variable.name);
        let is_in = |table: &[(&str, &str)]| table.iter().any(|(start, _)| start.starts_with(&name));
        assert!(!variable.differs || !is_in(&same), "{name} is different");
        assert!(variable.differs || !is_in(&other), "{name} is the same");
    }
}

#[test]
fn the_variables_without_a_meaning_are_listed_as_ignored() {
    let ignored = section("### Ignored");
    for variable in ratelimit_variables() {
        let row = variable.documentation();
        let is_listed = ignored.contains(&format!("`{}`", variable.name));
        let is_meaningless = starts(&row).all(|(_, setting)| !setting.starts_with('`'));
        assert!(is_listed || !is_meaningless, "{}: not in docs/migrating.md", variable.name);
    }
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
