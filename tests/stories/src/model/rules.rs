//! Which limits a descriptor meets, and with which numbers: docs/rules.md ("How a request matches a limit",
//! "Keys", "Tiers") and docs/exceptions.md.

use std::collections::HashSet;
use std::rc::Rc;

use super::calendar::Calendar;
use super::counter::{Algorithm, Kind};
use crate::story::{Ask, Limit, Node, Row, RowFile, RuleFile, Tier};

/// Ten years: an empty bucket refills within them.
const LONGEST_REFILL_US: i128 = 10 * 365 * 86_400 * 1_000_000;

/// A counter's name. A counter is that of a descriptor, an algorithm and a period.
pub(super) type CounterId = String;

/// A limit with the numbers in force for one descriptor.
#[derive(Clone, Debug)]
pub(super) struct InForce {
    pub(super) limit: Limit,
    pub(super) label: String,
    pub(super) counter: CounterId,
    /// `None`: unlimited.
    pub(super) algorithm: Option<Algorithm>,
    pub(super) is_blocked: bool,
    pub(super) is_shadow: bool,
    pub(super) is_prepaid: bool,
}

/// The limits of a descriptor.
#[derive(Clone, Debug, Default)]
pub(super) struct Met {
    pub(super) limits: Vec<InForce>,
    pub(super) is_quota: bool,
}

pub(super) fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            ends.into_iter().any(|at| glob(rest, &text[at..]))
        }),
    }
}

/// The nodes of the entries: at each level the exact one, else the first wildcard, else the key alone.
/// Ends before an entry that no node matches.
fn walk<'n>(mut level: &'n [Node], entries: &[(String, String)]) -> Vec<&'n Node> {
    let mut nodes = Vec::new();
    for (key, value) in entries {
        let text = format!("{key}_{value}");
        let exact = level.iter().find(|node| node.composite() == text);
        let wildcard =
            || level.iter().find(|node| node.composite().contains('*') && glob(&node.composite(), &text));
        let key_alone = || level.iter().find(|node| node.composite() == *key);
        let Some(node) = exact.or_else(wildcard).or_else(key_alone) else { return nodes };
        nodes.push(node);
        level = &node.descriptors;
    }
    nodes
}

fn secret_keys(nodes: &[Node]) -> HashSet<&str> {
    let own = nodes.iter().filter(|node| node.secret).map(|node| node.key.as_str());
    own.chain(nodes.iter().flat_map(|node| secret_keys(&node.descriptors))).collect()
}

/// The name of a node in a path: in place of a secret value stands a hash, here without its digits.
fn shown(node: &Node, secrets: &HashSet<&str>) -> String {
    let is_hidden =
        secrets.contains(node.key.as_str()) && node.value.as_ref().is_some_and(|value| !value.contains('*'));
    if is_hidden { format!("{}_%k", node.key) } else { node.composite() }
}

fn period_us(limit: &Limit) -> i128 {
    let seconds = match limit.unit.as_deref().unwrap_or("second").to_lowercase().as_str() {
        "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        "week" => 7 * 86_400,
        "month" => 30 * 86_400,
        "year" => 365 * 86_400,
        _ => 1,
    };
    seconds * 1_000_000 * i128::from(limit.unit_multiplier.unwrap_or(1))
}

/// The algorithm of a limit; `None` if it is unlimited.
fn algorithm(limit: &Limit) -> Option<Algorithm> {
    let number = i128::from(limit.requests_per_unit.unwrap_or(0));
    let kind = match limit.algorithm.as_deref() {
        _ if limit.unlimited => return None,
        _ if number == 0 => Kind::Zero,
        None | Some("fixed_window") => Kind::Window,
        Some("sliding_window") => Kind::Sliding,
        Some("sliding_log") => Kind::Log,
        Some(_) if limit.refill.as_deref() == Some("interval") => Kind::Interval,
        Some(_) => Kind::Rate,
    };
    let unit = limit.unit.as_deref().unwrap_or_default();
    let calendar =
        limit.calendar.as_ref().and_then(|zone| Calendar::new(zone, unit, limit.starts.as_deref()));
    let burst = limit.burst.map_or(number, i128::from);
    let is_queue = limit.mode.as_deref() == Some("queue");
    Some(Algorithm {
        kind,
        limit: number,
        burst,
        period_us: period_us(limit),
        calendar: calendar.map(Rc::new),
        is_queue,
    })
}

