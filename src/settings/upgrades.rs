//! `upgrades`: a table that gives fields to limits whose rules cannot say them.

use std::collections::BTreeMap;

use super::error::{Fault, Origin, SettingProblem};
use super::parsers::{Parser, flag, one_of, positive};
use super::reader::{Reader, quoted};
use crate::engine::{Algorithm, Charging, FailurePolicy};
use crate::rules::{Glob, Upgrade};
use crate::yaml::{Content, Node};

const KEY: &str = "upgrades";
/// Each limit is compared with each row when rules are loaded.
const MAX_ROWS: usize = 1_000;
const COLUMNS: [&str; 8] =
    ["domain", "path", "limit_name", "algorithm", "burst", "charging", "on_store_failure", "shadow_mode"];

pub(super) fn upgrades_from_reader(reader: &mut Reader) -> Vec<Upgrade> {
    let Some((rows, origin)) = reader.take_list(KEY, "a list of rows, see below") else { return Vec::new() };
    if rows.len() > MAX_ROWS {
        let fault = Fault::Unsupported("it has more than 1000 rows");
        reader.refuse(SettingProblem { key: KEY.to_owned(), origin, fault });
        return Vec::new();
    }
    let rows = rows.iter().enumerate();
    rows.filter_map(|(index, row)| RowReader { index, origin: &origin, reader }.read_row(row)).collect()
}

struct RowReader<'r> {
    index: usize,
    /// Of the table.
    origin: &'r Origin,
    reader: &'r mut Reader,
}

/// The texts of a row by their column, each with its line.
type Cells = BTreeMap<String, (String, u32)>;

impl RowReader<'_> {
    fn read_row(&mut self, row: &Node) -> Option<Upgrade> {
        let mut cells = self.cells(row)?;
        let glob = |cells: &mut Cells, name: &str| {
            cells.remove(name).map_or(Glob::Any, |(text, _)| Glob::new(&text))
        };
        let [domain, path, limit_name] = ["domain", "path", "limit_name"].map(|name| glob(&mut cells, name));
        let algorithms = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
        let chargings = [Charging::Prepaid, Charging::Postpaid].map(|charging| (charging.name(), charging));
        let policies = FailurePolicy::ALL.map(|policy| (policy.name(), policy));
        let upgrade = Upgrade {
            domain,
            path,
            limit_name,
            algorithm: self.cell(&mut cells, "algorithm", &one_of(algorithms)),
            burst: self.cell(&mut cells, "burst", &positive(u32::MAX)),
            charging: self.cell(&mut cells, "charging", &one_of(chargings)),
            on_store_failure: self.cell(&mut cells, "on_store_failure", &one_of(policies)),
            shadow_mode: self.cell(&mut cells, "shadow_mode", &flag()),
        };
        let fields = (upgrade.algorithm, upgrade.burst, upgrade.charging, upgrade.on_store_failure);
        match (fields, upgrade.shadow_mode) {
            ((None, None, None, None), None) => {
                self.refuse("", row.line, Fault::Unsupported("the row sets none of the fields of a limit"));
            }
            ((Some(algorithm), Some(_), ..), _) if !algorithm.has_burst() => {
                self.refuse(".burst", row.line, Fault::Unsupported("the algorithm of the row has no burst"));
            }
            _ => {}
        }
        Some(upgrade)
    }

    /// The cells that are texts in known columns.
    fn cells(&mut self, row: &Node) -> Option<Cells> {
        let Content::Map(pairs) = &row.content else {
            let fault = Fault::Malformed { expected: "a row with columns".to_owned(), found: None };
            self.refuse("", row.line, fault);
            return None;
        };
        let mut cells = Cells::new();
        for (column, cell) in pairs.iter() {
            let line = column.line;
            let Content::Scalar(name) = &column.content else {
                let expected = "the name of a column".to_owned();
                self.refuse("", line, Fault::Malformed { expected, found: None });
                continue;
            };
            let at = format!(".{}", name.text);
            if !COLUMNS.contains(&&*name.text) {
                let known = COLUMNS.map(str::to_owned).to_vec();
                self.refuse(&at, line, Fault::Unknown { known });
                continue;
            }
            let text = match &cell.content {
                Content::Scalar(text) if !text.is_null() => text.text.to_string(),
                _ => {
                    self.refuse(&at, line, Fault::Malformed { expected: "a text".to_owned(), found: None });
                    continue;
                }
            };
            if cells.insert(name.text.to_string(), (text, line)).is_some() {
                self.refuse(&at, line, Fault::Unsupported("the column is given twice"));
            }
        }
        Some(cells)
    }

    fn cell<T>(&mut self, cells: &mut Cells, name: &str, parser: &Parser<T>) -> Option<T> {
        let (text, line) = cells.remove(name)?;
        let value = parser.parse(&text);
        if value.is_none() {
            let (expected, found) = (parser.expected.clone(), Some(quoted(&text)));
            self.refuse(&format!(".{name}"), line, Fault::Malformed { expected, found });
        }
        value
    }

    fn refuse(&mut self, at: &str, line: u32, fault: Fault) {
        let origin = match self.origin {
            Origin::File { path, .. } => Origin::File { path: path.clone(), line },
            other => other.clone(),
        };
        self.reader.refuse(SettingProblem { key: format!("{KEY}[{}]{at}", self.index), origin, fault });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::settings::{Settings, SettingsError};

    fn of_variable(text: &str) -> Result<Settings, SettingsError> {
        Settings::from_layers(None, [("RATELIMITD__UPGRADES".to_owned(), text.to_owned())])
    }

    fn of_file(text: &str) -> Result<Settings, SettingsError> {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("room for a few bytes");
        Settings::from_layers(Some(file.path()), [])
    }

    fn problems(result: Result<Settings, SettingsError>) -> Vec<String> {
        let Err(SettingsError::Invalid(problems)) = result else { panic!("expected problems: {result:?}") };
        let line = |origin: &Origin| match origin {
            Origin::File { line, .. } => *line,
            _ => 0,
        };
        let text = |problem: &SettingProblem| {
            format!("{}: {}: {}", line(&problem.origin), problem.key, problem.fault)
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
            "2: upgrades[0]: the row sets none of the fields of a limit",
            "3: upgrades[1]: the row sets none of the fields of a limit",
            "3: upgrades[1].algoritm: no such setting; known settings: domain, path, limit_name, algorithm, burst, charging, on_store_failure, shadow_mode",
            "4: upgrades[1].burst: expected a whole number from 1 to 4294967295, found \"0\"",
            "5: upgrades[2]: expected a row with columns",
            "6: upgrades[3].burst: the algorithm of the row has no burst",
            "8: upgrades[4]: the row sets none of the fields of a limit",
            "8: upgrades[4].algorithm: expected one of fixed_window, sliding_window, sliding_log, gcra, token_bucket, leaky_bucket, found \"tokens\"",
            "9: upgrades[4].charging: expected a text",
        ];
        assert_eq!(problems(of_file(file)), expected);
        assert_eq!(
            problems(of_variable("gcra")),
            ["0: upgrades: expected a list of rows, see below, found \"gcra\""]
        );
    }
}
