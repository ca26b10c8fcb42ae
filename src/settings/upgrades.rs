//! `upgrades`: a table that adds fields to limits whose rules cannot express them.

use engine::{Algorithm, Charging, Glob};
use rules::{Upgrade, UpgradeColumn};

use super::error::Fault;
use super::parsers::Parser;
use super::reader::{Reader, Row, Table};

/// Columns that select a row's limits.
const MATCHED: [&str; 3] = ["domain", "path", "limit_name"];

/// Each limit is compared with each row when rules are loaded.
const MAX_ROWS: usize = 1_000;

pub(super) fn upgrades_from_reader(reader: &mut Reader) -> Vec<Upgrade> {
    let columns: Vec<_> = MATCHED.into_iter().chain(UpgradeColumn::all().map(|column| column.name)).collect();
    let table = Table { key: "upgrades", columns: &columns, max_rows: MAX_ROWS };
    table.read_rows(reader, |row| Some(upgrade(row)))
}

fn upgrade(row: &mut Row<'_>) -> Upgrade {
    let [domain, path, limit_name] = MATCHED.map(|name| row.text(name).map_or(Glob::Any, Glob::new));
    let mut upgrade = Upgrade { domain, path, limit_name, ..Upgrade::default() };
    for column in UpgradeColumn::all() {
        let accepted = move |text: &str| column.accepts(text).then(|| text.to_owned());
        if let Some(text) = row.cell(column.name, &Parser::new(column.expected(), accepted)) {
            upgrade.fields.insert(column.name, text);
        }
    }
    // A malformed field is its own problem.
    if UpgradeColumn::all().all(|column| row.text(column.name).is_none()) {
        row.refuse(Fault::Unsupported("the row sets no field of a limit"));
    }
    let algorithm: Option<Algorithm> = upgrade.parsed("algorithm");
    if algorithm == Some(Algorithm::Concurrency) {
        row.refuse_cell("algorithm", Fault::Unsupported("concurrency needs a rule that asks for it"));
    }
    if upgrade.sets("burst") && algorithm.is_some_and(|algorithm| !algorithm.has_burst()) {
        row.refuse_cell("burst", Fault::Unsupported("the algorithm of the row does not take a burst"));
    }
    if upgrade.sets("reserve") && upgrade.parsed("charging") == Some(Charging::Postpaid) {
        row.refuse_cell("reserve", Fault::Unsupported("a row with charging: postpaid cannot reserve"));
    }
    upgrade
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::settings::tests::{load_layers, short};
    use crate::settings::{SettingProblem, Settings, SettingsError};

    fn of_variable(text: &str) -> Result<Settings, SettingsError> {
        load_layers(None, [("RATELIMITD__UPGRADES".to_owned(), text.to_owned())])
    }

    fn of_file(text: &str) -> Result<Settings, SettingsError> {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("room for a few bytes");
        load_layers(Some(file.path()), [])
    }

    fn problems(result: Result<Settings, SettingsError>) -> Vec<String> {
        let Err(SettingsError::Invalid(problems)) = result else { panic!("expected problems: {result:?}") };
        let text = |problem: &SettingProblem| {
            format!("{}: {}: {}", short(&problem.origin), problem.key, problem.fault)
        };
        problems.0.iter().map(text).collect()
    }

    #[test]
    fn a_table_is_the_same_in_a_file_and_in_the_environment() {
        let file = "upgrades:\n  - {domain: 'default/*', algorithm: gcra, burst: 5}\n  - shadow_mode: true\n";
        let variable = "[{domain: 'default/*', algorithm: gcra, burst: 5}, {shadow_mode: true}]";
        let fields = |fields: &[(&'static str, &str)]| {
            fields.iter().map(|&(column, text)| (column, text.to_owned())).collect()
        };
        let expected = [
            Upgrade {
                domain: Glob::new("default/*"),
                fields: fields(&[("algorithm", "gcra"), ("burst", "5")]),
                ..Upgrade::default()
            },
            Upgrade { fields: fields(&[("shadow_mode", "true")]), ..Upgrade::default() },
        ];
        assert_eq!(of_file(file).expect("valid").upgrades, expected);
        assert_eq!(of_variable(variable).expect("valid").upgrades, expected);
        assert!(of_file("upgrades: []").expect("valid").upgrades.is_empty());
    }

    #[test]
    fn each_problem_names_row_column_and_line() {
        let file = "upgrades:\n  - domain: a\n  - algoritm: gcra\n    burst: 0\n  - text\n  - algorithm: fixed_window\n    burst: 3\n  - algorithm: tokens\n    charging:\n";
        let expected = [
            "file:2: upgrades[0]: the row sets no field of a limit",
            "file:3: upgrades[1].algoritm: no such setting; did you mean 'algorithm'?",
            "file:4: upgrades[1].burst: expected a whole number from 1 to 4294967295, found \"0\"",
            "file:5: upgrades[2]: expected a row with columns",
            "file:7: upgrades[3].burst: the algorithm of the row does not take a burst",
            "file:8: upgrades[4].algorithm: expected one of fixed_window, sliding_window, sliding_log, gcra, token_bucket, leaky_bucket, concurrency, found \"tokens\"",
            "file:9: upgrades[4].charging: expected a text",
        ];
        assert_eq!(problems(of_file(file)), expected);
        assert_eq!(
            problems(of_variable("gcra")),
            [
                "RATELIMITD__UPGRADES: upgrades: expected a list of rows, each with some of: domain, path, limit_name, algorithm, burst, charging, on_store_failure, reserve, ledger, lease, notify, shadow_mode, found \"gcra\""
            ]
        );
    }
}
