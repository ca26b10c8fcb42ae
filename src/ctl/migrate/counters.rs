//! `migrate --counters`: copies the counters of `envoyproxy/ratelimit` that still count. Each is a number under the
//! key `<prefix><domain>_<key>_<value>_..._<window start>`, whose parts it joins without escaping them.

use std::process::ExitCode;

use base::clock::{Clock as _, SystemClock};
use engine::{Algorithm, DomainRules, Entry, Limit, Node, Rule, RuleSet};
use ratelimitd::app::load_options;
use ratelimitd::cli::load_settings::LoadedSettings;
use ratelimitd::cli::output::fail;
use ratelimitd::cli::rule_options::settings_rules;
use store::redis::{PlainCounters, RedisOptions, RedisUrl, Topology};

use super::super::counters::import::{CounterSetter, ImportError, SetTarget};

const COMMAND: &str = "ratelimitctl migrate --counters";
/// A key with more of them can be read in too many ways.
const MOST_UNDERSCORES: usize = 64;
/// A counter is set in the window of that moment, so a window that ends this soon may be over by then.
const ENDING_S: u64 = 2;

/// A descriptor and its rule: one way to read a key.
type Reading<'r> = (Vec<Entry>, &'r Rule);

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
    let failed = |error: &dyn ToString| ImportError::Source("the old Redis".to_owned(), error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&error))?;
    let connected = runtime.block_on(PlainCounters::connect(options));
    let mut counters = connected.map_err(|error| failed(&error))?;
    while let Some(page) = runtime.block_on(counters.next_page()).map_err(|error| failed(&error))? {
        for (key, used) in page {
            let used = std::str::from_utf8(&used).ok().and_then(|used| used.parse::<i64>().ok());
            let key = String::from_utf8_lossy(&key);
            let name = key.strip_prefix(&options.key_prefix).unwrap_or_default();
            let Some((body, start)) = name.rsplit_once('_') else { continue };
            // Other values and names are of other programs.
            let (Some(used), Ok(start_s)) = (used, start.parse()) else { continue };
            match window_of(rules, body, start_s, SystemClock.now_us() / 1_000_000) {
                Ok(Some(((entries, rule), limit))) => {
                    let limit = (&*rule.domain, Some(&*limit.label));
                    setter.set(&key, limit, entries, used.max(0).unsigned_abs())?;
                }
                Ok(None) => {}
                Err(reason) => setter.fail(&key, &reason),
            }
        }
    }
    Ok(())
}

/// Returns a counter's descriptor and limit; `None` if its window is over or about to end. `body`: the key between its
/// prefix and the start of its window.
///
/// # Errors
/// Why the counter cannot be copied.
fn window_of<'r>(
    rules: &'r RuleSet,
    body: &str,
    start_s: u64,
    now_s: u64,
) -> Result<Option<(Reading<'r>, &'r Limit)>, String> {
    if body.matches('_').count() > MOST_UNDERSCORES {
        return Err(format!("ambiguous: more than {MOST_UNDERSCORES} underscores"));
    }
    let mut readings = Vec::new();
    for domain in rules.domains().filter_map(|name| rules.domain(name)) {
        if let Some(rest) = body.strip_prefix(&*domain.name).and_then(|rest| rest.strip_prefix('_')) {
            read_entries(domain, &domain.root, rest, &mut Vec::new(), &mut readings);
        }
    }
    if readings.is_empty() {
        return Err("no rule has a limit for it".to_owned());
    }
    let mut fitting = Vec::new();
    for reading in &readings {
        let limits = reading.1.limits.iter().filter(|limit| has_window_at(limit, start_s));
        fitting.extend(limits.map(|limit| (reading.clone(), &**limit)));
    }
    if fitting.is_empty() {
        return Err(
            "no limit for it is a fixed_window without a calendar whose window starts then".to_owned()
        );
    }
    let soonest_s = now_s + ENDING_S;
    fitting.retain(|(_, limit)| soonest_s.saturating_sub(start_s) < limit.spec.period.seconds());
    if fitting.len() > 1 {
        let all: Vec<_> = fitting.iter().map(|(reading, _)| text(reading)).collect();
        return Err(format!("ambiguous: it can be of {}", all.join(", or of ")));
    }
    Ok(fitting.pop())
}

/// `true` if a window of the limit starts then, as in `envoyproxy/ratelimit`.
fn has_window_at(limit: &Limit, start_s: u64) -> bool {
    let spec = &limit.spec;
    let is_window = spec.algorithm == Algorithm::FixedWindow && spec.calendar.is_none() && !spec.unlimited;
    is_window && start_s.is_multiple_of(spec.period.seconds())
}

/// Reads `rest` as entries below `node` in every way that a rule matches.
fn read_entries<'r>(
    domain: &'r DomainRules,
    node: &'r Node,
    rest: &str,
    entries: &mut Vec<Entry>,
    readings: &mut Vec<Reading<'r>>,
) {
    let keys: std::collections::BTreeSet<&str> = node.children().map(|child| &*child.key).collect();
    for key in keys {
        let Some(values) = rest.strip_prefix(key).and_then(|rest| rest.strip_prefix('_')) else { continue };
        for end in values.match_indices('_').map(|(end, _)| end).chain([values.len()]) {
            entries.push(Entry { key: key.to_owned(), value: values[..end].to_owned() });
            if let Some(matched) = domain.walk(entries, &mut String::new()).end {
                match (values.get(end + 1..), &matched.rule) {
                    (Some(rest), _) => read_entries(domain, matched, rest, entries, readings),
                    (None, Some(rule)) => readings.push((entries.clone(), rule)),
                    (None, None) => {}
                }
            }
            entries.pop();
        }
    }
}

fn text((entries, rule): &Reading<'_>) -> String {
    let entries = entries.iter().map(|entry| format!("{}={}", entry.key, entry.value));
    format!("{} {}", rule.domain, entries.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use engine::{Defaults, ValueHashing};
    use rules::{CalendarOptions, CalendarYears, LoadOptions, RuleDirectory, load_stream};

    use super::*;

    #[test]
    fn a_window_that_is_about_to_end_is_left_out() {
        let options = LoadOptions {
            merge_domains: false,
            defaults: Defaults::ENVOY_RATELIMIT,
            upgrades: Vec::new(),
            hashing: ValueHashing::NONE,
            directory: RuleDirectory::default(),
            calendars: CalendarOptions::new(CalendarYears { first: 2020, last: 2031 }),
            has_home: false,
        };
        let text =
            "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: minute, requests_per_unit: 5 } }]";
        let rules = load_stream("rules", text.as_bytes(), options).expect("valid rules").rules;
        for (now_s, is_copied) in [(1_200, true), (1_257, true), (1_258, false), (1_260, false)] {
            let found = window_of(&rules, "d_user_ann", 1_200, now_s).expect("a counter of the rules");
            assert_eq!(found.is_some(), is_copied, "{now_s}");
        }
    }
}
