//! Sets and removes rows for operators.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use engine::{Entry, ExceptionRow, Glob, RowValue, RuleSet, is_hidden_value};
use rules::{LiveRow, NO_REASON, Origin, latest_window_end, missing_in_rules, value_text};
use serde::Serialize;
use serde_json::{Value, json};
use store::redis::{PutKind, PutResult, RowPut};

use super::{LiveError, LiveExceptions};

/// Rows in one call.
const MOST_ROWS: usize = 1_000;

/// The author of a change, for rows and the log.
#[derive(Clone, Debug)]
pub struct Author {
    /// For rows that lack one.
    pub reason: Option<String>,
    pub by: Option<String>,
    pub peer: IpAddr,
}

/// Describes a row that was set. Values are masked.
#[derive(Clone, Debug, Serialize)]
pub struct SetRow {
    pub id: String,
    pub version: String,
    pub in_force: bool,
    pub row: Value,
    /// The replaced row.
    pub before: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Describes a row that was removed. Values are masked.
#[derive(Clone, Debug, Serialize)]
pub struct RemovedRow {
    pub id: String,
    pub version: String,
    pub before: Value,
}

struct Wanted {
    row: LiveRow,
    if_version: Option<u64>,
    warnings: Vec<String>,
}

impl LiveExceptions {
    /// Sets rows, all or none. They are in effect here when this returns. `rows`: objects with a row's columns, and
    /// `if_version`.
    ///
    /// # Errors
    /// [`LiveError`]: nothing changed, unless Redis did not answer in time.
    pub async fn set(&self, rows: Vec<Value>, author: &Author) -> Result<Vec<SetRow>, LiveError> {
        let set = self.within_time(self.set_now(rows, author)).await;
        self.count_write("set", &set);
        set
    }

    /// Removes rows, all or none. `rows`: objects with `domain`, `key` and `value`. All rows with these go, whoever set
    /// them.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub async fn remove(
        &self,
        rows: Vec<Value>,
        ids: &[String],
        author: &Author,
    ) -> Result<Vec<RemovedRow>, LiveError> {
        let removed = self.within_time(self.remove_now(rows, ids, author)).await;
        self.count_write("remove", &removed);
        removed
    }

    /// Warns of values that new rules mark as secret, and that are kept in clear.
    pub fn compare_with_rules(&self) {
        let rules = self.0.options.rulebook.rules();
        let mut keys: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        self.with_state(|state| {
            for row in
                state.table.rows().filter(|row| without_secret((*row).clone(), &rules).as_ref() != Ok(*row))
            {
                *keys.entry(Arc::clone(&row.row.key)).or_default() += 1;
            }
        });
        for (key, rows) in keys {
            tracing::warn!(
                key = &*key,
                rows,
                "exceptions have values of a secret key in clear; remove and set them"
            );
        }
    }

    fn count_write<T>(&self, op: &str, result: &Result<T, LiveError>) {
        let result = match result {
            Ok(_) => "success",
            Err(LiveError::Unavailable(_)) => "failure",
            Err(_) => "refused",
        };
        self.0.options.metrics.families.exceptions.written(op, result);
    }

