//! Requests over the limit by hour of the day and day of the week, in UTC.

use serde::Serialize;

use crate::report::Timeline;

const HOURS_OF_WEEK: usize = 7 * 24;
/// Logs up to this length get no map, because no hour of the week repeats in them.
const LEAST_SPAN_S: u64 = 2 * 86_400;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct HeatMap {
    /// Length of the log.
    span_s: u64,
    /// Requests over the limit by hour of the week, from Monday, 00:00 UTC; `None` for hours outside the log.
    over: Vec<Option<u64>>,
}

/// `None` unless the log has more than two days, steps of at most an hour, and requests over the limit.
pub(super) fn by_hour_of_week(timeline: &Timeline) -> Option<HeatMap> {
    let span_s = timeline.step_s * timeline.over.len() as u64;
    if span_s <= LEAST_SPAN_S || timeline.step_s > 3_600 || timeline.over.iter().all(|over| *over == 0) {
        return None;
    }
    let mut week = vec![None; HOURS_OF_WEEK];
    for (step, over) in timeline.over.iter().enumerate() {
        let hour = (timeline.start_us / 1_000_000 + timeline.step_s * step as u64) / 3_600;
        // 1 January 1970 was a Thursday: the fourth day of a week, which starts on Monday.
        let place = usize::try_from((hour + 3 * 24) % 168).expect("below 168");
        *week[place].get_or_insert(0) += over;
    }
    Some(HeatMap { span_s, over: week })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday, 20 November 2023, 00:00 UTC.
    const MONDAY_US: u64 = 1_700_438_400_000_000;

    #[test]
    fn steps_are_summed_by_hour_of_the_week() {
        // Eight days in steps of 15 minutes, so that the first Monday occurs twice.
        let over = (0..8 * 96).map(|step| u64::from(step % 96 == 4) * 3).collect();
        let timeline = Timeline { start_us: MONDAY_US, step_s: 900, over, ..Timeline::default() };
        let week = by_hour_of_week(&timeline).expect("eight days");
        assert_eq!(week.span_s, 8 * 86_400);
        let week = week.over;
        assert_eq!([week[1], week[0], week[24 + 1], week[6 * 24 + 1]], [6, 0, 3, 3].map(Some));
    }

    #[test]
    fn hours_that_the_log_does_not_have_are_absent() {
        let timeline =
            Timeline { start_us: MONDAY_US, step_s: 3_600, over: vec![1; 50], ..Timeline::default() };
        let week = by_hour_of_week(&timeline).expect("50 hours").over;
        assert_eq!([week[2 * 24 + 1], week[2 * 24 + 2], week[167]], [Some(1), None, None]);
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
