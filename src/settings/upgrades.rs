//! `upgrades`: a table that gives fields to limits whose rules cannot say them.

use engine::{Algorithm, Charging, Glob};
use rules::Upgrade;

use super::error::Fault;
use super::parsers::{flag, named, positive};
use super::reader::{Reader, Row, Table};

/// The columns that set a field of a limit.
const FIELDS: [&str; 6] = ["algorithm", "burst", "charging", "on_store_failure", "reserve", "shadow_mode"];

const TABLE: Table = Table {
    key: "upgrades",
    columns: &[
        "domain",
        "path",
        "limit_name",
        FIELDS[0],
        FIELDS[1],
        FIELDS[2],
        FIELDS[3],
        FIELDS[4],
        FIELDS[5],
    ],
    // Each limit is compared with each row when rules are loaded.
    max_rows: 1_000,
};

pub(super) fn upgrades_from_reader(reader: &mut Reader) -> Vec<Upgrade> {
    TABLE.read_rows(reader, |row| Some(upgrade(row)))
}

fn upgrade(row: &mut Row<'_>) -> Upgrade {
    let [domain, path, limit_name] =
        ["domain", "path", "limit_name"].map(|name| row.text(name).map_or(Glob::Any, Glob::new));
    let upgrade = Upgrade {
        domain,
        path,
        limit_name,
        algorithm: row.cell("algorithm", &named::<Algorithm>()),
        burst: row.cell("burst", &positive(u32::MAX)),
        charging: row.cell("charging", &named()),
        on_store_failure: row.cell("on_store_failure", &named()),
        reserve: row.cell("reserve", &positive(u32::MAX)).map(u64::from),
        shadow_mode: row.cell("shadow_mode", &flag()),
    };
    // A malformed field has a problem of its own.
    if FIELDS.iter().all(|field| row.text(field).is_none()) {
        row.refuse(Fault::Unsupported("the row sets none of the fields of a limit"));
    }
    if upgrade.burst.is_some() && upgrade.algorithm.is_some_and(|algorithm| !algorithm.has_burst()) {
        row.refuse_cell("burst", Fault::Unsupported("the algorithm of the row has no burst"));
    }
    if upgrade.reserve.is_some() && upgrade.charging == Some(Charging::Postpaid) {
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
        let expected = [
            Upgrade {
                domain: Glob::new("default/*"),
                algorithm: Some(Algorithm::Gcra),
                burst: Some(5),
                ..Upgrade::default()
            },
            Upgrade { shadow_mode: Some(true), ..Upgrade::default() },
        ];
        assert_eq!(of_file(file).expect("valid").upgrades, expected);
        assert_eq!(of_variable(variable).expect("valid").upgrades, expected);
        assert!(of_file("upgrades: []").expect("valid").upgrades.is_empty());
    }

    #[test]
    fn each_problem_names_row_column_and_line() {
        let file = "upgrades:\n  - domain: a\n  - algoritm: gcra\n    burst: 0\n  - text\n  - algorithm: fixed_window\n    burst: 3\n  - algorithm: tokens\n    charging:\n";
        let expected = [
            "file:2: upgrades[0]: the row sets none of the fields of a limit",
            "file:3: upgrades[1].algoritm: no such setting; did you mean 'algorithm'?",
            "file:4: upgrades[1].burst: expected a whole number from 1 to 4294967295, found \"0\"",
            "file:5: upgrades[2]: expected a row with columns",
            "file:7: upgrades[3].burst: the algorithm of the row has no burst",
            "file:8: upgrades[4].algorithm: expected one of fixed_window, sliding_window, sliding_log, gcra, token_bucket, leaky_bucket, found \"tokens\"",
            "file:9: upgrades[4].charging: expected a text",
        ];
        assert_eq!(problems(of_file(file)), expected);
        assert_eq!(
            problems(of_variable("gcra")),
            [
                "RATELIMITD__UPGRADES: upgrades: expected a list of rows, each with some of: domain, path, limit_name, algorithm, burst, charging, on_store_failure, reserve, shadow_mode, found \"gcra\""
            ]
        );
    }
}
