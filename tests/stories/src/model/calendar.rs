//! Windows of a calendar, by docs/algorithms.md, "Windows of a calendar": days, weeks, months and years of a time
//! zone, which start at the first instant of a local date.

use std::cell::RefCell;
use std::collections::BTreeMap;

use jiff::civil::{Date, Weekday, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

#[derive(Debug)]
pub(super) struct Calendar {
    zone: TimeZone,
    unit: String,
    starts: Option<String>,
    /// The windows that were asked for: start and end.
    known: RefCell<BTreeMap<i128, i128>>,
}

impl Calendar {
    pub(super) fn new(zone: &str, unit: &str, starts: Option<&str>) -> Option<Self> {
        let zone = TimeZone::get(zone).ok()?;
        let starts = starts.map(str::to_owned);
        Some(Self { zone, unit: unit.to_lowercase(), starts, known: RefCell::default() })
    }

    /// The start and the end of the window at a time.
    pub(super) fn window(&self, now_us: i128) -> (i128, i128) {
        let known =
            self.known.borrow().range(..=now_us).next_back().map(|(start_us, end_us)| (*start_us, *end_us));
        if let Some(window) = known.filter(|(_, end_us)| *end_us > now_us) {
            return window;
        }
        let now = Timestamp::from_microsecond(i64::try_from(now_us).unwrap_or(0)).unwrap_or_default();
        let mut first = self.first_day(self.zone.to_datetime(now).date(), 0);
        if self.instant_us(first) > now_us {
            first = self.first_day(first.yesterday().unwrap_or(first), 0);
        }
        let window = (self.instant_us(first), self.instant_us(self.first_day(first, 1)));
        self.known.borrow_mut().insert(window.0, window.1);
        window
    }

    /// The first day of the window that has this day, or of one `later`.
    fn first_day(&self, day: Date, later: i16) -> Date {
        match self.unit.as_str() {
            "week" => {
                let first =
                    if self.starts.as_deref() == Some("sunday") { Weekday::Sunday } else { Weekday::Monday };
                let start = day - i64::from(day.weekday().since(first)).days();
                start + (7 * i64::from(later)).days()
            }
            "month" => {
                let wanted: i8 = self.starts.as_deref().and_then(|day| day.parse().ok()).unwrap_or(1);
                let in_month =
                    |month: Date| date(month.year(), month.month(), wanted.min(month.days_in_month()));
                let month = day.first_of_month();
                let before = if in_month(month) > day { 1 } else { 0 };
                in_month(month + (i64::from(later) - before).months())
            }
            "year" => {
                let (month, first) = if self.starts.is_some() { (4, 1) } else { (1, 1) };
                let before = if date(day.year(), month, first) > day { 1 } else { 0 };
                date(day.year() - before + later, month, first)
            }
            _ => day + i64::from(later).days(),
        }
    }

    /// The first instant of a date.
    fn instant_us(&self, day: Date) -> i128 {
        let start = self.zone.to_zoned(day.at(0, 0, 0, 0)).map(|zoned| zoned.timestamp());
        start.map_or(0, |start| start.as_microsecond().into())
    }
}
