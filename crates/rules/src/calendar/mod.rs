//! Turns the keys `calendar` and `starts` into the window boundaries that the engine gets as numbers.
//!
//! Time zones come from the system (`/usr/share/zoneinfo`, or the directory in `TZDIR`), or from the copy in the
//! binary. Each load of rules reopens them, so that it applies new rules of a zone.

mod starts;
mod zones;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use engine::{Calendar, Limit, LimitSpec, Unit};
use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use self::starts::Starts;
use self::zones::Zones;
pub use self::zones::{local_time, time_zone_name};
use crate::problem::{Location, Problem, ProblemCollector};
use crate::read::{DomainDraft, NodeDraft};

/// The years for which boundaries are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarYears {
    pub first: i16,
    pub last: i16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarOptions {
    pub years: CalendarYears,
    /// The time zone for fixed windows of one month without a calendar; `None`: 30 days from the epoch.
    pub month_zone: Option<Box<str>>,
}

impl CalendarOptions {
    /// Tables of these years; months without a calendar have 30 days.
    pub const fn new(years: CalendarYears) -> Self {
        Self { years, month_zone: None }
    }
}

/// Why a limit cannot have its calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CalendarProblem {
    /// The rule file key with the mistake.
    pub(crate) key: &'static str,
    /// For an operator.
    pub(crate) reason: String,
}

/// Years in a table: two before the time it is made for, because a clock may be set back, and the others after it.
const YEARS_BEFORE: i16 = 2;
const YEARS_AFTER: i16 = 9;
/// First year of logs with times since the epoch.
const FIRST_YEAR: i16 = 1970;

impl CalendarYears {
    /// Twelve years around `now_us` (microseconds since the epoch): what a service needs until its next restart.
    pub fn around(now_us: u64) -> Self {
        let year = year_of(now_us);
        Self { first: year - YEARS_BEFORE, last: year + YEARS_AFTER }
    }

    /// All years from 1970 to some years after `now_us`: requests of a log may have any year.
    pub fn of_logs(now_us: u64) -> Self {
        Self { first: FIRST_YEAR, ..Self::around(now_us) }
    }
}

/// The calendars of one load of rules. Equal calendars share one table.
#[derive(Debug)]
pub(crate) struct Calendars {
    years: CalendarYears,
    /// Opened when the first calendar is needed: most rules have none.
    zones: OnceCell<Zones>,
    made: RefCell<HashMap<(String, Starts), Arc<Calendar>>>,
}

impl Calendars {
    pub(crate) fn new(years: CalendarYears) -> Self {
        Self { years, zones: OnceCell::new(), made: RefCell::default() }
    }

    /// Returns the calendar of `zone` with windows of one `unit` that start as `starts` says.
    ///
    /// # Errors
    /// [`CalendarProblem`] if there is no such calendar.
    pub(crate) fn get(
        &self,
        zone: &str,
        unit: Unit,
        starts: Option<&str>,
    ) -> Result<Arc<Calendar>, CalendarProblem> {
        let starts = Starts::new(unit, starts)?;
        let in_zone = |reason| CalendarProblem { key: "calendar", reason };
        let (name, time_zone) = self.zones.get_or_init(Zones::of_system).find(zone).map_err(in_zone)?;
        let mut made = self.made.borrow_mut();
        if let Some(calendar) = made.get(&(name.clone(), starts)) {
            return Ok(Arc::clone(calendar));
        }
        let boundaries = boundaries(&time_zone, starts, self.years);
        let calendar = Calendar::new(&name, &starts.to_string(), boundaries)
            .map_err(|error| in_zone(format!("invalid time zone '{name}': {error}")))?;
        let calendar = Arc::new(calendar);
        made.insert((name, starts), Arc::clone(&calendar));
        Ok(calendar)
    }

    /// Gives fixed windows of one month without a calendar the one of the options, and returns it.
    pub(crate) fn set_months(
        &self,
        domains: &mut [DomainDraft],
        options: &CalendarOptions,
        problems: &mut ProblemCollector,
    ) -> Option<Arc<Calendar>> {
        let zone = options.month_zone.as_deref()?;
        match self.get(zone, Unit::Month, None) {
            Ok(calendar) => {
                domains.iter_mut().for_each(|domain| set_months(&mut domain.nodes, &calendar, problems));
                Some(calendar)
            }
            Err(CalendarProblem { reason, .. }) => {
                problems.push(Problem::error(Location::file("defaults.month_calendar".into()), reason));
                None
            }
        }
    }
}

