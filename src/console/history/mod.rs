//! The history of the process: observations of the last 15 minutes, and what open streams have been sent.

mod state;

use std::collections::HashSet;
use std::sync::Arc;

use super::ConsoleOptions;
use super::actions::RowId;
use super::catalog::Catalog;
use super::denied::{DeniedRow, DeniedTable};
use super::excepted::RowsInForce;
use super::frame::frame;
use super::limits::LimitHistories;
use super::marks::Marks;
use super::notices::{Facts, notices};
use super::observation::Observation;
use super::shapes::Shapes;
use super::state::Notice;
use super::steps::{STEP_S, Steps};
use super::totals::{Sums, Totals};
use crate::telemetry::metrics::LimitRef;
use state::MOST_SHAPES;

pub use state::RuleSelection;

/// Streams get the whole state at least this often.
const STATE_EVERY_S: u64 = 10;
/// In steps.
const FIVE_MINUTES: u64 = 300 / STEP_S;

#[derive(Debug)]
pub(super) struct History {
    pub(super) options: ConsoleOptions,
    pub(super) now: Option<Observation>,
    /// Seconds observed so far: rates and sums count by these, because a clock can step back.
    second: u64,
    pub(super) catalog: Catalog,
    pub(super) limits: LimitHistories,
    pub(super) denied: DeniedTable,
    pub(super) shapes: Shapes,
    pub(super) totals: Totals,
    pub(super) marks: Marks,
    pub(super) notices: Vec<Notice>,
    /// Requests denied by the deny cache, blocked by exceptions, and exempted by them.
    pub(super) deny_hits: Steps,
    pub(super) blocked: Steps,
    pub(super) exempt: Steps,
    bans: Steps,
    pub(super) rows: RowsInForce,
    /// Rows of the last state. Streams have only these.
    listed_rules: HashSet<u32>,
    listed_keys: HashSet<String>,
}

/// What streams need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Sample,
    State,
}

impl History {
    pub(super) fn new(options: ConsoleOptions) -> Self {
        Self {
            denied: DeniedTable::new(options.tag_key),
            options,
            now: None,
            second: 0,
            catalog: Catalog::default(),
            limits: LimitHistories::default(),
            shapes: Shapes::default(),
            totals: Totals::default(),
            marks: Marks::default(),
            notices: Vec::new(),
            deny_hits: Steps::default(),
            blocked: Steps::default(),
            exempt: Steps::default(),
            bans: Steps::default(),
            rows: RowsInForce::default(),
            listed_rules: HashSet::new(),
            listed_keys: HashSet::new(),
        }
    }

    pub(super) fn observe(&mut self, mut now: Observation) -> News {
        self.second += now.seconds;
        let (second, end) = (self.second, now.end);
        let has_new_rules = self.catalog.update(&now.rule_set);
        if has_new_rules {
            self.denied.mask_again(&now.rule_set);
            self.rows = RowsInForce::count(&now.rule_set, end);
        }
        self.rows.advance(end);
        let shadow = self.limits.add(&now.limits, second, end);
        self.catalog.add_missing(self.limits.all().map(|(_, limit)| &limit.name));
        for counted in std::mem::take(&mut now.denied) {
            self.shapes.add(&counted, second);
            self.denied.add(counted, &now.rule_set, second);
        }
        self.shapes.advance(second);
        self.denied.advance(second, |limit| self.limits.get(limit).is_some());
        let label_of = |limit: &LimitRef| self.limits.get(limit).map(|history| &history.name.1);
        self.denied.find_exceptions(&now.rule_set, end, label_of);
        let sums = Sums { metrics: now.metrics.clone(), evictions: now.store.evictions };
        self.totals.add(sums, now.seconds, shadow, now.store.answers);
        let grown = |sum: fn(&Observation) -> u64| sum(&now).saturating_sub(self.now.as_ref().map_or(0, sum));
        self.deny_hits.add(second, grown(|now| now.store.deny_hits));
        self.blocked.add(second, grown(|now| now.metrics.blocked));
        self.exempt.add(second, grown(|now| now.metrics.exempt));
        self.bans.add(second, grown(|now| now.metrics.bans));
        let has_marks = self.marks.add(&now);
        let has_notices = self.update_notices(&now);
        let is_due = second.is_multiple_of(STATE_EVERY_S) || now.seconds > 1;
        self.now = Some(now);
        if has_new_rules || has_marks || has_notices || is_due { News::State } else { News::Sample }
    }

    /// Returns `true` if there are notices of a new kind. Different values in a notice do not make a new kind.
    fn update_notices(&mut self, now: &Observation) -> bool {
        let domains = self.shapes.most_unknown_domains(MOST_SHAPES);
        let facts = Facts {
            now,
            totals: &self.totals,
            marks: &self.marks,
            unknown_key: self.shapes.unknown_key(&now.rule_set),
            unknown_domains: domains.into_iter().map(|(name, _)| name.to_owned()).collect(),
            is_shadow_mode: self.options.is_shadow_mode,
            started_at: self.options.instance.started_at,
            bans: self.bans.newest_steps(FIVE_MINUTES),
        };
        let current = notices(&facts);
        let kind = |notice: &Notice| notice.title.replace(|letter: char| letter.is_ascii_digit(), "");
        let has_news = !self.notices.iter().map(kind).eq(current.iter().map(kind));
        self.notices = current;
        has_news
    }

    pub(super) fn row(&self, id: &RowId) -> Option<DeniedRow> {
        let (limit, key) = self.denied.find(id.text())?;
        let name = self.limits.get(limit)?.name.clone();
        Some(key.row(name))
    }

    pub(super) fn mark_reset(&mut self) {
        self.marks.add_reset(self.end());
    }

    /// Builds the event after an observation.
    pub(super) fn frame(&mut self, news: News) -> Arc<str> {
        match news {
            News::State => self.state_frame(),
            News::Sample => frame("sample", &self.frame_id(), &self.sample()),
        }
    }

    /// Builds the state; from now on samples contain its rows.
    pub(super) fn state_frame(&mut self) -> Arc<str> {
        let state = self.state(RuleSelection::Most);
        self.listed_rules = state.rules.list.iter().map(|rule| rule.id).collect();
        self.listed_keys = state.keys.iter().map(|key| key.id.clone()).collect();
        frame("state", &self.frame_id(), &state)
    }

    fn frame_id(&self) -> String {
        format!("{}-{}", self.options.instance.id, self.second)
    }

    pub(super) fn end(&self) -> u64 {
        self.now.as_ref().map_or(self.options.instance.started_at, |now| now.end)
    }

    /// Why the process is not ready.
    pub(super) fn reasons(&self) -> &[String] {
        self.now.as_ref().map_or(&[], |now| &now.service.reasons)
    }
}
