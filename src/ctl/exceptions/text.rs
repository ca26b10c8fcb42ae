//! Rows in plain words: what they change, from when, until when, and who set them.

use std::time::{Duration, UNIX_EPOCH};

use base::clock::{Clock as _, SystemClock};
use base::{escaped, readable_duration, with_commas};
use rules::local_time;
use serde_json::Value;

use super::{rows_of, variable};

/// The reader's clock and time zone.
pub(super) struct Here {
    pub(super) now_us: u64,
    /// `None`: UTC is enough.
    pub(super) zone: Option<String>,
}

impl Here {
    pub(super) fn now() -> Self {
        let of_machine = || {
            let link = std::fs::read_link("/etc/localtime").ok()?;
            let (_, zone) = link.to_str()?.split_once("zoneinfo/")?;
            Some(zone.to_owned())
        };
        let zone = variable("TZ").or_else(of_machine).filter(|zone| !zone.contains("UTC"));
        Self { now_us: SystemClock.now_us(), zone }
    }

    /// `2026-11-26 17:00:00 +01:00 (2026-11-26T16:00:00Z, in 2h)`.
    fn time(&self, time: &str) -> String {
        let Some(us) = micros(time) else { return time.to_owned() };
        let seconds = Duration::from_secs(us.abs_diff(self.now_us).div_ceil(1_000_000));
        let distance = readable_duration(seconds);
        let utc = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_micros(us));
        let distance = if us < self.now_us { format!("{distance} ago") } else { format!("in {distance}") };
        match self.zone.as_ref().and_then(|zone| local_time(zone, us)) {
            Some(local) => format!("{local} ({utc}, {distance})"),
            None => format!("{utc} ({distance})"),
        }
    }
}

/// Parses a time as in RFC 3339 into microseconds since the epoch.
pub(crate) fn micros(time: &str) -> Option<u64> {
    let since = humantime::parse_rfc3339(time).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_micros()).ok()
}

/// `answer`: of `/exceptions/set`.
pub(super) fn set_text(answer: &Value, here: &Here) -> String {
    let lines = rows_of(answer).flat_map(|set| {
        let state = if set["in_force"] == true { "in effect" } else { "set, not in effect yet" };
        let replaced =
            set["before"].as_object().map(|_| format!("  replaces: {}", effect_text(&set["before"], here)));
        let warnings = set["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let warnings: Vec<_> = warnings.map(|warning| format!("  warning: {warning}")).collect();
        let id = format!("  id {}, version {}", text(&set["id"]), text(&set["version"]));
        [format!("{state}: {}", row_text(&set["row"], here))]
            .into_iter()
            .chain(replaced)
            .chain(warnings)
            .chain([id])
    });
    joined(lines)
}

/// `answer`: of `/exceptions/remove`.
pub(super) fn removed_text(answer: &Value, here: &Here) -> String {
    let removed = answer["removed"].as_array().into_iter().flatten();
    joined(removed.map(|row| format!("removed: {} [{}]", row_text(&row["before"], here), text(&row["id"]))))
}

/// `answer`: of `/exceptions/list`, all pages.
pub(super) fn listed_text(answer: &Value, here: &Here) -> String {
    let rows: Vec<_> = rows_of(answer).collect();
    let age = Duration::from_secs_f64(answer["age_s"].as_f64().unwrap_or_default().clamp(0.0, 1e9));
    let source = match answer["source"].as_str() {
        Some("redis") => format!("in Redis, read {} ago", readable_duration(age)),
        _ => "of this process only".to_owned(),
    };
    let plural = if rows.len() == 1 { "" } else { "s" };
    let head = format!(
        "{} row{plural} {source}; version {}",
        with_commas(rows.len() as u64),
        text(&answer["version"])
    );
    let line = |row: &&Value| {
        let state = row["state"].as_str().filter(|state| *state != "in_force");
        let state = state.map(|state| format!("{}: ", state.replace('_', " "))).unwrap_or_default();
        format!("{state}{} [{}, {}]", row_text(&row["row"], here), text(&row["origin"]), text(&row["id"]))
    };
    joined([head].into_iter().chain(rows.iter().map(line)))
}

/// Each line is one line, whatever the values contain.
fn joined(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| escaped(line) + "\n").collect()
}

fn row_text(row: &Value, here: &Here) -> String {
    let only = [("path", "path"), ("limit_name", "limit")];
    let only = only.map(|(column, noun)| row[column].as_str().map(|only| format!(", only {noun} {only}")));
    let only: String = only.into_iter().flatten().collect();
    let entry = format!("{} {}={}{only}", text(&row["domain"]), text(&row["key"]), text(&row["value"]));
    let reason = row["reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
    let by = row["by"].as_str().map(|by| format!(", by {by}")).unwrap_or_default();
    format!("{entry}: {}{reason}{by}", effect_text(row, here))
}

/// What a row changes, from when, and until when.
fn effect_text(row: &Value, here: &Here) -> String {
    let named = ["tier", "limit", "multiplier"]
        .map(|name| (!row[name].is_null()).then(|| format!("{name} {}", text(&row[name]))));
    let flags = ["block", "exempt"].map(|name| (row[name] == true).then(|| name.to_owned()));
    let add = row["add"].as_u64().map(|units| format!("add {}", with_commas(units)));
    let shadow =
        row["shadow_mode"].as_bool().map(|on| format!("shadow mode {}", if on { "on" } else { "off" }));
    let effects: Vec<_> = named.into_iter().chain(flags).chain([add, shadow]).flatten().collect();
    let time =
        |column: &str| row[column].as_str().map(|time| (time, format!(" {column} {}", here.time(time))));
    let from = time("from").filter(|(from, _)| micros(from).is_none_or(|from_us| from_us > here.now_us));
    let from = from.map(|(_, from)| from).unwrap_or_default();
    let until = time("until").map_or_else(|| ", without an end".to_owned(), |(_, until)| until);
    format!("{}{from}{until}", effects.join(", "))
}

/// A string or a number.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
