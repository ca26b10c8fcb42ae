//! Rows that are set while the service runs: JSON objects with the same columns as a file's row, read by the YAML file
//! reader.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use engine::{ExceptionRow, Glob, HashKey, RowSource, RowTerms, RowValue};
use serde_json::{Map, Value};
use strum::{EnumCount, EnumIter, EnumString, IntoStaticStr};

use super::yaml_file::read_row;
use crate::problem::Problems;
use crate::read::{FileReport, Position};
use crate::yaml::Node;

/// Bytes of a row as it is stored.
const MAX_ROW_BYTES: usize = 2_048;
const MAX_VALUE_BYTES: usize = 1_024;
const MAX_REASON_CHARS: usize = 200;
/// Refuses a change without a reason, or with too long a reason.
pub const NO_REASON: &str = "a change needs a reason of 1 to 200 characters";
const MAX_BY_CHARS: usize = 100;
const ID_CHARS: usize = 12;
const BASE_36: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Column of a stored row, not of a file.
const ORIGIN: &str = "origin";

/// What sets a row. Rows of different origins do not replace each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumCount, EnumIter, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Origin {
    Operator,
    /// An operator, with `add`: it does not replace a multiplier of the same value.
    Grant,
    /// A limit denied too often.
    Penalty,
    /// A third party asked the caller to wait.
    Feedback,
}

impl Origin {
    pub const COUNT: usize = <Self as EnumCount>::COUNT;

    /// Each origin; its position is its number.
    pub fn all() -> impl Iterator<Item = Self> {
        <Self as strum::IntoEnumIterator>::iter()
    }

    /// `true` if the service itself sets such rows.
    pub fn is_automatic(self) -> bool {
        matches!(self, Self::Penalty | Self::Feedback)
    }
}

/// The row's source is [`RowSource::Live`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRow {
    pub row: Arc<ExceptionRow>,
    pub origin: Origin,
    /// For a ban that repeats: the number of bans before it. Otherwise 0.
    pub level: u32,
}

impl LiveRow {
    /// `row` with another source. Its id depends on what the row is for, and on its origin.
    pub fn new(row: ExceptionRow, origin: Origin, version: u64) -> Self {
        let RowTerms { domain, key, path, limit_name, .. } = &*row.terms;
        let value = value_text(&row.value);
        let id = row_id(&[domain.text(), key, &value, path.text(), limit_name.text(), origin.into_str()]);
        Self {
            row: Arc::new(ExceptionRow { source: RowSource::Live { id: id.into(), version }, ..row }),
            origin,
            level: 0,
        }
    }

    /// Reads a row that an operator sets. `place` is its name in problems, such as `rows[0]`. `now_us` (microseconds
    /// since the epoch) is where a grant without `from` starts, and where an `until` that is a duration counts from.
    ///
    /// # Errors
    /// All problems of the row. Otherwise they are warnings.
    pub fn read(place: &str, columns: &Value, now_us: u64) -> Result<(Self, Problems), Problems> {
        let mut report = FileReport::new(&place.into());
        let row = read_columns(&with_times(columns, now_us), &mut report);
        let row = row.map(|row| {
            let origin = if row.effect.add.is_some() { Origin::Grant } else { Origin::Operator };
            Self::new(row, origin, 0)
        });
        if let Some(row) = &row {
            row.check_bounds(now_us, &mut |reason| report.error(&Position::default(), reason));
        }
        let problems = Problems::sorted(report.problems, &[]);
        match row.filter(|_| !problems.has_errors()) {
            Some(row) => Ok((row, problems)),
            None => Err(problems),
        }
    }

    /// Reads what [`stored`](Self::stored) wrote, with its version and end (microseconds since the epoch).
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn from_stored(stored: &str, version: u64, until_us: Option<u64>) -> Result<Self, String> {
        let mut columns: Value = serde_json::from_str(stored).map_err(|error| error.to_string())?;
        let origin = columns.as_object_mut().and_then(|columns| columns.remove(ORIGIN));
        let origin = match origin.as_ref().map(Value::as_str) {
            None => Origin::Operator,
            Some(name) => name.and_then(|name| name.parse().ok()).ok_or("unknown origin")?,
        };
        let mut report = FileReport::new(&"row".into());
        let row = read_columns(&columns, &mut report);
        let mut row = row.ok_or_else(|| Problems::sorted(report.problems, &[]).to_string())?;
        if origin.is_automatic() {
            // Here a star is a part of one rule's path.
            let terms = Arc::make_mut(&mut row.terms);
            terms.domain = Glob::Exact(terms.domain.text().to_owned());
            if columns.get("path").is_some() {
                terms.path = Glob::Exact(terms.path.text().to_owned());
            }
        }
        Ok(Self::new(ExceptionRow { until_us, ..row }, origin, version))
    }

    /// The row as JSON without id, version and end, which are stored beside it.
    pub fn stored(&self) -> String {
        let mut columns = self.columns();
        columns.remove("until");
        if self.origin != Origin::Operator {
            columns.insert(ORIGIN.to_owned(), self.origin.into_str().into());
        }
        Value::Object(columns).to_string()
    }

