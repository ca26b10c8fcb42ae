//! One random limit of a rule file.

use std::collections::BTreeMap;

use super::{Plot, UNITS};
use crate::story::{Limit, Replaced, Tier};

/// Names of tiers. No limit has the last one.
pub(super) const TIERS: [&str; 4] = ["pro", "low", "suspended", "unknown"];
const ZONES: [&str; 4] = ["UTC", "UTC", "Europe/Berlin", "America/New_York"];

impl Plot {
    /// The limits of one rule, each with a counter of its own.
    pub(super) fn rule_limits(&mut self, count: u64) -> Vec<Limit> {
        let mut limits: Vec<Limit> = Vec::new();
        while limits.len() < usize::try_from(count).unwrap_or_default() {
            let limit = self.limit();
            let is_like = |other: &Limit| other.counts_by() == limit.counts_by();
            if !limits.iter().any(is_like) {
                limits.push(limit);
            }
        }
        let names: Vec<_> = limits.iter().filter_map(|limit| limit.name.clone()).collect();
        for limit in &mut limits {
            limit.replaces.retain(|replaced| !names.contains(&replaced.name));
        }
        limits
    }

    fn limit(&mut self) -> Limit {
        let mut limit = Limit::default();
        if self.random.chance(90) {
            self.names += 1;
            limit.name = Some(format!("limit{}", self.names));
        }
        if self.random.chance(6) {
            limit.replaces =
                vec![Replaced { name: format!("limit{}", self.random.between(1, self.names + 2)) }];
        }
        if self.random.chance(10) {
            limit.on_store_failure = Some(self.random.pick(&["allow", "deny", "local", "error"]).to_owned());
        }
        if self.random.chance(4) {
            limit.unlimited = true;
            return limit;
        }
        self.algorithm(&mut limit);
        let number = self.number(&limit);
        limit.requests_per_unit = Some(number);
        self.period(&mut limit);
        if limit.has_burst() && number < 1_000 && self.random.chance(45) {
            limit.burst = Some(u32::try_from(self.random.between(1, 2 * number.max(2))).unwrap_or(1));
        }
        self.modes(&mut limit, number);
        if self.random.chance(45) {
            limit.tiers = self.tiers(&limit, number);
        }
        limit
    }

    fn algorithm(&mut self, limit: &mut Limit) {
        let algorithm = match self.random.below(20) {
            0..4 => return,
            4..7 => "fixed_window",
            7..9 => "sliding_window",
            9..11 => "sliding_log",
            11..14 => "gcra",
            14..17 => "token_bucket",
            _ => "leaky_bucket",
        };
        limit.algorithm = Some(algorithm.to_owned());
        if algorithm == "token_bucket" {
            limit.refill = self
                .random
                .pick(&[None, Some("continuous"), Some("interval"), Some("interval")])
                .map(str::to_owned);
        }
        if algorithm == "leaky_bucket" {
            limit.mode = self.random.pick(&[None, Some("meter"), Some("queue")]).map(str::to_owned);
        }
    }

    fn number(&mut self, limit: &Limit) -> u64 {
        match self.random.below(100) {
            0..3 => 0,
            3..8 => 1,
            8..60 => self.random.between(2, 12),
            60..85 => self.random.pick(&[10, 20, 30, 60, 100]),
            85..97 => self.random.between(13, 90),
            _ if limit.algorithm.as_deref() == Some("sliding_log") => 10_000,
            _ if limit.algorithm.as_deref() == Some("fixed_window") => 1 << 52,
            _ => u64::from(u32::MAX),
        }
    }

    fn period(&mut self, limit: &mut Limit) {
        let (unit, length_us) =
            if self.random.chance(75) { (self.unit, self.period_us) } else { self.random.weighted(&UNITS) };
        limit.unit = Some(unit.to_owned());
        let is_window = matches!(limit.algorithm.as_deref(), None | Some("fixed_window"));
        if length_us >= super::DAY_US && is_window && self.random.chance(70) {
            // The key needs the algorithm only where the default is another one.
            limit.calendar = Some(self.random.pick(&ZONES).to_owned());
            let starts = match unit {
                "week" => Some("sunday".to_owned()),
                "month" => Some(self.random.between(1, 31).to_string()),
                "year" => Some("04-01".to_owned()),
                _ => None,
            };
            limit.starts = starts.filter(|_| self.random.chance(50));
        } else if self.random.chance(25) {
            let most = (366 * super::DAY_US / length_us).min(4);
            limit.unit_multiplier = u32::try_from(self.random.between(1, most)).ok();
        }
        // An empty bucket must refill within ten years.
        if limit.has_burst() && limit.requests_per_unit == Some(1) {
            limit.unit = Some("hour".to_owned());
            limit.unit_multiplier = None;
        }
    }

    fn modes(&mut self, limit: &mut Limit, number: u64) {
        let is_queue = limit.mode.as_deref() == Some("queue");
        if self.random.chance(25) {
            limit.charging = Some(self.random.pick(&["prepaid", "postpaid"]).to_owned());
        }
        if self.random.chance(12) {
            limit.on_over = Some(self.random.pick(&["deny", "announce", "announce"]).to_owned());
        }
        if self.random.chance(15) {
            limit.near = Some(self.random.pick(&[0.5, 0.8, 0.25, 0.0]));
        }
        let capacity = limit.burst.map_or(number, u64::from);
        if !is_queue && self.random.chance(45) {
            limit.settle = true;
        } else if !is_queue && self.random.chance(20) && capacity > 0 {
            limit.charging = Some("prepaid".to_owned());
            limit.reserve = Some(self.random.between(1, capacity.min(10)));
        }
    }

    fn tiers(&mut self, limit: &Limit, number: u64) -> BTreeMap<String, Tier> {
        let mut tiers = BTreeMap::new();
        let double = (2 * number).clamp(1, 10_000);
        for (name, number) in [("pro", double), ("low", (number / 2).clamp(1, 5_000)), ("suspended", 0)] {
            let tier = match self.random.below(10) {
                0..2 => continue,
                2..8 => Tier::Number(number),
                8 => Tier::Numbers {
                    requests_per_unit: number,
                    // A bucket refills within ten years, also at one unit per year.
                    burst: limit.has_burst().then(|| {
                        let burst = self.random.between(1, 20).min(9 * number.max(1));
                        u32::try_from(burst).unwrap_or(1)
                    }),
                },
                _ if name == "pro" => Tier::Word("unlimited".to_owned()),
                _ => Tier::Number(self.random.between(1, 20)),
            };
            tiers.insert(name.to_owned(), tier);
        }
        tiers
    }
}

impl Limit {
    pub(super) fn has_burst(&self) -> bool {
        matches!(self.algorithm.as_deref(), Some("gcra" | "token_bucket" | "leaky_bucket"))
    }

    /// Two limits with the same would have one counter.
    fn counts_by(&self) -> (bool, Option<String>, String, Option<u64>) {
        let unit = self.unit.as_ref().map(|unit| unit.to_lowercase());
        let algorithm = self.algorithm.as_deref().unwrap_or("fixed_window").to_owned();
        // Limits of 0 have no counter, whatever their algorithm.
        let (is_zero, is_bucket) = (self.requests_per_unit == Some(0), self.has_burst());
        if is_zero {
            return (false, unit, String::new(), Some(0));
        }
        (is_bucket, unit, if is_bucket { String::new() } else { algorithm }, self.requests_per_unit)
    }
}
