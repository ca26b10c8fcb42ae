//! The state of the process as JSON: `docs/console-state.schema.json` describes it.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::catalog::{CatalogRow, RowTexts};
use super::denied::DeniedKey;
use super::excepted::RowCounts;
use super::history::History;
use super::limits::LimitHistory;
use super::marks::Mark;
use super::notices::Notice;
use super::steps::Steps;
use super::totals::Second;

/// The version of the format.
const SCHEMA: u32 = 1;
/// The limits and keys of a state.
const MOST_RULES: usize = 200;
const MOST_KEYS: usize = 200;
const MOST_KEYS_OF_A_RULE: usize = 20;
/// The shapes of requests without a limit, and the unknown domains, of a state.
pub(super) const MOST_SHAPES: usize = 5;
/// Problems of rejected rules.
const MOST_PROBLEMS: usize = 3;

/// Which limits a state has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleSelection {
    /// Those with most denials, then those with most requests.
    Most,
    /// All of them, without trends.
    All,
}

/// A limit that was asked in the last 15 minutes.
struct RuleRow<'a> {
    row: CatalogRow<'a>,
    history: &'a LimitHistory,
    asked: f64,
    denied: f64,
    keys: usize,
    has_more_keys: bool,
}

impl History {
    pub(super) fn state(&self, selection: RuleSelection) -> Value {
        let options = &self.options;
        let instance = json!({
            "name": options.instance.name,
            "id": options.instance.id,
            "version": env!("CARGO_PKG_VERSION"),
            "started_at": options.instance.started_at,
            "reasons": self.reasons(),
            "dashboard_url": (!options.dashboard_url.is_empty()).then_some(&options.dashboard_url),
            "exceptions_path": options.exceptions_path,
            "values": options.needs.name(),
        });
        json!({
            "schema": SCHEMA,
            "end": self.end(),
            "instance": instance,
            "series": self.series(),
            "marks": self.marks.list.iter().map(mark_json).collect::<Vec<_>>(),
            "notices": self.notices.iter().map(notice_json).collect::<Vec<_>>(),
            "rules": self.rules(selection),
            "keys": self.keys(),
            "store": self.store(),
            "exceptions": self.exceptions(),
            "unlimited": self.unlimited(),
        })
    }

    fn series(&self) -> Value {
        let of = |number: fn(&Second) -> Option<u32>| self.totals.seconds().map(number).collect::<Vec<_>>();
        json!({
            "requests": of(|second| Some(second.requests)),
            "denied": of(|second| Some(second.denied)),
            "failed": of(|second| Some(second.failed)),
            "policy": of(|second| Some(second.policy)),
            "shadow": of(|second| Some(second.shadow)),
            "p50_us": of(|second| second.p50_us),
            "p99_us": of(|second| second.p99_us),
            "store_p99_us": of(|second| second.store_p99_us),
        })
    }

    fn rules(&self, selection: RuleSelection) -> Value {
        let rows = self.rule_rows();
        let used: HashSet<u32> = rows.iter().map(|row| row.row.id).collect();
        let total = self.catalog.len();
        let list: Vec<Value> = match selection {
            RuleSelection::Most => rows.iter().take(MOST_RULES).map(|row| row.json(selection)).collect(),
            RuleSelection::All => {
                let used_rows = rows.iter().map(|row| row.json(selection));
                used_rows.chain(self.idle_rules(&used)).collect()
            }
        };
        let observed = self.now.as_ref().map(|now| now.rules.clone()).unwrap_or_default();
        let rejected = observed.rejected.map(|rejected| {
            let problems = &rejected.problems[..rejected.problems.len().min(MOST_PROBLEMS)];
            json!({"at": rejected.at, "problems": problems})
        });
        json!({
            "total": total,
            "idle": total.saturating_sub(used.len()),
            "files": observed.files,
            "domains": observed.domains,
            "generation": observed.generation,
            "loaded_at": observed.loaded_at,
            "warnings": observed.warnings,
            "rejected": rejected,
            "list": list,
        })
    }