    async fn set_now(&self, rows: Vec<Value>, author: &Author) -> Result<Vec<SetRow>, LiveError> {
        check_count(rows.len())?;
        let rules = self.0.options.rulebook.rules();
        let read = rows.into_iter().enumerate().map(|(index, row)| self.read(index, row, author, &rules));
        let (wanted, problems): (Vec<_>, Vec<_>) = read.partition(Result::is_ok);
        let mut problems: Vec<String> = problems.into_iter().filter_map(Result::err).collect();
        let wanted: Vec<Wanted> = wanted.into_iter().filter_map(Result::ok).collect();
        let mut ids = HashSet::new();
        for (index, wanted) in wanted.iter().enumerate().filter(|_| problems.is_empty()) {
            if !ids.insert(wanted.row.id()) {
                problems.push(format!("rows[{index}]: an earlier row is for the same"));
                break;
            }
        }
        if !problems.is_empty() {
            return Err(LiveError::Invalid(problems.join("\n")));
        }
        self.be_current().await?;
        tracing::info!(rows = wanted.len(), peer = %author.peer, "setting exceptions through the admin port");
        let before: Vec<_> = wanted.iter().map(|wanted| self.known(wanted.row.id())).collect();
        let puts = wanted.iter().map(|Wanted { row, if_version, .. }| RowPut {
            id: row.id().to_string(),
            kind: PutKind::Set { if_version: *if_version },
            until_us: row.row.until_us,
            is_automatic: false,
            json: Some(row.stored()),
        });
        let results = self.put(puts.collect()).await?;
        let versions = self.versions(&results)?;
        self.publish().await;
        let now_us = self.now_us();
        let set = wanted.into_iter().zip(before).zip(versions).map(|((wanted, before), version)| {
            let Wanted { row, mut warnings, .. } = wanted;
            warnings.extend(missing_in_rules(&row.row, &rules));
            warnings.extend(self.blocking_row(&row, &rules));
            self.audit("exception set through the admin port", [before.as_ref(), Some(&row)], author);
            SetRow {
                id: row.id().to_string(),
                version: version.to_string(),
                in_force: row.row.is_in_force(now_us),
                row: self.masked(&row),
                before: before.as_ref().map(|before| self.masked(before)),
                warnings,
            }
        });
        Ok(set.collect())
    }

    async fn remove_now(
        &self,
        rows: Vec<Value>,
        ids: &[String],
        author: &Author,
    ) -> Result<Vec<RemovedRow>, LiveError> {
        check_count(rows.len() + ids.len())?;
        if author.reason.is_none() {
            return Err(LiveError::Invalid(NO_REASON.to_owned()));
        }
        let rules = self.0.options.rulebook.rules();
        let wanted = rows.into_iter().enumerate().map(|(index, row)| self.read_wanted(index, row, &rules));
        let wanted = wanted.collect::<Result<Vec<_>, _>>().map_err(LiveError::Invalid)?;
        self.be_current().await?;
        let by_id = ids.iter().map(|id| self.known(id).ok_or(LiveError::NoRow));
        let mut found = by_id.collect::<Result<Vec<LiveRow>, _>>()?;
        for wanted in &wanted {
            let same = |row: &&LiveRow| {
                wanted.iter().any(|wanted| {
                    (&row.row.domain, &row.row.key, &row.row.value)
                        == (&wanted.row.domain, &wanted.row.key, &wanted.row.value)
                })
            };
            let before = found.len();
            self.with_state(|state| found.extend(state.table.rows().filter(same).cloned()));
            if found.len() == before {
                return Err(LiveError::NoRow);
            }
        }
        found.sort_by(|one, other| one.id().cmp(other.id()));
        found.dedup_by(|one, other| one.id() == other.id());
        tracing::info!(rows = found.len(), peer = %author.peer, "removing exceptions through the admin port");
        let puts = found.iter().map(|row| RowPut {
            id: row.id().to_string(),
            kind: PutKind::Set { if_version: None },
            until_us: None,
            is_automatic: row.origin.is_automatic(),
            json: None,
        });
        let results = self.put(puts.collect()).await?;
        let versions = self.versions(&results)?;
        self.publish().await;
        let removed = found.iter().zip(versions).map(|(row, version)| {
            self.audit("exception removed through the admin port", [Some(row), None], author);
            RemovedRow { id: row.id().to_string(), version: version.to_string(), before: self.masked(row) }
        });
        Ok(removed.collect())
    }

    pub(super) fn known(&self, id: &str) -> Option<LiveRow> {
        self.with_state(|state| state.table.get(id).and_then(|row| row.row()).cloned())
    }

