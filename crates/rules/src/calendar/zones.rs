//! Time zones by name, and local times.

use std::io;
use std::path::PathBuf;

use base::read_file;
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use strsim::osa_distance;

use crate::nearest::letters;

const MOST_SUGGESTED: usize = 3;
/// A zone file has a few kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Where systems keep their zones.
const FOLDERS: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"];

/// The system's zones, with the copy in the binary for those that it lacks.
#[derive(Debug)]
pub(super) struct Zones {
    /// Searched in order.
    folders: Vec<PathBuf>,
    copy: TimeZoneDatabase,
}

impl Zones {
    /// The zones in `TZDIR`, or in the usual directories.
    #[expect(clippy::disallowed_methods, reason = "TZDIR is a variable of the system, and no setting")]
    pub(super) fn of_system() -> Self {
        let folders = match std::env::var_os("TZDIR") {
            Some(folder) => vec![folder.into()],
            None => FOLDERS.map(PathBuf::from).into(),
        };
        Self { folders, copy: TimeZoneDatabase::bundled() }
    }

    #[cfg(test)]
    pub(super) fn bundled() -> Self {
        Self { folders: Vec::new(), copy: TimeZoneDatabase::bundled() }
    }

    /// Finds a zone and its official spelling. A zone that only the system has must be spelled like its file.
    ///
    /// # Errors
    /// The reason, for an operator.
    pub(super) fn find(&self, zone: &str) -> Result<(String, TimeZone), String> {
        let copy = self.copy.get(zone).ok();
        if copy.as_ref().is_some_and(TimeZone::is_unknown) {
            return Err(self.unknown(zone));
        }
        let name = copy.as_ref().and_then(TimeZone::iana_name).unwrap_or(zone);
        match self.system_zone(name)? {
            Some(found) => Ok((name.to_owned(), found)),
            None => copy.clone().map(|copy| (name.to_owned(), copy)).ok_or_else(|| self.unknown(zone)),
        }
    }

    /// `None` if the system has no zone of this name.
    fn system_zone(&self, name: &str) -> Result<Option<TimeZone>, String> {
        let is_part = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-+".contains(&byte))
        };
        if !name.split('/').all(is_part) {
            return Ok(None);
        }
        for file in self.folders.iter().map(|folder| folder.join(name)) {
            let unusable = |error: String| format!("time zone '{name}': {}: {error}", file.display());
            let bytes = match read_file(&file, MAX_FILE_BYTES) {
                Ok(bytes) => bytes,
                Err(error)
                    if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) =>
                {
                    continue;
                }
                Err(error) => return Err(unusable(error.to_string())),
            };
            let zone = TimeZone::tzif(name, &bytes);
            return zone.map(Some).map_err(|_| unusable("not a time zone file".to_owned()));
        }
        Ok(None)
    }

    fn unknown(&self, zone: &str) -> String {
        let similar = similar_names(&self.copy, zone);
        let suggestion = if similar.is_empty() {
            "expected a name such as Europe/Berlin or UTC".to_owned()
        } else {
            format!("did you mean {}?", similar.join(" or "))
        };
        format!("unknown time zone '{zone}': {suggestion}")
    }
}

/// The official spelling of a time zone.
///
/// # Errors
/// The reason, for an operator, if there is no such zone.
pub fn time_zone_name(zone: &str) -> Result<String, String> {
    Zones::of_system().find(zone).map(|(name, _)| name)
}

/// Formats local time at `now_us` (microseconds since the epoch) with its offset: `2027-03-28 00:00:00 +01:00`. `None`
/// for an unknown zone and for times outside the calendar.
pub fn local_time(zone: &str, now_us: u64) -> Option<String> {
    let (_, time_zone) = Zones::of_system().find(zone).ok()?;
    let local = Timestamp::from_microsecond(i64::try_from(now_us).ok()?).ok()?.to_zoned(time_zone);
    Some(local.strftime("%Y-%m-%d %H:%M:%S %:z").to_string())
}

/// Zone names whose last part equals the text or differs in a letter or two.
fn similar_names(zones: &TimeZoneDatabase, text: &str) -> Vec<String> {
    let last_part = |name: &str| letters(name.rsplit('/').next().unwrap_or_default());
    let wanted = last_part(text);
    let most = if wanted.chars().count() < 5 { 0 } else { 2 };
    let mut found: Vec<(usize, String)> = zones
        .available()
        .map(|name| (osa_distance(&last_part(name.as_str()), &wanted), name.as_str().to_owned()))
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
            ("CEST", "unknown time zone 'CEST': expected a name such as Europe/Berlin or UTC"),
            ("+02:00", "unknown time zone '+02:00': expected a name such as Europe/Berlin or UTC"),
            ("Etc/Unknown", "unknown time zone 'Etc/Unknown': expected a name such as Europe/Berlin or UTC"),
            ("", "unknown time zone '': expected a name such as Europe/Berlin or UTC"),
        ];
        for (zone, reason) in table {
            let found = Zones::bundled().find(zone).map(|(name, _)| name);
            assert_eq!(found, Err(reason.to_owned()));
        }
    }

    #[test]
    fn a_zone_of_the_system_is_read_from_a_regular_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let zones = Zones { folders: vec![folder.path().to_owned()], copy: TimeZoneDatabase::bundled() };
        let path = |name: &str| folder.path().join("Europe").join(name);
        std::fs::create_dir(folder.path().join("Europe")).expect("a folder");
        let made = std::process::Command::new("mkfifo").arg(path("Berlin")).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo is a part of coreutils");
        std::fs::write(path("Paris"), "random").expect("a file");
        // UTC, as version 1 of RFC 8536 writes it.
        let utc = [b"TZif".as_slice(), &[0; 32], &[0, 0, 0, 1, 0, 0, 0, 4], &[0; 6], b"UTC\0"].concat();
        std::fs::write(path("Here"), utc).expect("a file");
        let table = [
            ("europe/berlin", "Europe/Berlin: not a regular file"),
            ("Europe/Paris", "Europe/Paris: not a time zone file"),
            ("Europe/Here", "Europe/Here"),
            ("Europe/Madrid", "Europe/Madrid"), // the copy in the binary has it
            ("Europe", "not a regular file"),
            ("Europe/../Europe/Here", "expected a name such as Europe/Berlin or UTC"),
        ];
        for (zone, expected) in table {
            let found = zones.find(zone).map_or_else(|reason| reason, |(name, _)| name);
            assert!(found.ends_with(expected), "{zone}: {found}");
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
