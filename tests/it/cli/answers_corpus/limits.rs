//! One random limit of a rule file.

use super::random::Random;

/// Fields that choose an algorithm. Without any, the default of the settings applies.
const ALGORITHMS: [&str; 10] = [
    "",
    "algorithm: fixed_window",
    "algorithm: sliding_window",
    "algorithm: sliding_log",
    "algorithm: gcra",
    "algorithm: token_bucket",
    "algorithm: token_bucket, refill: continuous",
    "algorithm: token_bucket, refill: interval",
    "algorithm: leaky_bucket",
    "algorithm: leaky_bucket, mode: queue",
];
/// Weight, unit, and the largest multiplier used with the unit.
const UNITS: [(u64, (&str, u64)); 8] = [
    (35, ("second", 10)),
    (10, ("SECOND", 1)),
    (30, ("minute", 15)),
    (12, ("Hour", 4)),
    (6, ("day", 3)),
    (3, ("week", 4)),
    (3, ("month", 2)),
    (1, ("year", 1)),
];
/// `replaces` names limit1 to limit40. Some of these names are not used in a domain.
const MAX_NAMES: u64 = 40;

/// A limit as a YAML flow map. `siblings` are the names of the limits of its descriptor, which it cannot replace.
pub fn generate(random: &mut Random, name: Option<&str>, siblings: &[Option<String>]) -> String {
    let mut fields = Vec::new();
    if random.chance(5) {
        fields.push("unlimited: true".to_owned());
    } else {
        counted_limit(random, &mut fields);
    }
    if random.chance(15) {
        fields.push(format!("on_store_failure: {}", random.pick(&["allow", "deny", "local", "error"])));
    }
    fields.extend(name.map(|name| format!("name: {name}")));
    let replaced = format!("limit{}", random.between(1, MAX_NAMES));
    if random.chance(12) && !siblings.iter().flatten().any(|sibling| *sibling == replaced) {
        fields.push(format!("replaces: [{{ name: {replaced} }}]"));
    }
    format!("{{ {} }}", fields.join(", "))
}

fn counted_limit(random: &mut Random, fields: &mut Vec<String>) {
    let algorithm = random.pick(&ALGORITHMS);
    let requests = requests_per_unit(random, algorithm);
    let (unit, max_multiplier) = random.weighted(&UNITS);
    fields.push(format!("requests_per_unit: {requests}, unit: {unit}"));
    if max_multiplier > 1 && random.chance(40) {
        fields.push(format!("unit_multiplier: {}", random.between(1, max_multiplier)));
    }
    if !algorithm.is_empty() {
        fields.push(algorithm.to_owned());
    }
    let has_burst = ["gcra", "token", "leaky"].into_iter().any(|bucket| algorithm.contains(bucket));
    if has_burst && requests < 10_000 && random.chance(45) {
        fields.push(format!("burst: {}", random.between(1, 3 * requests.max(1))));
    }
    if random.chance(35) {
        fields.push(format!("charging: {}", random.pick(&["prepaid", "postpaid"])));
    }
}

fn requests_per_unit(random: &mut Random, algorithm: &str) -> u64 {
    match random.below(100) {
        0..3 => 0,
        3..13 => 1,
        13..60 => random.between(2, 6),
        60..85 => random.between(7, 30),
        85..98 => random.between(100, 1_000),
        _ if algorithm.contains("sliding_log") => 10_000,
        _ => u64::from(u32::MAX),
    }
}