    /// The new versions, if all rows were written.
    fn versions(&self, results: &[PutResult]) -> Result<Vec<u64>, LiveError> {
        let version = |(index, result): (usize, &PutResult)| match result {
            PutResult::Written { version, .. } => Ok(Some(*version)),
            PutResult::Conflict(row) => {
                let known = row.as_ref().and_then(|row| self.known(&row.id));
                Err(LiveError::Changed {
                    place: format!("rows[{index}]"),
                    version: row.as_ref().map_or(0, |row| row.version),
                    row: known.map_or(Value::Null, |row| self.masked(&row)),
                })
            }
            PutResult::Full => Err(LiveError::Full),
            PutResult::Kept(_) | PutResult::Newer | PutResult::Unwritten => Ok(None),
        };
        let versions = results.iter().enumerate().map(version).collect::<Result<Vec<_>, _>>()?;
        Ok(versions.into_iter().flatten().collect())
    }

    /// # Errors
    /// All problems of the row, one per line.
    fn read(
        &self,
        index: usize,
        mut columns: Value,
        author: &Author,
        rules: &RuleSet,
    ) -> Result<Wanted, String> {
        let place = format!("rows[{index}]");
        let mut if_version = None;
        if let Some(columns) = columns.as_object_mut() {
            if let Some(version) = columns.remove("if_version") {
                let parsed = version.as_str().and_then(|version| version.parse().ok());
                if_version =
                    Some(parsed.ok_or_else(|| format!("{place}: 'if_version' must be a version as text"))?);
            }
            for (name, text) in [("reason", &author.reason), ("by", &author.by)] {
                if let Some(text) = text {
                    columns.entry(name).or_insert_with(|| text.as_str().into());
                }
            }
        }
        let (row, warnings) =
            LiveRow::read(&place, &columns, self.now_us()).map_err(|problems| problems.to_string())?;
        let mut row = without_secret(row, rules).map_err(|reason| format!("{place}: {reason}"))?;
        if row.origin == Origin::Grant {
            let endless = || "the window that the units are for has no end".to_owned();
            let missing = || missing_in_rules(&row.row, rules).unwrap_or_else(endless);
            let end_us = latest_window_end(&row.row, rules, row.row.from_us.unwrap_or_default())
                .ok_or_else(|| format!("{place}: {}", missing()))?;
            let until_us = row.row.until_us.or(Some(end_us));
            row = LiveRow::new(ExceptionRow { until_us, ..(*row.row).clone() }, row.origin, 0);
            if row.row.has_ended(self.now_us()) {
                return Err(format!("{place}: the end is in the past"));
            }
        }
        let warnings = warnings.all().iter().map(|warning| warning.reason.clone()).collect();
        Ok(Wanted { row, if_version, warnings })
    }

    /// Reads which rows to remove: all with this value or, if the key is secret, with its hash.
    fn read_wanted(&self, index: usize, mut columns: Value, rules: &RuleSet) -> Result<[LiveRow; 2], String> {
        const NAMED: [&str; 3] = ["domain", "key", "value"];
        let place = format!("rows[{index}]");
        if let Some(columns) = columns.as_object_mut() {
            if let Some(name) = columns.keys().find(|name| !NAMED.contains(&name.as_str())) {
                return Err(format!(
                    "{place}: '{name}' does not select rows; name domain, key and value, or ids"
                ));
            }
            // What a row needs besides.
            columns.extend([("block".to_owned(), true.into()), ("reason".to_owned(), "-".into())]);
        }
        let (row, _) =
            LiveRow::read(&place, &columns, self.now_us()).map_err(|problems| problems.to_string())?;
        let hashed = without_secret(row.clone(), rules).map_err(|reason| format!("{place}: {reason}"))?;
        Ok([row, hashed])
    }

    /// The text for people: the value is masked.
    pub(super) fn masked(&self, row: &LiveRow) -> Value {
        let mut columns = row.columns();
        let value = value_text(&row.row.value);
        let masked = (self.0.options.mask)(row.row.domain.text(), &row.row.key, &value);
        columns.insert("value".to_owned(), masked.into());
        Value::Object(columns)
    }

