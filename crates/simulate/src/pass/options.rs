//! What a pass decides by, and how.
//!
//! With `--sample 1/N`, only the requests of one key in N are decided. The key is the first entry of the first
//! descriptor, such as an address. A counter whose descriptor begins with it is exact; any other, such as one per path,
//! gets part of its requests and is decided by part of its limit.

use std::fmt;
use std::hash::Hasher as _;
use std::num::{NonZeroU32, NonZeroUsize};
use std::str::FromStr;

use engine::{Entry, Request, RuleSet};

use crate::log::Format;
use crate::report::FileDigest;
use crate::variants::Variant;

/// The rule sets that decide every request: `judged` the candidate, `in_force` the current one (`--compare`).
#[derive(Clone, Debug)]
pub struct RuleSets {
    pub judged: RuleSet,
    pub in_force: Option<RuleSet>,
    /// The candidate rules with every limit as another algorithm, from [`variants`](crate::variants::variants).
    pub variants: Vec<Variant>,
}

impl RuleSets {
    /// The candidate rules, the current rules if given, the variants.
    pub(super) fn all(&self) -> impl Iterator<Item = &RuleSet> {
        let variants = self.variants.iter().map(|variant| &variant.rules);
        [&self.judged].into_iter().chain(&self.in_force).chain(variants)
    }

    /// The rules under which the log was written: the current ones if given, else the candidate.
    pub(super) fn of_log(&self) -> &RuleSet {
        self.in_force.as_ref().unwrap_or(&self.judged)
    }
}

/// How to read a log, and what to report.
#[derive(Clone, Debug)]
pub struct PassOptions {
    /// `None`: recognized from the first lines of each file.
    pub format: Option<Format>,
    /// How much later than its start a request may appear in the log.
    pub reorder_us: u64,
    /// Threads that parse lines.
    pub threads: NonZeroUsize,
    pub sample: Sample,
    /// `true`: keys in the report are not hashed.
    pub show_keys: bool,
    /// `true`: find out the effect of other limits.
    pub what_if: bool,
    /// Recommend limits; needs `what_if`.
    pub recommend: Option<RecommendationBounds>,
    /// For the report only.
    pub command_line: Vec<String>,
    pub digests: Vec<FileDigest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecommendationBounds {
    pub max_keys_ppm: u64,
    pub max_good_denied_ppm: u64,
    pub headroom_percent: u64,
}

impl Default for RecommendationBounds {
    /// 0.1 % of keys, 0.01 % of good requests, a fifth of headroom.
    fn default() -> Self {
        Self { max_keys_ppm: 1_000, max_good_denied_ppm: 100, headroom_percent: 120 }
    }
}

/// The share of keys that are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    one_in: NonZeroU32,
}

impl Sample {
    pub const ALL: Self = Self { one_in: NonZeroU32::MIN };
    /// The smallest sample is one key in this many.
    pub const MOST: u32 = 65_536;

    /// One key in this many is decided.
    pub fn one_in(self) -> NonZeroU32 {
        self.one_in
    }

    /// `true` unless every request is decided.
    pub fn is_part(self) -> bool {
        self != Self::ALL
    }

    /// `true` if a request is decided. The same in each run.
    pub(super) fn holds(self, request: &Request) -> bool {
        if !self.is_part() {
            return true;
        }
        let hash = sampled_entry(request).map_or(0, |Entry { key, value }| {
            mixed(text_hash(key)) ^ mixed(text_hash(value).rotate_left(32))
        });
        (u128::from(mixed(hash)) * u128::from(self.one_in.get())) >> 64 == 0
    }
}

pub(super) fn sampled_entry(request: &Request) -> Option<&Entry> {
    request.descriptors.first().and_then(|descriptor| descriptor.entries.first())
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("1/").and_then(|number| number.parse().ok());
        let number = number.filter(|number| *number <= Self::MOST).and_then(NonZeroU32::new);
        let error = || format!("a sample is 1/N with N from 1 to {}, such as 1/16", Self::MOST);
        number.map(|one_in| Self { one_in }).ok_or_else(error)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", self.one_in)
    }
}

/// The same in every run, so that reports are reproducible.
pub(super) fn text_hash(text: &str) -> u64 {
    // SipHash with fixed keys.
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Spreads a number over 64 bits; different numbers stay different (the finalizer of SplitMix64).
pub(super) fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Caller, Descriptor};

    fn request(key: &str, value: &str) -> Request {
        let entries = vec![Entry { key: key.to_owned(), value: value.to_owned() }];
        let descriptors = vec![Descriptor { entries, ..Descriptor::default() }];
        Request { domain: "d".to_owned(), hits_addend: 1, descriptors, caller: Caller::default() }
    }

    #[test]
    fn one_key_in_n_is_in_the_sample() {
        for (text, least, most) in [("1/1", 100_000, 100_000), ("1/4", 24_500, 25_500), ("1/100", 900, 1_100)]
        {
            let sample: Sample = text.parse().expect("a sample");
            assert_eq!(sample.to_string(), text);
            let kept =
                (0..100_000).filter(|number| sample.holds(&request("ip", &number.to_string()))).count();
            assert!((least..=most).contains(&kept), "{text}: {kept}");
        }
        // These are in the sample on every machine.
        let sample: Sample = "1/4".parse().expect("a sample");
        let kept: Vec<u32> =
            (0..24).filter(|number| sample.holds(&request("ip", &number.to_string()))).collect();
        assert_eq!(kept, [1, 7, 13, 17, 18, 20, 21, 22, 23]);
    }

    #[test]
    fn what_is_no_sample_is_refused() {
        for text in ["", "1", "16", "1/0", "1/65537", "2/16", "1/-1", "1/x", "0.1"] {
            assert!(text.parse::<Sample>().is_err_and(|error| error.contains("1/16")), "{text}");
        }
    }
}
