//! Builds the state that the console shows from the history.

use std::collections::{HashMap, HashSet};

use engine::LimitId;
use store::leases::BorrowedUnits;

use super::History;
use crate::console::catalog::CatalogRow;
use crate::console::denied::DeniedKey;
use crate::console::excepted::RowCounts;
use crate::console::limits::LimitHistory;
use crate::console::live::LiveObserved;
use crate::console::state::{
    ConsoleExceptions, ConsoleInstance, ConsoleKey, ConsoleOutage, ConsoleRule, ConsoleRules, ConsoleSample,
    ConsoleSeries, ConsoleState, ConsoleStore, ConsoleUnlimited, RowsOfKind, SCHEMA,
};
use crate::console::steps::Steps;
use crate::telemetry::metrics::MetricsSample;

/// Maximum limits, and keys, in a state.
const MOST_RULES: usize = 200;
const MOST_KEYS: usize = 200;
const MOST_KEYS_OF_A_RULE: usize = 20;
/// Maximum shapes of requests without a limit, and unknown domains, in a state.
pub(super) const MOST_SHAPES: usize = 5;
/// Maximum problems of rejected rules.
const MOST_PROBLEMS: usize = 3;

/// Limits to include in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleSelection {
    /// At most 200: the most denied ones, then the most frequent.
    Most,
    /// All of them, without trends.
    All,
}

impl History {
    pub(in crate::console) fn state(&self, selection: RuleSelection) -> ConsoleState {
        let options = &self.options;
        let instance = ConsoleInstance {
            name: options.instance.name.clone(),
            id: options.instance.id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: options.instance.started_at,
            reasons: self.reasons().to_vec(),
            dashboard_url: Some(options.dashboard_url.clone()).filter(|url| !url.is_empty()),
            values: <&str>::from(options.needs).to_owned(),
            fleet: self.fleet(),
        };
        let mut series = ConsoleSeries::default();
        self.totals.seconds().for_each(|second| series.push(*second));
        ConsoleState {
            schema: SCHEMA,
            end: self.end(),
            instance,
            series,
            marks: self.marks.list.iter().cloned().collect(),
            notices: self.notices.clone(),
            rules: self.rules(selection),
            keys: self.keys(),
            store: self.store(),
            exceptions: self.exceptions(),
            live: self.live(),
            unlimited: self.unlimited(),
        }
    }

    /// Returns what changed in the last second, for the rows that streams have.
    pub(super) fn sample(&self) -> ConsoleSample {
        let (second, end) = (self.second, self.end());
        let changed = self.limits.changed().filter_map(|limit| {
            let id = self.catalog.rows.get(&limit.name)?.id;
            let numbers =
                (id, rounded(limit.asked.rate(second)), rounded(limit.over.rate(second)), limit.over.sum());
            self.listed_rules.contains(&id).then_some(numbers)
        });
        let keys = self.denied.all().flat_map(|(_, limit)| &limit.keys);
        let keys = keys.filter(|key| key.has_changed && self.listed_keys.contains(&key.id));
        let marks = self.marks.list.iter().filter(|mark| mark.until == Some(end));
        ConsoleSample {
            end,
            sample: self.totals.newest(),
            rules: changed.collect(),
            keys: keys
                .map(|key| (key.id.clone(), rounded(key.denied.rate(second)), key.denied.sum()))
                .collect(),
            marks: marks.cloned().collect(),
            reasons: self.reasons().to_vec(),
            fleet: self.fleet(),
            live: self.live(),
        }
    }

    fn fleet(&self) -> String {
        self.now.as_ref().map(|now| now.service.fleet.clone()).unwrap_or_default()
    }

    fn live(&self) -> Option<LiveObserved> {
        self.now.as_ref()?.live.clone()
    }

    fn rules(&self, selection: RuleSelection) -> ConsoleRules {
        let rows = self.used_rows();
        let used: HashSet<u32> = rows.iter().map(|row| row.row.id).collect();
        let total = self.catalog.rows.len();
        let list = match selection {
            RuleSelection::Most => rows.iter().take(MOST_RULES).map(RuleRow::with_trends).collect(),
            RuleSelection::All => {
                rows.iter().map(RuleRow::without_trends).chain(self.idle_rules(&used)).collect()
            }
        };
        let mut observed = self.now.as_ref().map(|now| now.rules.clone()).unwrap_or_default();
        if let Some(rejected) = &mut observed.rejected {
            rejected.problems.truncate(MOST_PROBLEMS);
        }
        ConsoleRules { total, idle: total.saturating_sub(used.len()), observed, list }
    }

