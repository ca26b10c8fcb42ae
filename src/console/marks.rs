//! Marks events on the time axis, found by comparing two observations.

use std::collections::VecDeque;
use std::time::Duration;

use base::readable_duration;

use super::observation::{LastOutage, Observation};
use super::state::{Level, Mark};
use super::totals::SECONDS;

/// More marks than this in 15 minutes do not help; the oldest ones are dropped.
const MOST_MARKS: usize = 60;
const UNAVAILABLE: &str = "Redis unavailable";

#[derive(Debug, Default)]
pub(super) struct Marks {
    pub(super) list: VecDeque<Mark>,
    before: Option<Known>,
    /// The current or the last outage, with its end.
    pub(super) outage: Option<(LastOutage, Option<u64>)>,
    /// Seconds for which one of the store's breakers has been open.
    pub(super) breakers_open_s: u64,
}

/// What is compared.
#[derive(Debug)]
struct Known {
    generation: u64,
    rejected_at: Option<u64>,
    is_draining: bool,
}

impl Marks {
    /// Adds an observation's marks. Returns `true` if there are new ones.
    pub(super) fn add(&mut self, now: &Observation) -> bool {
        let has_open_breaker = now.store.breakers_open > 0;
        self.breakers_open_s = if has_open_breaker { self.breakers_open_s + now.seconds } else { 0 };
        let oldest = now.end.saturating_sub(SECONDS as u64);
        self.list.retain(|mark| mark.until.unwrap_or(mark.at) >= oldest);
        let mut has_news = self.add_outage(now);
        let rejected_at = now.rules.rejected.as_ref().map(|rejected| rejected.at);
        let known =
            Known { generation: now.rules.generation, rejected_at, is_draining: now.service.is_draining };
        // The first rules are loaded before the first observation.
        let at_start = Known { generation: known.generation.min(1), rejected_at: None, is_draining: false };
        let before = self.before.replace(known).unwrap_or(at_start);
        if before.generation != now.rules.generation {
            has_news |= self.push(now.rules.loaded_at, None, Level::Plain, "new rules");
        }
        if let Some(at) = rejected_at.filter(|_| before.rejected_at != rejected_at) {
            has_news |= self.push(at, None, Level::Bad, "rules rejected");
        }
        if now.service.is_draining && !before.is_draining {
            has_news |= self.push(now.end, None, Level::Warn, "draining");
        }
        has_news
    }

    pub(super) fn add_reset(&mut self, at: u64) {
        self.push(at, None, Level::Plain, "counter reset");
    }

    fn push(&mut self, at: u64, until: Option<u64>, level: Level, text: impl Into<String>) -> bool {
        if self.list.len() == MOST_MARKS {
            self.list.pop_front();
        }
        self.list.push_back(Mark { at, until, level, text: text.into() });
        true
    }

    /// The span of an outage grows while it lasts.
    fn add_outage(&mut self, now: &Observation) -> bool {
        let Some(outage) = &now.store.last_outage else { return false };
        let is_new = self.outage.as_ref().is_none_or(|(known, _)| known.at != outage.at);
        let was_over = self.outage.as_ref().is_some_and(|(known, _)| known.is_over);
        let has_news = is_new || outage.is_over != was_over;
        let ended = match (&self.outage, outage.is_over) {
            (Some((known, ended)), true) if !is_new && known.is_over => *ended,
            (_, true) => Some(now.end),
            (_, false) => None,
        };
        self.outage = Some((outage.clone(), ended));
        let (at, until) = (outage.at, ended.unwrap_or(now.end));
        if until < now.end.saturating_sub(SECONDS as u64) {
            return false;
        }
        let (level, text) = match ended {
            Some(ended) => {
                let lasted = Duration::from_secs(ended.saturating_sub(at).max(1));
                (Level::Warn, format!("{UNAVAILABLE} {}", readable_duration(lasted)))
            }
            None => (Level::Bad, UNAVAILABLE.to_owned()),
        };
        let is_known = |mark: &&mut Mark| mark.at == at && mark.text.starts_with(UNAVAILABLE);
        match self.list.iter_mut().find(is_known) {
            Some(mark) => *mark = Mark { at, until: Some(until), level, text },
            None => _ = self.push(at, Some(until), level, text),
        }
        has_news
    }
}
