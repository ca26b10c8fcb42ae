//! Calendars of time zones: from the keys `calendar` and `starts` to the boundaries that the engine gets as numbers.
//! The only place that knows dates and time zones.
//!
//! The zones are those of the system (`/usr/share/zoneinfo`, or the directory that `TZDIR` names), or of the copy in the
//! binary if the system has none. Each load of rules opens them anew, so that a load takes new rules of a zone into
//! account.

mod starts;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use engine::{Calendar, Limit, LimitSpec, Unit};
use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use self::starts::Starts;
use crate::problem::{Location, Problem, ProblemCollector};
use crate::read::{DomainDraft, NodeDraft};

/// The years whose boundaries are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarYears {
    pub first: i16,
    pub last: i16,
}

/// How the calendars of rules are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarOptions {
    pub years: CalendarYears,
    /// The time zone of the calendar of fixed windows of one month that name none; `None`: 30 days from the epoch.
    pub month_zone: Option<Box<str>>,
}

impl CalendarOptions {
    /// Tables of these years; months without a calendar have 30 days.
    #[must_use]
    pub const fn new(years: CalendarYears) -> Self {
        Self { years, month_zone: None }
    }
}

/// Why a limit cannot have its calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CalendarProblem {
    /// The key of the rule file with the mistake.
    pub(crate) key: &'static str,
    /// For an operator.
    pub(crate) reason: String,
}

/// Years in a table: two before the time that it is made for, so that a clock may be set back, and the others after it.
const YEARS_BEFORE: i16 = 2;
const YEARS_AFTER: i16 = 9;
/// The first year of logs with times since the epoch.
const FIRST_YEAR: i16 = 1970;
/// Names of zones that a message suggests.
const MOST_SUGGESTED: usize = 3;

impl CalendarYears {
    /// Twelve years around `now_us` (microseconds since the epoch): what a service needs until it is started again.
    #[must_use]
    pub fn around(now_us: u64) -> Self {
        let year = year_of(now_us);
        Self { first: year - YEARS_BEFORE, last: year + YEARS_AFTER }
    }

    /// All years from 1970 to some years after `now_us`: requests of a log have times of any year.
    #[must_use]
    pub fn of_logs(now_us: u64) -> Self {
        Self { first: FIRST_YEAR, ..Self::around(now_us) }
    }
}

/// The calendars of one load of rules. Equal calendars share one table.
#[derive(Debug)]
pub(crate) struct Calendars {
    years: CalendarYears,
    /// Opened when the first calendar is asked for: most rules have none.
    zones: OnceCell<TimeZoneDatabase>,
    made: RefCell<HashMap<(String, Starts), Arc<Calendar>>>,
}

impl Calendars {
    pub(crate) fn new(years: CalendarYears) -> Self {
        Self { years, zones: OnceCell::new(), made: RefCell::default() }
    }

    /// The calendar of `zone` whose windows are one `unit` and start as `starts` says.
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
        let zones = self.zones.get_or_init(TimeZoneDatabase::from_env);
        let (name, time_zone) = find_zone(zones, zone).map_err(in_zone)?;
        let mut made = self.made.borrow_mut();
        if let Some(calendar) = made.get(&(name.clone(), starts)) {
            return Ok(Arc::clone(calendar));
        }
        let boundaries = boundaries(&time_zone, starts, self.years);
        let calendar = Calendar::new(&name, &starts.to_string(), boundaries)
            .map_err(|error| in_zone(format!("time zone '{name}' cannot be used: {error}")))?;
        let calendar = Arc::new(calendar);
        made.insert((name, starts), Arc::clone(&calendar));
        Ok(calendar)
    }

    /// Gives the fixed windows of one month that have no calendar the one of the options. Returns it.
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
        let limits = &mut node.rule.limits;
        for index in 0..limits.len() {
            let spec = &limits[index].limit.spec;
            if !spec.is_epoch_month() {
                continue;
            }
            let spec = LimitSpec { calendar: Some(Arc::clone(calendar)), ..spec.clone() };
            let changed =
                Limit::new(spec).map_err(|error| error.to_string()).and_then(|changed| {
                    let mut others = limits.iter().enumerate().filter(|(other, _)| *other != index);
                    match others.any(|(_, other)| other.limit.counts_like(&changed)) {
                        true => Err("counts like another limit of the descriptor by defaults.month_calendar"
                            .to_owned()),
                        false => Ok(changed),
                    }
                });
            match changed {
                Ok(changed) => limits[index].limit = changed,
                Err(reason) => problems.push(Problem::error(limits[index].location.clone(), reason)),
            }
        }
    }
}

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

fn find_zone(zones: &TimeZoneDatabase, zone: &str) -> Result<(String, TimeZone), String> {
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
    let last_part =
        |name: &str| name.rsplit('/').next().unwrap_or_default().replace(['_', ' ', '-'], "").to_lowercase();
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

/// The number of letters to insert, remove or replace that make one text of the other (Levenshtein distance).
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut above_left = row[0];
        row[0] = index + 1;
        for (place, other) in to.chars().enumerate() {
            let replaced = above_left + usize::from(letter != other);
            above_left = row[place + 1];
            row[place + 1] = replaced.min(above_left + 1).min(row[place] + 1);
        }
    }
    row[row.len() - 1]
}

/// The first instants of the windows, without those of dates that the zone skips.
fn boundaries(zone: &TimeZone, starts: Starts, years: CalendarYears) -> Vec<u64> {
    let dates = starts.dates(years.first, years.last);
    let mut instants: Vec<u64> = dates.into_iter().filter_map(|date| first_instant_us(zone, date)).collect();
    instants.dedup();
    instants
}

/// The first instant of a local date, microseconds since the epoch; `None` before the epoch. Where clocks skip midnight
/// it is the instant at which they skip it.
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