/// Whether the algorithm is exact with its numbers.
fn is_in_range(algorithm: &Algorithm) -> bool {
    let Algorithm { limit, burst, period_us, .. } = *algorithm;
    match algorithm.kind {
        Kind::Window => limit <= 1 << 52,
        Kind::Sliding => limit <= 1 << 46,
        Kind::Log => limit <= 10_000,
        Kind::Rate => limit < 1 << 32 && burst * period_us / limit <= LONGEST_REFILL_US,
        Kind::Interval => limit < 1 << 32 && (burst + limit - 1) / limit * period_us <= LONGEST_REFILL_US,
        Kind::Zero => true,
    }
}

/// What the state of a counter means: the end of its name. The number is no part of it, except for the tokens that
/// are left in an interval bucket.
fn meaning(limit: &Limit) -> String {
    let Some(algorithm) = algorithm(limit) else { return String::new() };
    let Algorithm { kind, limit: number, burst, period_us, .. } = &algorithm;
    match (kind, &limit.calendar) {
        (Kind::Interval, _) => format!("{kind:?}/{period_us}/{number}/{burst}"),
        (Kind::Window, Some(zone)) => format!("{kind:?}/{zone}/{:?}/{:?}", limit.unit, limit.starts),
        _ => format!("{kind:?}/{period_us}"),
    }
}

/// The same limit with another number, and a burst in proportion.
fn with_number(limit: &Limit, number: u64) -> Limit {
    // Checks take the same units under each number; the rate of a bucket stays what the number says (decision 58).
    let is_bucket = matches!(limit.algorithm.as_deref(), Some("gcra" | "token_bucket" | "leaky_bucket"));
    let number = match limit.reserve {
        Some(reserve) if number > 0 && !is_bucket => number.max(reserve),
        _ => number,
    };
    let scale = |burst: u32| {
        let (from, to) = (u128::from(limit.requests_per_unit.unwrap_or(0)), u128::from(number));
        let scaled = if from == 0 { burst.into() } else { (u128::from(burst) * to).div_ceil(from) };
        u32::try_from(scaled).unwrap_or(u32::MAX).max(1)
    };
    Limit { requests_per_unit: Some(number), burst: limit.burst.map(scale), ..limit.clone() }
}

fn of_tier(limit: &Limit, tier: &Tier) -> Limit {
    match tier {
        Tier::Word(_) => Limit { unlimited: true, ..limit.clone() },
        Tier::Number(number) => with_number(limit, *number),
        Tier::Numbers { requests_per_unit, burst } => {
            let scaled = with_number(limit, *requests_per_unit);
            Limit { burst: burst.or(scaled.burst), ..scaled }
        }
    }
}

/// Rows for one descriptor, each with its rank, without those for other limits.
type Ranked<'r> = Vec<((bool, usize, usize, usize), &'r Row)>;

fn rows<'r>(files: &'r [RowFile], domain: &str, ask: &Ask, now_us: i128) -> Ranked<'r> {
    let mut found = Ranked::new();
    for (file, RowFile { rows, .. }) in files.iter().enumerate() {
        for (index, row) in rows.iter().enumerate() {
            let has_started = row.from.is_none_or(|from_us| i128::from(from_us) <= now_us);
            let is_in_force = has_started && row.until.is_none_or(|until_us| now_us < i128::from(until_us));
            let entry = ask.entries.iter().rposition(|(key, value)| *key == row.key && *value == row.value);
            let (Some(entry), true) = (entry, is_in_force && glob(&row.domain, domain)) else { continue };
            if ask.receipt.is_none() || !row.block {
                found.push(((row.path.is_some() || row.limit_name.is_some(), entry, file, index), row));
            }
        }
    }
    found
}