    /// Checks a row that was not read from columns.
    ///
    /// # Errors
    /// It is too long, its end is in the past, or it would be read as another row, because its value looks like a
    /// network.
    pub fn check(&self, now_us: u64) -> Result<(), String> {
        let mut reason = None;
        self.check_bounds(now_us, &mut |first| {
            reason.get_or_insert(first);
        });
        let read = Self::from_stored(&self.stored(), 0, self.row.until_us)?;
        if read.row.value != self.row.value {
            reason.get_or_insert_with(|| "'value' looks like a network".to_owned());
        }
        reason.map_or(Ok(()), Err)
    }

    /// The columns as in a file.
    pub fn columns(&self) -> Map<String, Value> {
        let RowTerms { domain, key, path, limit_name, effect, reason, by } = &*self.row.terms;
        let pattern = |glob: &Glob| (*glob != Glob::Any).then(|| glob.text().into());
        let columns: [(&str, Option<Value>); 16] = [
            ("domain", Some(domain.text().into())),
            ("key", Some((**key).into())),
            ("value", Some(value_text(&self.row.value).into())),
            ("path", pattern(path)),
            ("limit_name", pattern(limit_name)),
            ("tier", effect.tier.as_deref().map(Value::from)),
            ("limit", effect.limit.map(Value::from)),
            ("multiplier", effect.multiplier.map(|multiplier| multiplier.to_string().into())),
            ("add", effect.add.map(Value::from)),
            ("block", effect.block.then_some(Value::Bool(true))),
            ("exempt", effect.exempt.then_some(Value::Bool(true))),
            ("shadow_mode", effect.shadow_mode.map(Value::from)),
            ("from", self.row.from_us.map(time_json)),
            ("until", self.row.until_us.map(time_json)),
            ("reason", reason.as_deref().map(Value::from)),
            ("by", by.as_deref().map(Value::from)),
        ];
        columns.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    pub fn id(&self) -> &Arc<str> {
        self.row.source.name()
    }

    /// 0 if it is not stored yet.
    pub fn version(&self) -> u64 {
        match self.row.source {
            RowSource::Live { version, .. } => version,
            RowSource::File { .. } => 0,
        }
    }

    fn check_bounds(&self, now_us: u64, error: &mut impl FnMut(String)) {
        let chars = |text: &Option<Arc<str>>| text.as_deref().map_or(0, |text| text.chars().count());
        if value_text(&self.row.value).len() > MAX_VALUE_BYTES {
            error(format!("'value' is longer than {MAX_VALUE_BYTES} bytes"));
        }
        if !(1..=MAX_REASON_CHARS).contains(&chars(&self.row.reason)) {
            error(NO_REASON.to_owned());
        }
        if chars(&self.row.by) > MAX_BY_CHARS {
            error(format!("'by' is longer than {MAX_BY_CHARS} characters"));
        }
        if self.row.has_ended(now_us) {
            error("the end is in the past".to_owned());
        }
        if self.stored().len() > MAX_ROW_BYTES {
            error(format!("the row is longer than {MAX_ROW_BYTES} bytes of JSON"));
        }
    }
}

/// The value of a row as it is written; a network of one address as the address.
pub fn value_text(value: &RowValue) -> String {
    match value {
        RowValue::Exact(value) => value.to_string(),
        RowValue::Network(network) => {
            let text = network.to_string();
            let one_address = if text.contains(':') { "/128" } else { "/32" };
            text.strip_suffix(one_address).map_or(text.clone(), str::to_owned)
        }
    }
}

fn read_columns(columns: &Value, report: &mut FileReport) -> Option<ExceptionRow> {
    read_row(RowSource::Live { id: "".into(), version: 0 }, &Node::from(columns), report)
}

/// If `until` is a duration, replaces it by a time. Also adds a grant's start.
fn with_times(columns: &Value, now_us: u64) -> Value {
    let mut columns = columns.clone();
    if columns.get("add").is_some() && columns.get("from").is_none() {
        columns["from"] = time_json(now_us);
    }
    let duration = columns["until"].as_str().and_then(|text| humantime::parse_duration(text).ok());
    if let Some(us) = duration.and_then(|duration| u64::try_from(duration.as_micros()).ok()) {
        columns["until"] = time_json(now_us.saturating_add(us));
    }
    columns
}

fn time_json(us: u64) -> Value {
    utc_text(us).into()
}

/// Formats a time (microseconds since the epoch) as in RFC 3339, in UTC, without a fraction of 0. Times after 9999
/// cannot be written, and become the last one that can be read.
pub fn utc_text(us: u64) -> String {
    const LAST_US: u64 = 253_402_207_199_999_999;
    let time = UNIX_EPOCH + Duration::from_micros(us.min(LAST_US));
    let is_whole = us.is_multiple_of(1_000_000);
    let text = if is_whole {
        humantime::format_rfc3339_seconds(time)
    } else {
        humantime::format_rfc3339_micros(time)
    };
    text.to_string()
}

/// Hashes the texts with their lengths, so that the ids of different rows differ.
fn row_id(texts: &[&str; 6]) -> String {
    let hash = HashKey::new(b"live rows").tag(texts);
    let mut rest = hash.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let digit = |_| {
        let digit = BASE_36[(rest % 36) as usize];
        rest /= 36;
        char::from(digit)
    };
    (0..ID_CHARS).map(digit).collect()
}
