//! When the windows of a calendar start: the value of `starts`, and the dates that follow from it.

use std::fmt;

use engine::Unit;
use jiff::civil::{Date, Weekday};

use super::CalendarProblem;

/// The first day of each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Starts {
    /// Every day.
    Day,
    /// This day of each week.
    Week(Weekday),
    /// This day of each month, from 1 to 31; in a shorter month the last day.
    Month(i8),
    /// This day of each year. In years without 29 February, that day becomes 28 February.
    Year { month: i8, day: i8 },
}

const WEEKDAYS: [(Weekday, &str); 7] = [
    (Weekday::Monday, "monday"),
    (Weekday::Tuesday, "tuesday"),
    (Weekday::Wednesday, "wednesday"),
    (Weekday::Thursday, "thursday"),
    (Weekday::Friday, "friday"),
    (Weekday::Saturday, "saturday"),
    (Weekday::Sunday, "sunday"),
];

/// In a leap year every day exists.
const LEAP_YEAR: i16 = 2024;

impl Starts {
    /// `starts` is the value in the rule file.
    ///
    /// # Errors
    /// [`CalendarProblem`] if no calendar has such windows.
    pub(crate) fn new(unit: Unit, starts: Option<&str>) -> Result<Self, CalendarProblem> {
        let found = match (unit, starts) {
            (Unit::Day, None) => Some(Self::Day),
            (Unit::Week, None) => Some(Self::Week(Weekday::Monday)),
            (Unit::Month, None) => Some(Self::Month(1)),
            (Unit::Year, None) => Some(Self::Year { month: 1, day: 1 }),
            (Unit::Day, Some(_)) => None,
            (Unit::Week, Some(text)) => weekday(text).map(Self::Week),
            (Unit::Month, Some(text)) => day_of_month(text).map(Self::Month),
            (Unit::Year, Some(text)) => day_of_year(text).map(|(month, day)| Self::Year { month, day }),
            (Unit::Second | Unit::Minute | Unit::Hour, _) => {
                let reason =
                    format!("a calendar needs unit day, week, month or year, not {}", unit.into_str());
                return Err(CalendarProblem { key: "unit", reason });
            }
        };
        found.ok_or_else(|| {
            let text = starts.unwrap_or_default();
            let reason = match unit {
                Unit::Week => {
                    format!("starts: expected a weekday such as monday for unit week, found '{text}'")
                }
                Unit::Month => {
                    format!("starts: expected a day of the month from 1 to 31 for unit month, found '{text}'")
                }
                Unit::Year => {
                    format!("starts: expected a month and a day such as 04-01 for unit year, found '{text}'")
                }
                _ => "starts has no effect with unit day: a day starts at midnight".to_owned(),
            };
            CalendarProblem { key: "starts", reason }
        })
    }

    /// The first days of all windows that start in the years `first` to `last`, in order.
    pub(super) fn dates(self, first: i16, last: i16) -> Vec<Date> {
        let start_of = |year: i16| Date::new(year, 1, 1).ok();
        let days = |from: Option<Date>, step: usize| {
            let last_day = Date::new(last, 12, 31).ok();
            let from = from
                .into_iter()
                .flat_map(|from| std::iter::successors(Some(from), |day| day.tomorrow().ok()));
            from.step_by(step).take_while(|day| Some(*day) <= last_day).collect()
        };
        let in_month = |year: i16, month: i8, day: i8| {
            let first = Date::new(year, month, 1).ok()?;
            Date::new(year, month, day.min(first.days_in_month())).ok()
        };
        match self {
            Self::Day => days(start_of(first), 1),
            Self::Week(weekday) => {
                let first =
                    start_of(first).and_then(|day| day.yesterday().ok()?.nth_weekday(1, weekday).ok());
                days(first, 7)
            }
            Self::Month(day) => {
                let months = (first..=last).flat_map(|year| (1..=12).map(move |month| (year, month)));
                months.filter_map(|(year, month)| in_month(year, month, day)).collect()
            }
            Self::Year { month, day } => {
                (first..=last).filter_map(|year| in_month(year, month, day)).collect()
            }
        }
    }
}

