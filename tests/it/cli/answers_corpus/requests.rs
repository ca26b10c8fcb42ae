//! Random recorded requests, most of which meet a rule.

use super::random::Random;
use super::rule_files::Domain;

/// A minute boundary in 2023, in microseconds.
const START_US: u64 = 1_700_000_040_000_000;
const SECOND_US: u64 = 1_000_000;
/// Number of requests after which the repeated descriptors change.
const PERIOD: usize = 500;
/// Number of descriptors of each domain that are repeated often, so that their counters reach the limit.
const REPEATED: usize = 4;
/// Values for rules without a value. Some are escaped or hashed in the key of a counter.
const VALUES: [(u64, &str); 8] = [
    (30, "v0"),
    (20, "v1"),
    (8, "v9"),
    (4, ""),
    (3, "a b"),
    (3, "|{}%#=\u{1}\u{7f}ü"),
    (3, "a-long-value-that-does-not-fit-into-a-part-of-a-key-and-is-hashed-1"),
    (3, "a-long-value-that-does-not-fit-into-a-part-of-a-key-and-is-hashed-2"),
];
/// Texts that replace a `*`.
const STAR_TEXTS: [&str; 5] = ["", "1", "b", "x", "long*er"];
/// Limits that come with requests.
const OVERRIDES: [&str; 7] = [
    r#"{"requests_per_unit":3,"unit":"SECOND"}"#,
    r#"{"requestsPerUnit":"5","unit":1,"unitMultiplier":3}"#,
    r#"{"requests_per_unit":20,"unit":"MINUTE","unit_multiplier":null}"#,
    r#"{"requests_per_unit":7,"unit":"HOUR","unit_multiplier":"2"}"#,
    r#"{"requests_per_unit":0,"unit":"DAY"}"#,
    r#"{"unit":"MONTH","unit_multiplier":2}"#,
    r#"{"requests_per_unit":4294967295,"unit":"YEAR"}"#,
];

type Entries = Vec<(String, String)>;

/// Generates `count` requests, one JSON object per line, with some blank lines.
pub fn generate(random: &mut Random, domains: &[Domain], count: usize) -> String {
    let mut traffic = Traffic { domains, now_us: START_US, repeated: Vec::new() };
    let mut text = String::new();
    for number in 0..count {
        if number % PERIOD == 0 {
            traffic.change_repeated(random);
        }
        text.push_str(&traffic.request(random));
        text.push_str(if random.chance(1) { "\n\n" } else { "\n" });
    }
    text
}

struct Traffic<'d> {
    domains: &'d [Domain],
    now_us: u64,
    /// Per domain: the entries of the descriptors that are repeated now.
    repeated: Vec<Vec<Entries>>,
}