fn is_for(row: &Row, path: &str, name: &str) -> bool {
    let matches = |pattern: &Option<String>, text| pattern.as_ref().is_none_or(|pattern| glob(pattern, text));
    matches(&row.path, path) && matches(&row.limit_name, name)
}

/// The value of the row that counts most.
fn column<T>(rows: &Ranked<'_>, value: impl Fn(&Row) -> Option<T>) -> Option<T> {
    let set = rows.iter().filter_map(|(rank, row)| Some((rank, value(row)?)));
    set.max_by_key(|(rank, _)| **rank).map(|(_, value)| value)
}

/// The limits that a descriptor meets at the time of its process.
pub(super) fn met(file: &RuleFile, row_files: &[RowFile], ask: &Ask, now_us: i128) -> Met {
    let nodes = walk(&file.descriptors, &ask.entries);
    let is_end = |node: &&&Node| nodes.len() == ask.entries.len() && node.limits().next().is_some();
    let end = nodes.last().filter(is_end);
    let secrets = secret_keys(&file.descriptors);
    let path = nodes.iter().map(|node| shown(node, &secrets)).collect::<Vec<_>>().join(".");
    let rows = rows(row_files, &file.domain, ask, now_us);
    let by_default = counted(file, &nodes, ask, None);
    if let Some(own) = &ask.limit {
        let (unit, unit_multiplier) = (Some(own.unit.clone()), own.unit_multiplier);
        let limit = Limit {
            requests_per_unit: Some(own.requests_per_unit.into()),
            unit,
            unit_multiplier,
            ..Limit::default()
        };
        let counter = format!("{by_default}#own/{}", meaning(&limit));
        let mut names = end
            .into_iter()
            .flat_map(|node| node.limits())
            .map(|limit| limit.name.clone().unwrap_or_default());
        let is_blocking =
            |row: &Row, name: &str| row.block && is_for(row, if end.is_some() { &path } else { "" }, name);
        let is_blocked = match end {
            Some(_) => names.any(|name| rows.iter().any(|(_, row)| is_blocking(row, &name))),
            None => rows.iter().any(|(_, row)| is_blocking(row, "")),
        };
        return Met {
            limits: vec![in_force(limit, "override".to_owned(), counter, is_blocked, false)],
            is_quota: false,
        };
    }
    let Some(node) = end else {
        let is_blocked = rows.iter().any(|(_, row)| row.block && is_for(row, "", ""));
        let limit = Limit { requests_per_unit: Some(0), unit: Some("second".to_owned()), ..Limit::default() };
        let blocked = is_blocked
            .then(|| in_force(limit, "exception".to_owned(), format!("{by_default}#"), true, false));
        return Met { limits: blocked.into_iter().collect(), is_quota: false };
    };
    let tier_at = nodes.iter().rposition(|node| node.tier);
    let entry_tier = tier_at.map(|at| ask.entries[at].1.as_str());
    let entries = counted(file, &nodes, ask, node.shard_by.as_deref());
    let limits = node.limits().map(|limit| {
        let name = limit.name.clone().unwrap_or_default();
        let rows: Ranked<'_> = rows.iter().filter(|(_, row)| is_for(row, &path, &name)).copied().collect();
        let label = limit.name.clone().unwrap_or_else(|| format!("{}.{path}", file.domain));
        let changed = changed(limit, &rows, entry_tier);
        let counter = format!("{entries}#{}", meaning_in_rule(node, limit, &changed));
        let shadow = column(&rows, |row| row.shadow_mode).unwrap_or(node.shadow_mode);
        in_force(changed, label, counter, rows.iter().any(|(_, row)| row.block), shadow)
    });
    Met { limits: limits.collect(), is_quota: node.quota_mode }
}

