//! The columns of CSV files: which there are, what a file calls them, and where they stand in a row.

use std::str::FromStr;

use super::row::COLUMNS;
use crate::nearest::nearest_name;
use crate::read::{FileReport, Position};

/// The columns of a CSV file. The first [`REQUIRED`] must be there, and one of `tier` and `limit`.
pub(super) const COLUMN_NAMES: [&str; 7] = ["domain", "key", "value", "tier", "limit", "from", "until"];
pub(super) const REQUIRED: usize = 3;
const TIER: usize = 3;
const LIMIT: usize = 4;

const EXPECTED: &str = "domain, key, value, tier, limit, from and until";

/// Where the columns of CSV files come from, in files that name them otherwise: domain, key, value, tier, limit, from,
/// until. `None`: from the column with that name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvColumns(pub [Option<CsvColumn>; 7]);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CsvColumn {
    /// The column with this name.
    Named(String),
    /// The same text for all rows.
    Constant(String),
}

/// Why a text names no column: it is empty, or `=` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the name of a column, or = and a value for all rows")]
pub struct CsvColumnError;

impl FromStr for CsvColumn {
    type Err = CsvColumnError;

    fn from_str(text: &str) -> Result<Self, CsvColumnError> {
        match text.strip_prefix('=') {
            Some("") => Err(CsvColumnError),
            Some(constant) => Ok(Self::Constant(constant.to_owned())),
            None if text.is_empty() => Err(CsvColumnError),
            None => Ok(Self::Named(text.to_owned())),
        }
    }
}

/// The columns of one file.
pub(super) struct HeaderColumns<'c> {
    /// In the order of [`COLUMN_NAMES`].
    pub places: [Place<'c>; 7],
    /// Number of columns of a row.
    pub count: usize,
}

pub(super) enum Place<'c> {
    Absent,
    At(usize),
    Constant(&'c str),
}

impl<'c> Place<'c> {
    pub fn text<'r>(&'r self, field: impl FnOnce(usize) -> &'r str) -> &'r str {
        match self {
            Self::Absent => "",
            Self::At(index) => field(*index),
            Self::Constant(text) => text,
        }
    }
}

impl<'c> HeaderColumns<'c> {
    /// Finds the columns in a header. Every problem goes to `report`; then `None`. With names of its own, a file
    /// may contain more columns, which are ignored.
    pub fn find(
        header: &[&str],
        columns: Option<&'c CsvColumns>,
        at: &Position,
        report: &mut FileReport,
    ) -> Option<Self> {
        let renamed = columns.filter(|columns| columns.0.iter().any(Option::is_some));
        let mut problems = Vec::new();
        for (index, name) in header.iter().enumerate() {
            let is_known = COLUMN_NAMES.contains(name);
            if header[..index].contains(name) && (is_known || renamed.is_some()) {
                problems.push(format!("duplicate column '{name}'"));
            } else if !is_known && renamed.is_none() {
                problems.push(unknown(name));
            }
        }
        let wanted = |index: usize| renamed.and_then(|columns| columns.0[index].as_ref());
        let places = std::array::from_fn(|index| match wanted(index) {
            Some(CsvColumn::Constant(text)) => Place::Constant(text),
            other => {
                let name = match other {
                    Some(CsvColumn::Named(name)) => name,
                    _ => COLUMN_NAMES[index],
                };
                let found = header.iter().position(|column| *column == name);
                if found.is_none() && (index < REQUIRED || other.is_some()) {
                    problems.push(missing(index, name));
                }
                found.map_or(Place::Absent, Place::At)
            }
        });
        if matches!((&places[TIER], &places[LIMIT]), (Place::Absent, Place::Absent)) {
            problems.push(format!("no column 'tier' or 'limit': the first row names {EXPECTED}"));
        }
        let is_valid = problems.is_empty();
        // A wrong name explains why another one is missing.
        let is_unknown = problems.iter().any(|problem| problem.starts_with("unknown"));
        problems.retain(|problem| !is_unknown || !problem.starts_with("no column"));
        problems.into_iter().for_each(|problem| report.error(at, problem));
        is_valid.then_some(Self { places, count: header.len() })
    }
}

fn unknown(name: &str) -> String {
    if COLUMNS.contains(&name) {
        return format!("the column '{name}' belongs in a YAML file; a CSV file has {EXPECTED}");
    }
    match nearest_name(name, &COLUMN_NAMES) {
        Some(column) => format!("unknown column '{name}'; did you mean '{column}'?"),
        None => format!(
            "unknown column '{name}': the first row of a CSV file names {EXPECTED}, unless exceptions.columns is set"
        ),
    }
}

fn missing(index: usize, name: &str) -> String {
    match COLUMN_NAMES[index] {
        column if column == name => {
            format!(
                "no column '{name}': the first row names it, or exceptions.columns.{column} says where it is"
            )
        }
        column => format!("no column '{name}', which exceptions.columns.{column} names"),
    }
}
