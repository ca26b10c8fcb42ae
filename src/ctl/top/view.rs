//! Merges the instances' states: rates, rules by name, and keys by what is shown of them.

use std::collections::BTreeMap;
use std::time::Duration;

use ratelimitd::console::{
    ConsoleExceptions, ConsoleState, KeyException, Level, LiveObserved, Notice, RuleName, SECONDS,
    ShownEntries,
};
use serde::Serialize;

use super::events::ConsoleEvent;

/// Seconds over which request rates are averaged.
const RATE_SECONDS: usize = 5;
/// A longer pause ends a series of denials, as in the console.
const LONGEST_PAUSE_S: usize = 30;
/// How long a replaced process is reported.
const REPLACED_FOR_S: u64 = 900;

/// Whether an instance answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contact {
    Connecting,
    Live,
    /// `wait`: time until the next attempt, if there is one.
    Lost {
        error: String,
        wait: Option<Duration>,
    },
}

/// What is known about an instance.
#[derive(Clone, Debug)]
pub(super) struct InstanceSeen {
    address: String,
    /// The last one, kept after contact is lost.
    state: Option<ConsoleState>,
    pub(super) contact: Contact,
    /// Name of the process that answered before this one, and when that changed.
    replaced: Option<(String, u64)>,
}

impl InstanceSeen {
    pub(super) fn new(address: String) -> Self {
        Self { address, state: None, contact: Contact::Connecting, replaced: None }
    }

    pub(super) fn event(&mut self, event: ConsoleEvent) {
        match (event, &mut self.state) {
            (ConsoleEvent::State(state), before) => {
                if let Some(before) = before.as_ref().filter(|before| before.instance.id != state.instance.id)
                {
                    self.replaced = Some((before.instance.name.clone(), state.end));
                }
                *before = Some(*state);
            }
            (ConsoleEvent::Sample(sample), Some(state)) => state.add(*sample),
            // A stream starts with a state, and its reader ends it at the last event.
            (ConsoleEvent::Sample(_), None) | (ConsoleEvent::End, _) => return,
        }
        self.contact = Contact::Live;
    }

    /// Returns the notice that another process now has the address.
    fn replaced_notice(&self) -> Option<NoticeLine> {
        let (before, at) = self.replaced.as_ref()?;
        let now = self.state.as_ref().filter(|state| state.end.saturating_sub(*at) < REPLACED_FOR_S)?;
        let (name, address) = (&now.instance.name, &self.address);
        let title = if before == name {
            format!("■ {name} restarted: {address} is a new process.")
        } else {
            format!("■ {address} is another process now: {before} before, {name} now.")
        };
        let notice = Notice {
            level: Level::Bad,
            title,
            text: "Its counts restart at zero.".to_owned(),
            fix: String::new(),
        };
        Some(NoticeLine { instance: name.clone(), notice })
    }
}

/// Data of the screen. Times are seconds since the epoch, rates are per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct View {
    /// End of the last second of the newest instance.
    pub(super) end: u64,
    pub(super) instances: Vec<InstanceLine>,
    pub(super) per_second: Rates,
    /// Start of the current denials.
    pub(super) denied_since: Option<u64>,
    /// 99th percentile of a call; with several instances the slowest one's.
    pub(super) p99_us: Option<u64>,
    /// The same for decisions in Redis.
    pub(super) store_p99_us: Option<u64>,
    /// `None` if all counters are in memory.
    pub(super) redis: Option<RedisAnswers>,
    /// From the instance with the most exceptions.
    pub(super) exceptions: ConsoleExceptions,
    /// From the instance with the most live exceptions.
    pub(super) live: Option<LiveObserved>,
    pub(super) notices: Vec<NoticeLine>,
    pub(super) rules: Vec<RuleLine>,
    pub(super) keys: Vec<KeyLine>,
    /// Denied requests of each of the last seconds, oldest first.
    #[serde(skip)]
    pub(super) denied_seconds: Vec<u64>,
}