fn set_months(nodes: &mut [NodeDraft], calendar: &Arc<Calendar>, problems: &mut ProblemCollector) {
    for node in nodes {
        set_months(&mut node.nodes, calendar, problems);
        let limits = &mut node.limits;
        for index in 0..limits.len() {
            let spec = &limits[index].limit.spec;
            if !spec.is_epoch_month() {
                continue;
            }
            let spec = LimitSpec { calendar: Some(Arc::clone(calendar)), ..spec.clone() };
            let changed = Limit::new(spec).map_err(|error| error.to_string()).and_then(|changed| {
                let mut others = limits.iter().enumerate().filter(|(other, _)| *other != index);
                if others.any(|(_, other)| other.limit.counts_like(&changed)) {
                    Err("counts like another limit of the descriptor by defaults.month_calendar".to_owned())
                } else {
                    Ok(changed)
                }
            });
            match changed {
                Ok(changed) => limits[index].limit = changed,
                Err(reason) => problems.push(Problem::error(limits[index].location.clone(), reason)),
            }
        }
    }
}

/// The first instants of the windows, without dates that the zone skips.
fn boundaries(zone: &TimeZone, starts: Starts, years: CalendarYears) -> Vec<u64> {
    let dates = starts.dates(years.first, years.last);
    let mut instants: Vec<u64> = dates.into_iter().filter_map(|date| first_instant_us(zone, date)).collect();
    instants.dedup();
    instants
}

/// The first instant of a local date, microseconds since the epoch; `None` before the epoch. If clocks skip midnight,
/// the instant at which they skip it.
fn first_instant_us(zone: &TimeZone, date: Date) -> Option<u64> {
    let midnight = zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0));
    let instant = match midnight.offset() {
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => midnight.earlier().ok()?,
        AmbiguousOffset::Gap { .. } => {
            let after_gap = midnight.later().ok()?.checked_add(SignedDuration::from_secs(1)).ok()?;
            zone.preceding(after_gap).next()?.timestamp()
        }
    };
    u64::try_from(instant.as_microsecond()).ok()
}

