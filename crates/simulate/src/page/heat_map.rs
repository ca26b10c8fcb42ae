//! Requests over the limit by hour of the day and day of the week, in UTC.
//!
//! The script of the page makes a table of them, with coloured cells: a screen reader and a printer get the numbers,
//! and columns can be compared. The cells as HTML would be a sixth of the page.

use crate::report::Timeline;

const DAYS: usize = 7;
const HOURS: usize = 24;
/// In a log up to this length no hour of the week repeats.
const LEAST_SPAN_S: u64 = 2 * 86_400;
/// An hour of the week that the log does not have.
const ABSENT: i64 = -1;

/// Requests over the limit per hour of the week, if the log has more than two days, steps of at most an hour, and
/// requests over the limit.
pub(super) fn by_hour_of_week(timeline: &Timeline) -> Option<Vec<i64>> {
    let span_s = timeline.step_s * timeline.over.len() as u64;
    if span_s <= LEAST_SPAN_S || timeline.step_s > 3_600 || timeline.over.iter().all(|over| *over == 0) {
        return None;
    }
    let mut week = vec![ABSENT; DAYS * HOURS];
    for (step, over) in timeline.over.iter().enumerate() {
        let hour = (timeline.start_us / 1_000_000 + timeline.step_s * step as u64) / 3_600;
        // 1 January 1970 was a Thursday: the fourth day of a week, which starts on Monday.
        let place = usize::try_from((hour + 3 * 24) % 168).expect("below 168");
        week[place] = week[place].max(0).saturating_add(i64::try_from(*over).unwrap_or(i64::MAX));
    }
    Some(week)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday, 20 November 2023, 00:00 UTC.
    const MONDAY_US: u64 = 1_700_438_400_000_000;

    #[test]
    fn steps_are_summed_by_hour_of_the_week() {
        // Eight days in steps of 15 minutes, so that the first Monday is there twice.
        let over = (0..8 * 96).map(|step| u64::from(step % 96 == 4) * 3).collect();
        let timeline = Timeline { start_us: MONDAY_US, step_s: 900, over, ..Timeline::default() };
        let week = by_hour_of_week(&timeline).expect("eight days");
        assert_eq!([week[1], week[0], week[24 + 1], week[6 * 24 + 1]], [6, 0, 3, 3]);
    }

    #[test]
    fn hours_that_the_log_does_not_have_are_absent() {
        let timeline =
            Timeline { start_us: MONDAY_US, step_s: 3_600, over: vec![1; 50], ..Timeline::default() };
        let week = by_hour_of_week(&timeline).expect("50 hours");
        assert_eq!([week[2 * 24 + 1], week[2 * 24 + 2], week[167]], [1, ABSENT, ABSENT]);
    }

    #[test]
    fn two_days_repeat_nothing() {
        let week = |steps, step_s, over| {
            by_hour_of_week(&Timeline { step_s, over: vec![over; steps], ..Timeline::default() })
        };
        assert!(week(48, 3_600, 1).is_none());
        assert!(week(49, 3_600, 1).is_some());
        assert!(week(49, 3_600, 0).is_none(), "nothing to show");
        assert!(week(100, 86_400, 1).is_none(), "no hours in steps of a day");
    }
}