/// The limit after its rows and its tier.
fn changed(limit: &Limit, rows: &Ranked<'_>, entry_tier: Option<&str>) -> Limit {
    if !rows.iter().any(|(_, row)| row.block) && rows.iter().any(|(_, row)| row.exempt) {
        return Limit { unlimited: true, ..limit.clone() };
    }
    let fit = |from: Limit, number: u64| {
        let to = with_number(&from, number);
        let is_fit = algorithm(&to).as_ref().is_some_and(is_in_range);
        if is_fit { to } else { from }
    };
    let row_tier = || column(rows, |row| row.tier.clone());
    let mut changed = match column(rows, |row| row.limit) {
        Some(number) => fit(limit.clone(), number),
        None => {
            let name = entry_tier.map(str::to_owned).or_else(row_tier);
            let tier = name.and_then(|name| limit.tiers.get(&name));
            tier.map_or_else(|| limit.clone(), |tier| of_tier(limit, tier))
        }
    };
    if let (Some(multiplier), Some(number)) = (column(rows, |row| row.multiplier), changed.requests_per_unit)
    {
        let millionths = format!("{:.0}", multiplier * 1e6).parse::<u128>().unwrap_or(0);
        let product = u128::from(number) * millionths / 1_000_000;
        let number = if number == 0 { 0 } else { u64::try_from(product).unwrap_or(u64::MAX).max(1) };
        changed = fit(changed, number);
    }
    changed
}

/// The meaning of a limit's counter. A limit keeps the counter of its rule whatever its number is, except for the
/// tokens of an interval bucket. Two limits of one rule with one meaning have the numbers of the rule in it, and no
/// limit ever has the counter of another limit of its rule.
fn meaning_in_rule(node: &Node, limit: &Limit, changed: &Limit) -> String {
    let (of_rule, own) = (meaning(limit), meaning(changed));
    let others = || node.limits().filter(|other| *other != limit);
    if own == of_rule {
        let is_like = others().any(|other| meaning(other) == of_rule);
        return if is_like { format!("{own}/{:?}/{:?}", limit.requests_per_unit, limit.burst) } else { own };
    }
    let of_one =
        |limit: &Limit| meaning(&Limit { requests_per_unit: Some(1), burst: Some(1), ..limit.clone() });
    let could_be_like = others().any(|other| of_one(other) == of_one(limit));
    if could_be_like { format!("{own}/{:?}", limit.name) } else { own }
}

fn in_force(limit: Limit, label: String, counter: CounterId, is_blocked: bool, is_shadow: bool) -> InForce {
    let default = if limit.on_over.as_deref() != Some("announce") && limit.algorithm.is_some() {
        "prepaid"
    } else {
        "postpaid"
    };
    let is_prepaid = is_blocked || limit.charging.as_deref().unwrap_or(default) == "prepaid";
    let is_own = label == "override";
    let mut algorithm = algorithm(&limit);
    if is_blocked {
        let zero = Limit { requests_per_unit: Some(0), burst: None, unlimited: false, ..limit.clone() };
        algorithm = self::algorithm(&zero);
    }
    // Limits of 0 have no counter of their own.
    let counter = match (&algorithm, counter.rsplit_once('#')) {
        (Some(Algorithm { kind: Kind::Zero, period_us, .. }), Some((entries, _)))
            if !is_own || is_blocked =>
        {
            format!("{entries}#Zero/{period_us}")
        }
        _ => counter,
    };
    InForce { limit, label, counter, algorithm, is_blocked, is_shadow: is_shadow && !is_blocked, is_prepaid }
}

/// What a counter counts: its entries, and where `shard_by` divides them. An entry with a tier is left out, and the
/// values of a shared wildcard are one.
fn counted(file: &RuleFile, nodes: &[&Node], ask: &Ask, shard_by: Option<&str>) -> String {
    let secrets = secret_keys(&file.descriptors);
    let part = |(at, (key, value)): (usize, &(String, String))| {
        let is_secret = secrets.contains(key.as_str());
        match nodes.get(at).filter(|_| ask.limit.is_none()) {
            Some(node) if node.tier => None,
            Some(node) if node.share_threshold => Some(format!("{key:?}~{:?}", node.composite())),
            _ => Some(format!("{key:?}={is_secret}{value:?}")),
        }
    };
    let parts: Vec<_> = ask.entries.iter().enumerate().filter_map(part).collect();
    let first = match shard_by.or(file.shard_by.as_deref()) {
        Some("domain") => 0,
        Some("descriptor") => parts.len(),
        _ => parts.len().min(1),
    };
    format!("{first}|{}|{}", file.domain, parts.join("|"))
}