/// Part of a counter key: `day`, `week/monday`, `month/15`, `year/04-01`.
impl fmt::Display for Starts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Day => f.write_str("day"),
            Self::Week(weekday) => {
                let name = WEEKDAYS.iter().find(|(other, _)| *other == weekday).map_or("", |(_, name)| name);
                write!(f, "week/{name}")
            }
            Self::Month(day) => write!(f, "month/{day}"),
            Self::Year { month, day } => write!(f, "year/{month:02}-{day:02}"),
        }
    }
}

fn weekday(text: &str) -> Option<Weekday> {
    let is_text = |(_, name): &&(Weekday, &str)| name.eq_ignore_ascii_case(text);
    WEEKDAYS.iter().find(is_text).map(|(weekday, _)| *weekday)
}

/// Parses a number without a sign.
fn digits(text: &str) -> Option<i8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn day_of_month(text: &str) -> Option<i8> {
    digits(text).filter(|day| (1..=31).contains(day))
}

fn day_of_year(text: &str) -> Option<(i8, i8)> {
    let (month, day) = text.split_once('-')?;
    let (month, day) = (digits(month)?, digits(day)?);
    Date::new(LEAP_YEAR, month, day).is_ok().then_some((month, day))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dates(unit: Unit, starts: Option<&str>, first: i16, last: i16) -> Vec<String> {
        let starts = Starts::new(unit, starts).expect("valid");
        starts.dates(first, last).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_short_month_starts_on_its_last_day_and_the_next_one_goes_back() {
        let starts = dates(Unit::Month, Some("31"), 2027, 2027);
        let expected = ["2027-01-31", "2027-02-28", "2027-03-31", "2027-04-30", "2027-05-31"];
        assert_eq!((starts.len(), &starts[..5]), (12, &expected.map(str::to_owned)[..]));
        let years = dates(Unit::Year, Some("02-29"), 2027, 2029);
        assert_eq!(years, ["2027-02-28", "2028-02-29", "2029-02-28"]);
    }

    #[test]
    fn weeks_start_on_their_weekday() {
        assert_eq!(dates(Unit::Week, None, 2024, 2024)[..2], ["2024-01-01", "2024-01-08"]); // a monday
        assert_eq!(dates(Unit::Week, Some("Sunday"), 2024, 2024)[..2], ["2024-01-07", "2024-01-14"]);
        assert_eq!(dates(Unit::Week, Some("monday"), 2024, 2025).last(), Some(&"2025-12-29".to_owned()));
    }

    #[test]
    fn every_day_is_a_date() {
        let days = dates(Unit::Day, None, 2028, 2028);
        assert_eq!((days.len(), days[59].as_str(), days[365].as_str()), (366, "2028-02-29", "2028-12-31"));
    }

    #[test]
    fn what_cannot_be_is_told() {
        let table = [
            (Unit::Hour, None, "a calendar needs unit day, week, month or year, not hour"),
            (Unit::Day, Some("1"), "starts has no effect with unit day: a day starts at midnight"),
            (Unit::Week, Some("1"), "starts: expected a weekday such as monday for unit week, found '1'"),
            (
                Unit::Month,
                Some("0"),
                "starts: expected a day of the month from 1 to 31 for unit month, found '0'",
            ),
            (
                Unit::Month,
                Some("32"),
                "starts: expected a day of the month from 1 to 31 for unit month, found '32'",
            ),
            (
                Unit::Month,
                Some("+3"),
                "starts: expected a day of the month from 1 to 31 for unit month, found '+3'",
            ),
            (
                Unit::Year,
                Some("15"),
                "starts: expected a month and a day such as 04-01 for unit year, found '15'",
            ),
            (
                Unit::Year,
                Some("02-30"),
                "starts: expected a month and a day such as 04-01 for unit year, found '02-30'",
            ),
        ];
        for (unit, starts, reason) in table {
            assert_eq!(Starts::new(unit, starts).map_err(|problem| problem.reason), Err(reason.to_owned()));
        }
    }

    #[test]
    fn the_name_says_every_start() {
        let name = |unit, starts| Starts::new(unit, starts).map(|starts| starts.to_string());
        let table = [
            (Unit::Day, None, "day"),
            (Unit::Week, None, "week/monday"),
            (Unit::Month, None, "month/1"),
            (Unit::Month, Some("015"), "month/15"),
            (Unit::Year, Some("4-1"), "year/04-01"),
        ];
        for (unit, starts, expected) in table {
            assert_eq!(name(unit, starts).as_deref(), Ok(expected));
        }
    }
}
