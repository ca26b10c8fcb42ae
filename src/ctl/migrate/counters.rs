//! `migrate --counters`: copies the counters of `envoyproxy/ratelimit` that still count. It stores each as a number under
//! the key `<prefix><domain>_<key>_<value>_..._<window start>`, whose parts it joins without escaping them.

use std::process::ExitCode;

use base::clock::{Clock as _, SystemClock};
use engine::{Algorithm, DomainRules, Entry, Limit, Node, RuleSet};
use ratelimitd::app::load_options;
use ratelimitd::cli::load_settings::LoadedSettings;
use ratelimitd::cli::output::fail;
use ratelimitd::cli::rule_options::settings_rules;
use store::redis::{PlainCounters, RedisOptions, RedisUrl, Topology};

use super::super::counters::import::{CounterSetter, ImportError, SetTarget};

const COMMAND: &str = "ratelimitctl migrate --counters";
/// Ways to read a key that are tried; a key with more is ambiguous.
const MOST_READINGS: usize = 1_000;

/// A descriptor whose counter a key can be.
#[derive(Clone, Debug)]
struct Reading<'r> {
    domain: &'r str,
    entries: Vec<Entry>,
    limits: &'r [std::sync::Arc<Limit>],
}

/// What to do with a key.
enum Meaning<'r> {
    /// Set this limit's counter.
    Counter(Reading<'r>, &'r Limit),
    /// The window is over.
    Over,
    Unclear(String),
}

pub(super) fn run(loaded: &LoadedSettings, from: Option<&RedisUrl>, target: &SetTarget) -> ExitCode {
    let settings = &loaded.settings;
    let options = match settings.secrets.value_hashing() {
        Ok(hashing) => load_options(settings, hashing),
        Err(error) => return fail(COMMAND, error, 1),
    };
    let read = match settings_rules(settings, options) {
        Ok(read) => read,
        Err(error) => return fail(COMMAND, error, 1),
    };
    let mut redis = settings.store.redis.clone();
    if !loaded.variables.contains(&"CACHE_KEY_PREFIX") {
        redis.key_prefix.clear();
    }
    if let Some(url) = from {
        (redis.urls, redis.topology) = (vec![url.clone()], Topology::Standalone);
    }
    let mut setter = CounterSetter::new(target);
    let copied = copy(&redis, &read.loaded.rules, &mut setter);
    setter.end(COMMAND, copied)
}

fn copy(options: &RedisOptions, rules: &RuleSet, setter: &mut CounterSetter<'_>) -> Result<(), ImportError> {
    let from = |error: String| ImportError::File { file: "the old Redis".to_owned(), reason: error };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| from(error.to_string()))?;
    let mut counters =
        runtime.block_on(PlainCounters::connect(options)).map_err(|error| from(error.to_string()))?;
    while let Some(page) = runtime.block_on(counters.next_page()).map_err(|error| from(error.to_string()))? {
        let now_s = SystemClock.now_us() / 1_000_000;
        for (key, text) in page {
            let key = String::from_utf8_lossy(&key);
            let used = std::str::from_utf8(&text).ok().and_then(|text| text.parse::<i64>().ok());
            let (Some(used), Some(body)) = (used, key.strip_prefix(&options.key_prefix)) else {
                // Of another program.
                continue;
            };
            match meaning(rules, body, now_s) {
                Meaning::Counter(reading, limit) => {
                    let limit = (reading.domain.to_owned(), Some(limit.label.to_string()));
                    setter.set(limit, key.into_owned(), reading.entries, used.max(0).unsigned_abs())?;
                }
                Meaning::Over => {}
                Meaning::Unclear(reason) => setter.fail(&key, &reason),
            }
        }
    }
    setter.finish()
}