impl Traffic<'_> {
    fn change_repeated(&mut self, random: &mut Random) {
        let repeated = |domain| (0..REPEATED).map(|_| entries_for(random, domain)).collect();
        self.repeated = self.domains.iter().map(repeated).collect();
    }

    fn request(&mut self, random: &mut Random) -> String {
        self.now_us = later(random, self.now_us);
        let domains: Vec<_> = self.domains.iter().zip(&self.repeated).collect();
        let (domain, repeated) = random.pick(&domains);
        let count = random.weighted(&[(45, 1), (30, 2), (12, 3), (6, 4), (4, 5), (3, 6)]);
        let descriptors: Vec<_> = (0..count)
            .map(|_| {
                let is_repeated = random.chance(85);
                let entries = if is_repeated { random.pick(repeated) } else { entries_for(random, domain) };
                descriptor(random, &entries)
            })
            .collect();
        let name = if random.chance(2) { "elsewhere" } else { &domain.name };
        let hits = match random.below(10) {
            0 => r#","hits_addend":0"#.to_owned(),
            1 => format!(r#","hitsAddend":"{}""#, random.between(1, 4)),
            2 => r#","hits_addend":null"#.to_owned(),
            _ => String::new(),
        };
        let time = if random.chance(10) { format!("\"{}\"", self.now_us) } else { self.now_us.to_string() };
        format!(r#"{{"t_us":{time},"domain":"{name}"{hits},"descriptors":[{}]}}"#, descriptors.join(","))
    }
}

/// The time of the next request. Most steps are below a second; others are zero, long, negative, or end at a window
/// border.
fn later(random: &mut Random, now_us: u64) -> u64 {
    match random.below(1_000) {
        0..300 => now_us,
        300..720 => now_us + random.below(SECOND_US / 5),
        720..770 => now_us + random.below(3 * SECOND_US),
        770..880 => now_us.next_multiple_of(SECOND_US),
        880..940 => now_us + random.between(1, 10) * SECOND_US,
        940..950 => now_us + random.below(120 * SECOND_US),
        950..955 => now_us.next_multiple_of(60 * SECOND_US),
        955 if random.chance(70) => now_us + random.below(10 * 3_600 * SECOND_US),
        955 => now_us + random.below(40 * 86_400 * SECOND_US),
        956..970 => now_us - random.between(1, 3) * SECOND_US,
        970..995 => now_us - random.below(SECOND_US),
        _ => now_us - random.below(90 * SECOND_US),
    }
}

/// The entries of a descriptor that ends at a node of the domain; sometimes at its parent, below it, or at no node.
fn entries_for(random: &mut Random, domain: &Domain) -> Entries {
    let path = random.pick(&domain.paths);
    let mut entries: Vec<_> = path
        .iter()
        .map(|(key, pattern)| {
            let value = random.weighted(&VALUES);
            (
                without_stars(random, key),
                if pattern.is_empty() { value.to_owned() } else { without_stars(random, pattern) },
            )
        })
        .collect();
    match random.below(100) {
        0..3 if entries.len() > 1 => drop(entries.pop()),
        3..6 => entries.push(("unknown".to_owned(), "v0".to_owned())),
        6..8 => entries[0].0 = "unknown".to_owned(),
        _ => {}
    }
    entries
}

fn without_stars(random: &mut Random, pattern: &str) -> String {
    let mut parts = pattern.split('*');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(random.pick(&STAR_TEXTS));
        text.push_str(part);
    }
    text
}

fn descriptor(random: &mut Random, entries: &[(String, String)]) -> String {
    let mut entries = entries.to_vec();
    let mut fields = String::new();
    if random.chance(6) {
        fields = format!(r#","limit":{}"#, random.pick(&OVERRIDES));
        // A limit of the request applies to any descriptor, so descriptors with many entries are counted too.
        for place in 0..random.weighted(&[(8, 0), (1, 2), (1, 8)]) {
            entries.push((format!("entry{place}"), random.weighted(&VALUES).to_owned()));
        }
    }
    fields.push_str(&cost(random));
    let entries: Vec<_> = entries
        .iter()
        .map(|(key, value)| format!(r#"{{"key":{},"value":{}}}"#, quoted(key), quoted(value)))
        .collect();
    format!(r#"{{"entries":[{}]{fields}}}"#, entries.join(","))
}

fn cost(random: &mut Random) -> String {
    let hits = match random.below(100) {
        0..45 => return String::new(),
        45..51 => 0,
        51..76 => 1,
        76..93 => random.between(2, 4),
        93..97 => random.between(5, 300),
        97 => u64::from(u32::MAX),
        98 => 1 << 33,
        _ => u64::MAX,
    };
    let refund = match random.below(100) {
        0..12 => r#","is_negative_hits":true"#,
        12..15 => r#","isNegativeHits":true"#,
        15..20 => r#","is_negative_hits":false"#,
        _ => "",
    };
    if random.chance(20) {
        format!(r#","hitsAddend":"{hits}"{refund}"#)
    } else {
        format!(r#","hits_addend":{hits}{refund}"#)
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
