//! Lists and counts rows.

use std::collections::BTreeMap;

use base::escaped_json;
use rules::{KindCounts, LiveRow, Origin};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Keeper, LiveExceptions, State};

/// Rows in one answer.
const MOST_LISTED: usize = 1_000;

/// Which rows to list.
#[derive(Clone, Debug, Default)]
pub struct ListRows {
    pub domain: Option<String>,
    /// `true`: also rows that are over.
    pub ended: bool,
    /// The id of the last row of the page before.
    pub after: String,
    pub limit: Option<usize>,
}

/// Shows a row, with a masked value.
#[derive(Clone, Debug, Serialize)]
pub struct ListedRow {
    pub id: String,
    pub origin: &'static str,
    pub version: String,
    /// How many bans came before this one, each soon after the other.
    pub level: u32,
    /// `in_force`, `later` or `ended`.
    pub state: &'static str,
    pub row: Value,
}

/// Rows in effect.
#[derive(Clone, Debug, Default)]
pub struct LiveView {
    /// `redis`, `process`, or `None` if rows cannot be set.
    pub source: Option<&'static str>,
    /// Microseconds since the rows equalled the rows in Redis; `None` if they never did, or are not in Redis.
    pub age_us: Option<u64>,
    pub version: u64,
    pub kinds: KindCounts,
    /// In the order of [`Origin::all`].
    pub origins: [u64; Origin::COUNT],
}

impl LiveView {
    pub(super) fn new(keeper: &Keeper) -> Self {
        let source = match keeper {
            Keeper::Redis(_) => Some("redis"),
            Keeper::Process => Some("process"),
            Keeper::Nowhere => None,
        };
        Self { source, ..Self::default() }
    }

    /// Rows by what they change, and by who set them, without zeros.
    pub fn counts(&self) -> [Vec<(String, u64)>; 2] {
        let kinds = self.kinds.iter().map(|(kind, rows)| (kind.into_str(), rows)).collect::<Vec<_>>();
        let origins = Origin::all().map(|origin| origin.into_str()).zip(self.origins).collect();
        [kinds, origins].map(|counts| {
            let some = counts.into_iter().filter(|(_, rows)| *rows > 0);
            some.map(|(name, rows)| (name.to_owned(), rows)).collect()
        })
    }

    /// As JSON, for the page of exceptions.
    pub fn json(&self) -> Value {
        let [kinds, origins] = self.counts().map(BTreeMap::from_iter);
        json!({
            "source": self.source,
            "age_s": self.age_us.map(seconds),
            "version": self.version.to_string(),
            "rows": self.origins.iter().sum::<u64>(),
            "kinds": kinds,
            "origins": origins,
        })
    }
}

fn state_of(row: &LiveRow, now_us: u64) -> &'static str {
    if row.row.is_in_force(now_us) {
        "in_force"
    } else if row.row.has_ended(now_us) {
        "ended"
    } else {
        "later"
    }
}

/// With three decimals.
fn seconds(us: u64) -> f64 {
    (us / 1_000) as f64 / 1_000.0
}

impl State {
    /// Counts the rows in effect, if one changed, started or ended since the last count.
    fn count(&mut self, now_us: u64) {
        let is_current = |(generation, due_us)| generation == self.generation && now_us < due_us;
        if self.counted.is_some_and(is_current) {
            return;
        }
        let (mut kinds, mut origins, mut due_us) = (KindCounts::default(), [0; Origin::COUNT], u64::MAX);
        for LiveRow { row, origin, .. } in self.table.rows() {
            let times = [row.from_us, row.until_us].into_iter().flatten();
            due_us = times.filter(|time| *time > now_us).fold(due_us, u64::min);
            if row.is_in_force(now_us) {
                kinds.add_row(row);
                origins[*origin as usize] += 1;
            }
        }
        (self.view.kinds, self.view.origins) = (kinds, origins);
        self.counted = Some((self.generation, due_us));
    }
}

impl LiveExceptions {
    pub fn view(&self) -> LiveView {
        let (confirmed_us, now_us) = (self.confirmed_us(), self.now_us());
        self.with_state(|state| {
            state.count(now_us);
            LiveView {
                age_us: (confirmed_us > 0).then(|| now_us.saturating_sub(confirmed_us)),
                version: state.table.newest(),
                ..state.view.clone()
            }
        })
    }

    /// Returns a page of rows, first the ones that operators set, by id, and whether there are more.
    pub fn list(&self, wanted: &ListRows) -> (Vec<ListedRow>, bool) {
        let now_us = self.now_us();
        let limit = wanted.limit.unwrap_or(MOST_LISTED).min(MOST_LISTED);
        let mut found: Vec<LiveRow> = self.with_state(|state| {
            let is_wanted = |row: &&LiveRow| {
                (wanted.ended || !row.row.has_ended(now_us))
                    && wanted.domain.as_deref().is_none_or(|domain| domain == row.row.domain.text())
            };
            state.table.rows_after(&wanted.after).filter(is_wanted).take(limit + 1).cloned().collect()
        });
        let has_more = found.len() > limit;
        found.truncate(limit);
        let listed = found.iter().map(|row| ListedRow {
            id: row.id().to_string(),
            origin: row.origin.into_str(),
            version: row.version().to_string(),
            level: row.level,
            state: state_of(row, now_us),
            row: self.masked(row),
        });
        (listed.collect(), has_more)
    }

    /// Returns operators' current and future rows as a YAML file of exceptions, with their values, and their number.
    pub fn export(&self) -> (String, usize) {
        let now_us = self.now_us();
        let rows: Vec<LiveRow> = self.with_state(|state| {
            let rows = state.table.rows();
            rows.filter(|row| !row.origin.is_automatic() && !row.row.has_ended(now_us)).cloned().collect()
        });
        let line = |row: &LiveRow| format!("- {}\n", escaped_json(json!(row.columns()).to_string()));
        let text = if rows.is_empty() { "[]\n".to_owned() } else { rows.iter().map(line).collect() };
        (text, rows.len())
    }
}