/// One instance, whether it answers or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct InstanceLine {
    pub(super) address: String,
    pub(super) name: Option<String>,
    pub(super) id: Option<String>,
    pub(super) version: Option<String>,
    pub(super) started_at: Option<u64>,
    /// Why it is not ready.
    pub(super) reasons: Vec<String>,
    /// Why it does not answer.
    pub(super) error: Option<String>,
    /// Another address of the same process, under which it is counted.
    pub(super) same_as: Option<String>,
    /// `true` if it is included in the sums.
    pub(super) is_counted: bool,
    /// `Some` while reconnecting.
    #[serde(skip)]
    pub(super) wait: Option<Duration>,
}

/// Requests per second. The classes are exclusive, except for `shadow`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) requests: f64,
    pub(super) denied: f64,
    /// Denials without effect.
    pub(super) shadow: f64,
    pub(super) policy: f64,
    pub(super) failed: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct RedisAnswers {
    /// Instances with counters in Redis, and how many of them get answers.
    pub(super) instances: usize,
    pub(super) answering: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct NoticeLine {
    pub(super) instance: String,
    #[serde(flatten)]
    pub(super) notice: Notice,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct RuleLine {
    #[serde(flatten)]
    pub(super) name: RuleName,
    pub(super) asked: f64,
    pub(super) denied: f64,
    pub(super) denied_15m: u64,
    pub(super) since: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct KeyLine {
    #[serde(flatten)]
    pub(super) name: RuleName,
    /// The limit, if the rule has several.
    pub(super) of_limit: Option<String>,
    pub(super) entries: ShownEntries,
    pub(super) exception: Option<KeyException>,
    pub(super) denied: f64,
    /// A lower bound.
    pub(super) denied_15m: u64,
}

impl RuleLine {
    /// `true` if the rule actually denies requests.
    pub(super) fn is_enforced(&self) -> bool {
        self.name.kind != "shadow"
    }
}

impl View {
    /// Adds up the instances that answer. If none does, the last data of all of them.
    pub(super) fn merged(seen: &[InstanceSeen]) -> Self {
        let is_any_live = seen.iter().any(|instance| instance.contact == Contact::Live);
        let mut view = Self::default();
        let mut counted: Vec<(&str, &ConsoleState)> = Vec::new();
        for instance in seen {
            let mut line = instance_line(instance);
            if let Some(state) = &instance.state {
                let known = counted.iter().find(|(_, known)| known.instance.id == state.instance.id);
                line.same_as = known.map(|(address, _)| (*address).to_owned());
                line.is_counted =
                    line.same_as.is_none() && (!is_any_live || instance.contact == Contact::Live);
                if line.is_counted {
                    counted.push((&instance.address, state));
                    view.notices.extend(instance.replaced_notice());
                }
            }
            view.instances.push(line);
        }
        let states: Vec<&ConsoleState> = counted.iter().map(|(_, state)| *state).collect();
        view.end = states.iter().map(|state| state.end).max().unwrap_or_default();
        view.add_series(&states);
        for (address, state) in &counted {
            let name = &state.instance.name;
            let is_unique = states.iter().filter(|other| other.instance.name == *name).count() == 1;
            let instance = if is_unique { name.clone() } else { (*address).to_owned() };
            let line = |notice: &Notice| NoticeLine { instance: instance.clone(), notice: notice.clone() };
            view.notices.extend(state.notices.iter().map(line));
        }
        let live = states.iter().filter_map(|state| state.live.as_ref());
        view.live = live.max_by_key(|live| live.rows()).cloned();
        view.notices.sort_by_key(|line| line.notice.level);
        view.rules = rule_lines(&states);
        view.keys = key_lines(&states);
        view
    }

    fn add_series(&mut self, states: &[&ConsoleState]) {
        self.denied_seconds = vec![0; SECONDS];
        for state in states {
            let series = &state.series;
            let rates = &mut self.per_second;
            rates.requests += mean(&series.requests);
            rates.denied += mean(&series.denied);
            rates.shadow += mean(&series.shadow);
            rates.policy += mean(&series.policy);
            rates.failed += mean(&series.failed);
            self.p99_us = self.p99_us.max(series.p99_us.last().copied().flatten());
            self.store_p99_us = self.store_p99_us.max(series.store_p99_us.last().copied().flatten());
            self.exceptions.block.add(state.exceptions.block);
            self.exceptions.exempt.add(state.exceptions.exempt);
            if state.store.kind == "redis" {
                let redis = self.redis.get_or_insert_default();
                redis.instances += 1;
                redis.answering += usize::from(state.store.answers);
            }
            // Instances end their seconds at different times: the newest one ends the axis.
            let behind = usize::try_from(self.end - state.end).unwrap_or(SECONDS);
            let axis = self.denied_seconds.iter_mut().rev().skip(behind);
            axis.zip(series.denied.iter().rev()).for_each(|(sum, denied)| *sum = sum.saturating_add(*denied));
        }
        self.denied_since = denied_since(&self.denied_seconds, self.end);
    }
}

fn instance_line(seen: &InstanceSeen) -> InstanceLine {
    let mut line = InstanceLine { address: seen.address.clone(), ..InstanceLine::default() };
    if let Contact::Lost { error, wait } = &seen.contact {
        (line.error, line.wait) = (Some(error.clone()), *wait);
    }
    if let Some(ConsoleState { instance, .. }) = &seen.state {
        line.name = Some(instance.name.clone());
        line.id = Some(instance.id.clone());
        line.version = Some(instance.version.clone());
        line.started_at = Some(instance.started_at);
        line.reasons.clone_from(&instance.reasons);
    }
    line
}

fn mean(series: &[u64]) -> f64 {
    let newest = &series[series.len().saturating_sub(RATE_SECONDS)..];
    newest.iter().map(|count| *count as f64).sum::<f64>() / newest.len().max(1) as f64
}

/// Returns when the series of denials that lasts at `end` started.
fn denied_since(seconds: &[u64], end: u64) -> Option<u64> {
    let mut began = None;
    let mut pause = 0;
    for (back, denied) in (1..).zip(seconds.iter().rev()) {
        pause = if *denied > 0 { 0 } else { pause + 1 };
        if *denied > 0 {
            began = Some(end.saturating_sub(back));
        } else if pause > LONGEST_PAUSE_S {
            break;
        }
    }
    began
}

fn rule_lines(states: &[&ConsoleState]) -> Vec<RuleLine> {
    let mut lines: BTreeMap<&RuleName, RuleLine> = BTreeMap::new();
    for rule in states.iter().flat_map(|state| &state.rules.list) {
        let line = lines.entry(&rule.shown).or_default();
        line.name.clone_from(&rule.shown);
        line.asked += rule.asked;
        line.denied += rule.denied;
        line.denied_15m = line.denied_15m.saturating_add(rule.denied_15m);
        line.since = line.since.into_iter().chain(rule.since).min();
    }
    // Equal ones are sorted by name.
    let mut lines: Vec<RuleLine> = lines.into_values().collect();
    lines.sort_by(|a, b| {
        let by_asked = || b.asked.total_cmp(&a.asked);
        b.denied.total_cmp(&a.denied).then(b.denied_15m.cmp(&a.denied_15m)).then_with(by_asked)
    });
    lines
}

fn key_lines(states: &[&ConsoleState]) -> Vec<KeyLine> {
    let mut lines: BTreeMap<(&ShownEntries, RuleName, &Option<String>, usize), KeyLine> = BTreeMap::new();
    for state in states {
        // Different clients of an instance can share a tag: their rows are not joined.
        let mut equal: BTreeMap<_, usize> = BTreeMap::new();
        for key in &state.keys {
            let rule = state.rules.list.iter().find(|rule| rule.id == key.rule);
            // A key of a rule that the state does not list, because 200 others have more denials.
            let name = rule.map(|rule| rule.shown.clone()).unwrap_or_default();
            let place = equal.entry((&key.entries, name.clone(), &key.limit)).or_default();
            *place += 1;
            let line = lines.entry((&key.entries, name.clone(), &key.limit, *place)).or_default();
            (line.name, line.of_limit, line.entries) = (name, key.limit.clone(), key.entries.clone());
            line.exception = line.exception.take().or_else(|| key.exception.clone());
            line.denied += key.denied;
            line.denied_15m = line.denied_15m.saturating_add(key.denied_15m);
        }
    }
    // Equal ones are sorted by entries.
    let mut lines: Vec<KeyLine> = lines.into_values().collect();
    lines.sort_by(|a, b| b.denied.total_cmp(&a.denied).then(b.denied_15m.cmp(&a.denied_15m)));
    lines
}
