//! Time zones by name, and local times.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::nearest::{edits, letters};

/// Names of zones that a message suggests.
const MOST_SUGGESTED: usize = 3;

/// The official spelling of a time zone.
///
/// # Errors
/// The reason, for an operator, if there is no such zone.
pub fn time_zone_name(zone: &str) -> Result<String, String> {
    find_zone(&TimeZoneDatabase::from_env(), zone).map(|(name, _)| name)
}

/// The local time at `now_us` (microseconds since the epoch) with its offset: `2027-03-28 00:00:00 +01:00`. `None` for
/// an unknown zone and for times that no calendar has.
#[must_use]
pub fn local_time(zone: &str, now_us: u64) -> Option<String> {
    let (_, time_zone) = find_zone(&TimeZoneDatabase::from_env(), zone).ok()?;
    let local = Timestamp::from_microsecond(i64::try_from(now_us).ok()?).ok()?.to_zoned(time_zone);
    Some(local.strftime("%Y-%m-%d %H:%M:%S %:z").to_string())
}

pub(super) fn find_zone(zones: &TimeZoneDatabase, zone: &str) -> Result<(String, TimeZone), String> {
    let found = zones.get(zone).ok().filter(|found| !found.is_unknown());
    let named = found.and_then(|found| Some((found.iana_name()?.to_owned(), found)));
    named.ok_or_else(|| {
        let similar = similar_names(zones, zone);
        let suggestion = if similar.is_empty() {
            "it is a name such as Europe/Berlin or UTC".to_owned()
        } else {
            format!("did you mean {}?", similar.join(" or "))
        };
        format!("unknown time zone '{zone}': {suggestion}")
    })
}

/// The names of zones whose last part is the text or differs from it in a letter or two.
fn similar_names(zones: &TimeZoneDatabase, text: &str) -> Vec<String> {
    let last_part = |name: &str| letters(name.rsplit('/').next().unwrap_or_default());
    let wanted = last_part(text);
    let most = if wanted.len() < 5 { 0 } else { 2 };
    let mut found: Vec<(usize, String)> = zones
        .available()
        .map(|name| (edits(&last_part(name.as_str()), &wanted), name.as_str().to_owned()))
        .filter(|(edits, name)| *edits <= most && name.contains('/') && !wanted.is_empty())
        .collect();
    found.sort();
    let least = found.first().map_or(0, |(edits, _)| *edits);
    found
        .into_iter()
        .filter(|(edits, _)| *edits == least)
        .map(|(_, name)| name)
        .take(MOST_SUGGESTED)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_zone_gets_suggestions() {
        let table = [
            ("Berlin", "unknown time zone 'Berlin': did you mean Europe/Berlin?"),
            ("Europe/Berlni", "unknown time zone 'Europe/Berlni': did you mean Europe/Berlin?"),
            ("Europe/New York", "unknown time zone 'Europe/New York': did you mean America/New_York?"),
            ("CEST", "unknown time zone 'CEST': it is a name such as Europe/Berlin or UTC"),
            ("+02:00", "unknown time zone '+02:00': it is a name such as Europe/Berlin or UTC"),
            ("Etc/Unknown", "unknown time zone 'Etc/Unknown': it is a name such as Europe/Berlin or UTC"),
            ("", "unknown time zone '': it is a name such as Europe/Berlin or UTC"),
        ];
        for (zone, reason) in table {
            let found = find_zone(&TimeZoneDatabase::bundled(), zone).map(|(name, _)| name);
            assert_eq!(found, Err(reason.to_owned()));
        }
    }

    #[test]
    fn local_times_have_their_offset() {
        let local = |zone, now: Timestamp| local_time(zone, now.as_microsecond().cast_unsigned());
        let now: Timestamp = "2027-03-28T01:00:00Z".parse().expect("a timestamp");
        assert_eq!(local("Europe/Berlin", now).as_deref(), Some("2027-03-28 03:00:00 +02:00"));
        assert_eq!(local("Nowhere/At_All", now), None);
    }
}