    /// The limits that were asked in the last 15 minutes: those with most denials, then those with most requests.
    fn rule_rows(&self) -> Vec<RuleRow<'_>> {
        let end = self.end();
        let used = self.limits.all().filter(|(_, history)| history.asked.sum() > 0);
        let mut rows: Vec<_> = used
            .filter_map(|(limit, history)| {
                let keys = self.denied.of_limit(limit);
                let row = self.catalog.row(&history.name)?;
                Some(RuleRow {
                    row,
                    history,
                    asked: history.asked.rate(end),
                    denied: history.over.rate(end),
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

    fn idle_rules(&self, used: &HashSet<u32>) -> impl Iterator<Item = Value> {
        let mut idle: Vec<_> = self.catalog.rows().filter(|(_, row)| !used.contains(&row.id)).collect();
        idle.sort_by_key(|(name, _)| *name);
        idle.into_iter().map(|((domain, rule), row)| {
            let RowTexts { path, limit_name, limit, how, kind } = row.texts();
            json!({
                "id": row.id, "domain": **domain, "rule": **rule, "path": path, "name": limit_name,
                "limit": limit, "how": how, "kind": kind.name(),
                "asked": 0.0, "denied": 0.0, "asked_15m": 0, "denied_15m": 0, "since": null,
                "keys": 0, "more_keys": false, "spark_asked": [], "spark": [],
            })
        })
    }

    fn keys(&self) -> Value {
        let end = self.end();
        let mut all = Vec::new();
        for (limit, keys) in self.denied.all() {
            let row = self.limits.get(limit).and_then(|history| self.catalog.row(&history.name));
            let Some(row) = row else { continue };
            let mut keys: Vec<_> = keys.keys.iter().map(|key| (key.denied.rate(end), key)).collect();
            keys.sort_by(most_denied);
            all.extend(keys.into_iter().take(MOST_KEYS_OF_A_RULE).map(|(rate, key)| (row, rate, key)));
        }
        all.sort_by(|(_, a_rate, a), (_, b_rate, b)| most_denied(&(*a_rate, a), &(*b_rate, b)));
        all.iter().take(MOST_KEYS).map(|(row, rate, key)| key_json(row, *rate, key)).collect()
    }

    fn store(&self) -> Value {
        let now = self.now.as_ref();
        let store = now.map(|now| now.store.clone()).unwrap_or_default();
        let metrics = now.map(|now| now.metrics.clone()).unwrap_or_default();
        let before = self.totals.oldest_sample();
        let batch = before.and_then(|(before, _)| {
            let batches = metrics.batches.saturating_sub(before.batches);
            let requests = metrics.batched_requests.saturating_sub(before.batched_requests);
            (batches > 0).then(|| rounded(requests as f64 / batches as f64))
        });
        let outage = self.marks.outage.as_ref().map(|(outage, ended)| {
            let seconds = ended.unwrap_or(self.end()).saturating_sub(outage.at).max(1);
            json!({"at": outage.at, "seconds": seconds, "error": outage.error})
        });
        json!({
            "kind": store.kind,
            "answers": store.answers,
            "p50_us": self.totals.store_p50_us,
            "p99_us": self.totals.newest().store_p99_us,
            "queue": metrics.queued,
            "batch": batch,
            "breakers": store.breakers,
            "breakers_open": store.breakers_open,
            "deny_hits": rounded(self.deny_hits.rate(self.end())),
            "deny_keys": store.deny_keys,
            "server": store.server,
            "last_outage": outage,
        })
    }

    /// The rows of the exceptions, and the requests that they have blocked or exempted.
    fn exceptions(&self) -> Value {
        let RowCounts { block, exempt } = self.rows.now();
        json!({
            "block": {"rows": block, "requests_15m": self.blocked.sum()},
            "exempt": {"rows": exempt, "requests_15m": self.exempt.sum()},
        })
    }

    fn unlimited(&self) -> Value {
        let metrics = self.now.as_ref().map(|now| now.metrics.clone()).unwrap_or_default();
        let per_second = |number: fn(&crate::telemetry::metrics::MetricsSample) -> u64| {
            let (before, seconds) = self.totals.oldest_sample().unwrap_or((&metrics, 0));
            rounded(number(&metrics).saturating_sub(number(before)) as f64 / seconds.max(1) as f64)
        };
        let names = self.shapes.most_without_limit(MOST_SHAPES);
        let names: Vec<_> = names.into_iter().map(|(shape, rate)| json!([shape, rounded(rate)])).collect();
        let domains = self.shapes.most_unknown_domains(MOST_SHAPES);
        json!({
            "without_limit": per_second(|sample| sample.without_limit),
            "names": names,
            "unknown_domain": per_second(|sample| sample.unknown_domains),
            "domains": domains.into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "allowed": rounded(self.totals.sum(10, |second| second.policy) as f64 / 10.0),
            "shadow_mode": self.options.is_shadow_mode,
            "evictions": self.lasting.evictions(),
        })
    }
}

impl RuleRow<'_> {
    fn json(&self, selection: RuleSelection) -> Value {
        let Self { row, history, asked, denied, keys, has_more_keys } = self;
        let (domain, rule) = &history.name;
        let trend = |steps: &Steps| match selection {
            RuleSelection::Most => steps.all().collect(),
            RuleSelection::All => Vec::new(),
        };
        let RowTexts { path, limit_name, limit, how, kind } = row.texts();
        json!({
            "id": row.id, "domain": **domain, "rule": **rule, "path": path, "name": limit_name,
            "limit": limit, "how": how, "kind": kind.name(),
            "asked": rounded(*asked), "denied": rounded(*denied),
            "asked_15m": history.asked.sum(), "denied_15m": history.over.sum(), "since": history.since,
            "keys": keys, "more_keys": has_more_keys,
            "spark_asked": trend(&history.asked), "spark": trend(&history.over),
        })
    }
}

fn most_denied(a: &(f64, &DeniedKey), b: &(f64, &DeniedKey)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(b.1.denied.sum().cmp(&a.1.denied.sum())).then(a.1.id.cmp(&b.1.id))
}

fn key_json(rule: &CatalogRow<'_>, rate: f64, key: &DeniedKey) -> Value {
    json!({
        "id": key.id,
        "rule": rule.id,
        "limit": rule.limit_text(key.rule()),
        "entries": key.shown.entries,
        "secret": key.shown.is_secret,
        "exception": key.exception().map(|row| row.json()),
        "denied": rounded(rate),
        "denied_15m": key.denied.sum(),
        "spark": key.denied.all().collect::<Vec<_>>(),
    })
}

pub(super) fn mark_json(mark: &Mark) -> Value {
    json!({"at": mark.at, "until": mark.until, "level": mark.level.name(), "text": mark.text})
}

fn notice_json(notice: &Notice) -> Value {
    let Notice { level, title, text, fix } = notice;
    json!({"level": level.name(), "title": title, "text": text, "fix": fix})
}

/// To one decimal.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