fn year_of(now_us: u64) -> i16 {
    let timestamp = i64::try_from(now_us).ok().and_then(|now_us| Timestamp::from_microsecond(now_us).ok());
    timestamp.map_or(FIRST_YEAR, |timestamp| timestamp.to_zoned(TimeZone::UTC).year())
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEARS: CalendarYears = CalendarYears { first: 2010, last: 2040 };

    /// Uses the copy in the binary, so that these tests do not depend on the system.
    fn bundled() -> Calendars {
        let calendars = Calendars::new(YEARS);
        calendars.zones.set(Zones::bundled()).expect("not opened yet");
        calendars
    }

    fn us(timestamp: &str) -> u64 {
        let timestamp: Timestamp = timestamp.parse().expect("a timestamp");
        u64::try_from(timestamp.as_microsecond()).expect("after 1970")
    }

    fn window(zone: &str, unit: Unit, starts: Option<&str>, now: &str) -> [String; 2] {
        let calendar = bundled().get(zone, unit, starts).expect("a calendar");
        let (start_us, end_us) = calendar.window(us(now));
        let shown = |at_us: u64| {
            Timestamp::from_microsecond(at_us.cast_signed()).expect("in range").strftime("%FT%TZ").to_string()
        };
        [shown(start_us), shown(end_us)]
    }

    #[test]
    fn days_start_at_the_first_instant_of_their_local_date() {
        let table = [
            // 23 and 25 hours.
            ("Europe/Berlin", "2027-03-28T10:00:00Z", ["2027-03-27T23:00:00Z", "2027-03-28T22:00:00Z"]),
            ("Europe/Berlin", "2027-10-31T10:00:00Z", ["2027-10-30T22:00:00Z", "2027-10-31T23:00:00Z"]),
            // 24.5 and 23.5 hours.
            ("Australia/Lord_Howe", "2027-04-04T00:00:00Z", ["2027-04-03T13:00:00Z", "2027-04-04T13:30:00Z"]),
            ("Australia/Lord_Howe", "2027-10-03T00:00:00Z", ["2027-10-02T13:30:00Z", "2027-10-03T13:00:00Z"]),
            // There is no midnight: the day starts at 01:00.
            ("Africa/Cairo", "2027-04-30T10:00:00Z", ["2027-04-29T22:00:00Z", "2027-04-30T21:00:00Z"]),
            // The day after 29 December is 31 December.
            ("Pacific/Apia", "2011-12-30T09:59:59Z", ["2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"]),
            ("Pacific/Apia", "2011-12-30T10:00:00Z", ["2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"]),
            ("UTC", "2027-02-28T23:59:59Z", ["2027-02-28T00:00:00Z", "2027-03-01T00:00:00Z"]),
        ];
        for (zone, now, expected) in table {
            assert_eq!(window(zone, Unit::Day, None, now), expected, "{zone} at {now}");
        }
    }

    #[test]
    fn longer_windows_start_at_their_first_day() {
        let table = [
            (
                Unit::Month,
                Some("15"),
                "2027-03-14T12:00:00Z",
                ["2027-02-14T23:00:00Z", "2027-03-14T23:00:00Z"],
            ),
            (
                Unit::Month,
                Some("31"),
                "2027-03-01T12:00:00Z",
                ["2027-02-27T23:00:00Z", "2027-03-30T22:00:00Z"],
            ),
            (Unit::Week, None, "2027-03-28T12:00:00Z", ["2027-03-21T23:00:00Z", "2027-03-28T22:00:00Z"]),
            (
                Unit::Year,
                Some("04-01"),
                "2027-04-02T12:00:00Z",
                ["2027-03-31T22:00:00Z", "2028-03-31T22:00:00Z"],
            ),
        ];
        for (unit, starts, now, expected) in table {
            assert_eq!(window("Europe/Berlin", unit, starts, now), expected, "{unit:?} {starts:?}");
        }
    }

    /// The inverse: the local date of each start is the next date that the zone has, and that of the instant before is
    /// an earlier one.
    #[test]
    fn boundaries_rise_and_are_the_inverse_of_local_dates() {
        let zones = [
            "Africa/Cairo",
            "America/Havana",
            "America/Sao_Paulo",
            "America/St_Johns",
            "Asia/Beirut",
            "Asia/Tehran",
            "Australia/Lord_Howe",
            "Europe/Berlin",
            "Pacific/Apia",
            "Pacific/Kiritimati",
            "UTC",
        ];
        for zone in zones {
            let (_, time_zone) = Zones::bundled().find(zone).expect("a zone");
            let date_at = |at_us: u64| {
                let at = Timestamp::from_microsecond(at_us.cast_signed()).expect("in range");
                at.to_zoned(time_zone.clone()).date()
            };
            for starts in [Starts::Day, Starts::Month(31)] {
                let boundaries = boundaries(&time_zone, starts, YEARS);
                assert!(boundaries.windows(2).all(|pair| pair[0] < pair[1]), "{zone} {starts}");
                let dates = starts.dates(YEARS.first, YEARS.last);
                let found: Vec<Date> = boundaries.iter().map(|&at_us| date_at(at_us)).collect();
                assert!(
                    found.iter().all(|date| dates.contains(date) || zone == "Pacific/Apia"),
                    "{zone} {starts}"
                );
                assert_eq!(
                    found.len(),
                    dates.len() - usize::from(zone == "Pacific/Apia" && starts == Starts::Day)
                );
                for (&at_us, date) in boundaries.iter().zip(&found) {
                    assert!(date_at(at_us - 1) < *date, "{zone} {starts} {date}");
                }
            }
        }
    }

    #[test]
    fn equal_calendars_share_one_table() {
        let calendars = bundled();
        let get = |zone, starts| calendars.get(zone, Unit::Month, starts).expect("a calendar");
        let first = get("Europe/Berlin", None);
        assert!(Arc::ptr_eq(&first, &get("europe/berlin", Some("1"))), "the spelling makes no difference");
        assert!(!Arc::ptr_eq(&first, &get("Europe/Berlin", Some("2"))));
        assert_eq!(first.to_string(), "Europe/Berlin/month/1");
    }

    #[test]
    fn a_table_has_twelve_years() {
        let years = CalendarYears::around(us("2027-05-05T00:00:00Z"));
        assert_eq!(years, CalendarYears { first: 2025, last: 2036 });
        let days = Calendars::new(years).get("Europe/Berlin", Unit::Day, None).expect("a calendar");
        assert_eq!(days.window(us("2036-07-01T12:00:00Z")).0, us("2036-06-30T22:00:00Z"), "summer time");
        assert_eq!(days.window(us("2037-07-01T12:00:00Z")).0, us("2037-06-30T23:00:00Z"), "no longer known");
        assert_eq!(
            CalendarYears::of_logs(us("2027-05-05T00:00:00Z")),
            CalendarYears { first: 1970, ..years }
        );
    }
}