    /// Returns the limits used in the last 15 minutes: the most denied ones, then the most frequent.
    fn used_rows(&self) -> Vec<RuleRow<'_>> {
        let used = self.limits.all().filter(|(_, history)| history.asked.sum() > 0);
        let mut rows: Vec<_> = used
            .filter_map(|(limit, history)| {
                let keys = self.denied.of_limit(limit);
                let row = self.catalog.rows.get(&history.name)?;
                Some(RuleRow {
                    row,
                    history,
                    leases: self.leases(),
                    asked: history.asked.rate(self.second),
                    denied: history.over.rate(self.second),
                    keys: keys.map_or(0, |keys| keys.keys.len()),
                    has_more_keys: keys.is_some_and(|keys| keys.has_more),
                })
            })
            .collect();
        rows.sort_by(|a, b| {
            let sums = |row: &RuleRow<'_>| row.history.over.sum();
            b.denied.total_cmp(&a.denied).then(sums(b).cmp(&sums(a))).then(b.asked.total_cmp(&a.asked))
        });
        rows
    }

    fn leases(&self) -> Option<&HashMap<LimitId, BorrowedUnits>> {
        self.now.as_ref().map(|now| &now.store.leases)
    }

    fn idle_rules(&self, used: &HashSet<u32>) -> impl Iterator<Item = ConsoleRule> {
        let mut idle: Vec<_> = self.catalog.rows.iter().filter(|(_, row)| !used.contains(&row.id)).collect();
        idle.sort_by_key(|(name, _)| *name);
        idle.into_iter().map(|(name, row)| row.named(name, self.leases()))
    }

    fn keys(&self) -> Vec<ConsoleKey> {
        let mut all = Vec::new();
        for (limit, keys) in self.denied.all() {
            let row = self.limits.get(limit).and_then(|history| self.catalog.rows.get(&history.name));
            let Some(row) = row else { continue };
            let mut keys: Vec<_> = keys.keys.iter().map(|key| (key.denied.rate(self.second), key)).collect();
            keys.sort_by(most_denied);
            all.extend(keys.into_iter().take(MOST_KEYS_OF_A_RULE).map(|(rate, key)| (row, rate, key)));
        }
        all.sort_by(|(_, a_rate, a), (_, b_rate, b)| most_denied(&(*a_rate, a), &(*b_rate, b)));
        let key = |(rule, rate, key): &(&CatalogRow, f64, &DeniedKey)| ConsoleKey {
            id: key.id.clone(),
            rule: rule.id,
            limit: rule.limit_text(key.rule()),
            entries: key.shown.entries.clone(),
            secret: key.shown.is_secret,
            exception: key.exception(),
            denied: rounded(*rate),
            denied_15m: key.denied.sum(),
            spark: key.denied.all().collect(),
        };
        all.iter().take(MOST_KEYS).map(key).collect()
    }

    fn store(&self) -> ConsoleStore {
        let now = self.now.as_ref();
        let store = now.map(|now| now.store.clone()).unwrap_or_default();
        let (batches, _) = self.totals.grown_lately(|sample| sample.batches);
        let (requests, _) = self.totals.grown_lately(|sample| sample.batched_requests);
        let last_outage = self.marks.outage.as_ref().map(|(outage, ended)| ConsoleOutage {
            at: outage.at,
            seconds: ended.unwrap_or(self.end()).saturating_sub(outage.at).max(1),
            error: outage.error.clone(),
        });
        ConsoleStore {
            kind: store.kind.to_owned(),
            answers: store.answers,
            p50_us: self.totals.store_p50_us,
            p99_us: self.totals.newest().store_p99_us,
            queue: now.map_or(0, |now| now.metrics.queued),
            batch: (batches > 0).then(|| rounded(requests as f64 / batches as f64)),
            breakers: store.breakers,
            breakers_open: store.breakers_open,
            deny_hits: rounded(self.deny_hits.rate(self.second)),
            deny_keys: store.deny_keys,
            server: store.server,
            last_outage,
        }
    }

    /// The exceptions, and the requests that they have blocked or exempted.
    fn exceptions(&self) -> ConsoleExceptions {
        let RowCounts { block, exempt } = self.rows.now();
        let of_kind =
            |rows: usize, requests: &Steps| RowsOfKind { rows: rows as u64, requests_15m: requests.sum() };
        ConsoleExceptions { block: of_kind(block, &self.blocked), exempt: of_kind(exempt, &self.exempt) }
    }

    fn unlimited(&self) -> ConsoleUnlimited {
        let per_second = |number: fn(&MetricsSample) -> u64| {
            let (grown, seconds) = self.totals.grown_lately(number);
            rounded(grown as f64 / seconds.max(1) as f64)
        };
        let names = self.shapes.most_without_limit(MOST_SHAPES).into_iter();
        let domains = self.shapes.most_unknown_domains(MOST_SHAPES).into_iter();
        ConsoleUnlimited {
            without_limit: per_second(|sample| sample.without_limit),
            names: names.map(|(shape, rate)| (shape.to_owned(), rounded(rate))).collect(),
            unknown_domain: per_second(|sample| sample.unknown_domains),
            domains: domains.map(|(name, _)| name.to_owned()).collect(),
            allowed: rounded(self.totals.sum(10, |second| second.policy) as f64 / 10.0),
            shadow_mode: self.options.is_shadow_mode,
            evictions: self.totals.grown_in_a_minute(|sums| sums.evictions),
        }
    }
}

/// A limit used in the last 15 minutes.
struct RuleRow<'a> {
    row: &'a CatalogRow,
    history: &'a LimitHistory,
    leases: Option<&'a HashMap<LimitId, BorrowedUnits>>,
    asked: f64,
    denied: f64,
    keys: usize,
    has_more_keys: bool,
}

impl RuleRow<'_> {
    fn with_trends(&self) -> ConsoleRule {
        let LimitHistory { asked, over, .. } = self.history;
        ConsoleRule {
            spark_asked: asked.all().collect(),
            spark: over.all().collect(),
            ..self.without_trends()
        }
    }

    fn without_trends(&self) -> ConsoleRule {
        let Self { row, history, leases, asked, denied, keys, has_more_keys } = self;
        ConsoleRule {
            asked: rounded(*asked),
            denied: rounded(*denied),
            asked_15m: history.asked.sum(),
            denied_15m: history.over.sum(),
            since: history.since,
            keys: *keys,
            more_keys: *has_more_keys,
            ..row.named(&history.name, *leases)
        }
    }
}

fn most_denied(a: &(f64, &DeniedKey), b: &(f64, &DeniedKey)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(b.1.denied.sum().cmp(&a.1.denied.sum())).then(a.1.id.cmp(&b.1.id))
}

/// To one decimal.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