/// `key`: without its prefix. `now_s`: seconds since the epoch.
fn meaning<'r>(rules: &'r RuleSet, key: &str, now_s: u64) -> Meaning<'r> {
    let parts = key.rsplit_once('_').and_then(|(body, start)| Some((body, start.parse::<u64>().ok()?)));
    let Some((body, start_s)) = parts else {
        return Meaning::Unclear("its name does not end with the start of a window".to_owned());
    };
    let mut readings = Vec::new();
    let mut left = MOST_READINGS;
    for domain in rules.domains().filter_map(|name| rules.domain(name)) {
        if let Some(rest) = body.strip_prefix(&*domain.name).and_then(|rest| rest.strip_prefix('_')) {
            read_entries(domain, &domain.root, rest, &mut Vec::new(), &mut (&mut readings, &mut left));
        }
    }
    if left == 0 {
        return Meaning::Unclear("ambiguous: it can be read in too many ways".to_owned());
    }
    if readings.is_empty() {
        return Meaning::Unclear("no rule has a limit for it".to_owned());
    }
    let windows = |reading: &Reading<'r>| {
        let limits = reading.limits.iter().filter(|limit| is_theirs(limit, start_s));
        limits.map(|limit| (reading.clone(), &**limit)).collect::<Vec<_>>()
    };
    let mut fitting: Vec<_> = readings.iter().flat_map(windows).collect();
    let all = fitting.len();
    fitting.retain(|(_, limit)| now_s.saturating_sub(start_s) < limit.spec.period.seconds());
    match (fitting.len(), fitting.pop()) {
        (1, Some((reading, limit))) => Meaning::Counter(reading, limit),
        (0, _) if all > 0 => Meaning::Over,
        (0, _) => {
            let reason =
                "no limit for it has algorithm fixed_window, no time zone and a window that starts then";
            Meaning::Unclear(reason.to_owned())
        }
        (_, last) => {
            let all = fitting.iter().chain(&last).map(|(reading, _)| reading.text());
            Meaning::Unclear(format!("ambiguous: it can be of {}", all.collect::<Vec<_>>().join(", or of ")))
        }
    }
}

/// `true` if the limit has a window that starts then, as in `envoyproxy/ratelimit`.
fn is_theirs(limit: &Limit, start_s: u64) -> bool {
    let spec = &limit.spec;
    let is_window = spec.algorithm == Algorithm::FixedWindow && spec.calendar.is_none() && !spec.unlimited;
    is_window && start_s.is_multiple_of(spec.period.seconds())
}

/// Reads `rest` as entries below `node` in every way that matches a rule. `found`: the readings, and how many more parts
/// may be tried.
fn read_entries<'r>(
    domain: &'r DomainRules,
    node: &'r Node,
    rest: &str,
    entries: &mut Vec<Entry>,
    found: &mut (&mut Vec<Reading<'r>>, &mut usize),
) {
    let mut keys: Vec<&str> = node.children().map(|child| &*child.key).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let Some(values) = rest.strip_prefix(key).and_then(|rest| rest.strip_prefix('_')) else { continue };
        for end in values.match_indices('_').map(|(end, _)| end).chain([values.len()]) {
            if *found.1 == 0 {
                return;
            }
            *found.1 -= 1;
            entries.push(Entry { key: key.to_owned(), value: values[..end].to_owned() });
            if let Some(matched) = domain.walk(entries, &mut String::new()).end {
                match (&matched.rule, values.get(end + 1..)) {
                    (_, Some(rest)) => read_entries(domain, matched, rest, entries, found),
                    (Some(rule), None) => {
                        let (domain, limits) = (&*domain.name, rule.limits.as_slice());
                        found.0.push(Reading { domain, entries: entries.clone(), limits });
                    }
                    (None, None) => {}
                }
            }
            entries.pop();
        }
    }
}

impl Reading<'_> {
    fn text(&self) -> String {
        let entries = self.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value));
        format!("{} {}", self.domain, entries.collect::<Vec<_>>().join(","))
    }
}