    /// Writes the audit log line, which does not contain the value.
    fn audit(&self, message: &'static str, [before, after]: [Option<&LiveRow>; 2], author: &Author) {
        let Some(row) = after.or(before) else { return };
        let shown = self.masked(row);
        let reason = author.reason.as_deref().or(row.row.reason.as_deref());
        let by = author.by.as_deref().or(row.row.by.as_deref());
        tracing::info!(
            id = &**row.id(),
            domain = row.row.domain.text(),
            key = &*row.row.key,
            value = shown["value"].as_str(),
            before = before.map(effect_text),
            after = after.map(effect_text),
            reason,
            by,
            peer = %author.peer,
            "{message}"
        );
    }

    /// Warns that another row blocks an exempt row's value.
    fn blocking_row(&self, row: &LiveRow, rules: &RuleSet) -> Option<String> {
        if !row.row.effect.exempt {
            return None;
        }
        let now_us = self.now_us();
        let blocks = |other: &ExceptionRow| {
            other.effect.block
                && other.is_in_force(now_us)
                && (&other.key, &other.value) == (&row.row.key, &row.row.value)
                && (other.domain == row.row.domain || other.domain.matches(row.row.domain.text()))
        };
        let of_files = rules.exceptions().and_then(|files| files.rows().find(|other| blocks(other)).cloned());
        let live = || self.with_state(|state| state.table.live().rows().find(|other| blocks(other)).cloned());
        let of_files = of_files.map(|other| format!("a row of {} blocks this value", other.source));
        of_files.or_else(|| live().map(|other| format!("{} blocks this value", other.source)))
    }
}

fn check_count(rows: usize) -> Result<(), LiveError> {
    match rows {
        1..=MOST_ROWS => Ok(()),
        _ => Err(LiveError::Invalid(format!("a call needs 1 to {MOST_ROWS} rows"))),
    }
}

/// Replaces a secret value by its hash, which depends on the domain. Networks stay.
///
/// # Errors
/// Why the value cannot be replaced.
pub(super) fn without_secret(row: LiveRow, rules: &RuleSet) -> Result<LiveRow, String> {
    let value = value_text(&row.row.value);
    let is_network = matches!(row.row.value, RowValue::Network(_)) && value.contains('/');
    if is_hidden_value(&value) || is_network {
        return Ok(row);
    }
    let entry = Entry { key: row.row.key.to_string(), value };
    let hash = match &row.row.domain {
        Glob::Exact(domain) => rules.hidden_value(domain, &entry),
        pattern => {
            let mut domains = rules.domains().filter(|domain| pattern.matches(domain));
            if domains.any(|domain| rules.hidden_value(domain, &entry).is_some()) {
                let reason =
                    format!("values of '{}' are secret, and hashed per domain: name one domain", entry.key);
                return Err(reason);
            }
            None
        }
    };
    Ok(match hash {
        Some(hash) => {
            let value = RowValue::Exact(hash.into());
            LiveRow::new(ExceptionRow { value, ..(*row.row).clone() }, row.origin, 0)
        }
        None => row,
    })
}

/// What a row changes, for the log: `multiplier 2 until 2026-12-01T00:00:00Z`.
fn effect_text(row: &LiveRow) -> String {
    const NAMES: [&str; 9] =
        ["tier", "limit", "multiplier", "add", "block", "exempt", "shadow_mode", "from", "until"];
    let columns = json!(row.columns());
    let set = NAMES.iter().filter_map(|name| match &columns[*name] {
        Value::Null => None,
        Value::Bool(true) => Some((*name).to_owned()),
        Value::String(text) => Some(format!("{name} {text}")),
        value => Some(format!("{name} {value}")),
    });
    set.collect::<Vec<_>>().join(" ")
}
