//! The variables of `envoyproxy/ratelimit` in docs/migrating.md: each one, with its default and its settings.

use ratelimitd::envoy_ratelimit::{RatelimitVariable, ratelimit_variables};
use ratelimitd::settings::Settings;

/// The text below a heading of docs/migrating.md, up to the next heading.
fn section(heading: &str) -> &'static str {
    let page = include_str!("../../docs/migrating.md");
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).expect("the section");
    rest.split("\n#").next().unwrap_or_default()
}

/// The variable with its default, and its settings: the first two cells of its row.
fn start(row: &str) -> (&str, &str) {
    let mut cells = row.trim_matches('|').split('|').map(str::trim);
    (cells.next().unwrap_or_default(), cells.next().unwrap_or_default())
}

/// The rows of the tables of variables that set something, without those of their heads.
fn rows() -> impl Iterator<Item = &'static str> {
    let tables = ["### Work as before", "### Work, with a difference"].map(section);
    tables.into_iter().flat_map(str::lines).filter(|line| line.starts_with("| `"))
}

#[test]
fn the_tables_have_every_variable_with_its_default_and_its_settings() {
    let variables: Vec<String> = ratelimit_variables().iter().map(RatelimitVariable::documentation).collect();
    let mut expected: Vec<_> =
        variables.iter().map(|row| start(row)).filter(|(_, setting)| setting.starts_with('`')).collect();
    let mut found: Vec<_> = rows().map(start).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "docs/migrating.md differs from the program");
}

#[test]
fn a_variable_with_a_difference_is_in_the_table_of_differences() {
    let (same, other) = (section("### Work as before"), section("### Work, with a difference"));
    for variable in ratelimit_variables() {
        let name = format!("| `{}`", variable.name);
        assert!(variable.difference.is_empty() || !same.contains(&format!("{name} ")), "{name} is different");
        assert!(
            !variable.difference.is_empty() || !other.contains(&format!("{name} ")),
            "{name} is the same"
        );
    }
}

#[test]
fn the_variables_without_a_meaning_are_listed_as_ignored() {
    let ignored = section("### Ignored");
    for variable in ratelimit_variables() {
        let row = variable.documentation();
        let is_listed = ignored.contains(&format!("`{}`", variable.name));
        let is_meaningless = !start(&row).1.starts_with('`');
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
