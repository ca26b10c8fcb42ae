//! Bounds that a rule change must stay within: a check for pull requests.

use std::fmt;
use std::str::FromStr;

use super::report::{BoundCheck, LimitReport, Report, percent, share_ppm};

/// Parts per million of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a share: write a percentage with at most four decimals, such as 0.5%")]
pub struct ShareError;

impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, ShareError> {
        let (whole, decimals) = text
            .strip_suffix('%')
            .ok_or(ShareError)
            .map(|number| number.split_once('.').unwrap_or((number, "")))?;
        let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
        if whole.is_empty()
            || whole.len() > 3
            || decimals.len() > 4
            || !is_number(whole)
            || !is_number(decimals)
        {
            return Err(ShareError);
        }
        let digits = format!("{whole}{decimals:0<4}");
        let ppm = digits.parse().map_err(|_| ShareError)?;
        if ppm > 1_000_000 { Err(ShareError) } else { Ok(Self(ppm)) }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", percent(self.0))
    }
}

/// Bounds on the effect of each rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Share of the requests over a limit among those that its rule applies to.
    pub max_denied: Option<Share>,
    /// Share of the requests over the limit of a rule among all good requests.
    pub max_good_denied: Option<Share>,
    /// Keys over the limit of a rule.
    pub max_keys_hit: Option<u64>,
}

impl Bounds {
    /// `true` if no bound is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// `true` if the log has requests, but none that [`Bounds::max_good_denied`] applies to.
    pub fn lacks_good_requests(&self, report: &Report) -> bool {
        self.max_good_denied.is_some() && report.totals.requests > 0 && report.totals.good == Some(0)
    }

    /// Compares each rule with the bounds that are set.
    pub fn check(&self, report: &Report) -> Vec<BoundCheck> {
        // `broken` returns a sentence about a rule that exceeds the bound.
        let check = |bound: String, broken: &dyn Fn(&LimitReport) -> Option<String>| {
            let broken = |rule: &LimitReport| Some(format!("{}: {}", rule.rule, broken(rule)?));
            let broken_by: Vec<String> = report.limits.iter().filter_map(broken).collect();
            BoundCheck { bound, is_kept: broken_by.is_empty(), broken_by }
        };
        let max_denied = self.max_denied.map(|most| {
            check(format!("--max-denied {most}"), &|LimitReport { over, asked, .. }| {
                let share = percent(share_ppm(*over, *asked));
                let text = || format!("{over} of {asked} requests are over the limit ({share} %)");
                is_above(*over, *asked, most).then(text)
            })
        });
        let good = report.totals.good.unwrap_or(0);
        let max_good_denied = self.max_good_denied.map(|most| {
            check(format!("--max-good-denied {most}"), &|rule| {
                let denied = rule.good_over.unwrap_or(0);
                let share = percent(share_ppm(denied, good));
                let text = || format!("{denied} of {good} good requests are over the limit ({share} %)");
                is_above(denied, good, most).then(text)
            })
        });
        let max_keys_hit = self.max_keys_hit.map(|most| {
            // A key of a sample stands for this many keys.
            let one_in = u64::from(report.method.sample.one_in);
            let of_sample = if one_in > 1 { format!(" of a sample of 1/{one_in}") } else { String::new() };
            check(format!("--max-keys-hit {most}"), &|LimitReport { keys, keys_over, .. }| {
                let text = || format!("{keys_over} of {keys} keys{of_sample} are over the limit");
                (keys_over.saturating_mul(one_in) > most).then(text)
            })
        });
        [max_denied, max_good_denied, max_keys_hit].into_iter().flatten().collect()
    }
}

/// `true` if `part` is a larger share of `whole` than `most`; compares without rounding.
fn is_above(part: u64, whole: u64, most: Share) -> bool {
    u128::from(part) * 1_000_000 > u128::from(whole) * u128::from(most.0)
}

#[cfg(test)]
mod tests {
    use super::super::report::Totals;
    use super::*;

    #[test]
    fn shares_are_exact() {
        let table = [
            ("0.5%", Some(5_000)),
            ("100%", Some(1_000_000)),
            ("0.0001%", Some(1)),
            ("0%", Some(0)),
            ("12%", Some(120_000)),
        ];
        for (text, ppm) in table {
            assert_eq!(text.parse().ok(), ppm.map(Share), "{text}");
            assert_eq!(Share(ppm.unwrap_or(0)).to_string(), text);
        }
        for text in ["", "%", "0.5", "101%", "0.00001%", "-1%", "1e2%", ".5%", "0.5 %"] {
            assert_eq!(text.parse::<Share>(), Err(ShareError), "{text}");
        }
    }

    #[test]
    fn a_broken_bound_names_the_rule() {
        let rule = |name: &str, over, good_over, keys_over| LimitReport {
            rule: name.to_owned(),
            asked: 1_000,
            over,
            good_over: Some(good_over),
            keys: 50,
            keys_over,
            ..LimitReport::default()
        };
        let totals = Totals { good: Some(10_000), ..Totals::default() };
        let report =
            Report { limits: vec![rule("a", 5, 1, 2), rule("b", 6, 0, 3)], totals, ..Report::default() };
        let bounds = Bounds {
            max_denied: Some(Share(5_000)),
            max_good_denied: Some(Share(100)),
            max_keys_hit: Some(2),
        };
        let checks = bounds.check(&report);
        let broken: Vec<(&str, usize)> =
            checks.iter().map(|check| (check.bound.as_str(), check.broken_by.len())).collect();
        assert_eq!(
            broken,
            [("--max-denied 0.5%", 1), ("--max-good-denied 0.01%", 0), ("--max-keys-hit 2", 1)]
        );
        assert_eq!(checks[0].broken_by, ["b: 6 of 1000 requests are over the limit (0.6 %)"]);
        assert!(checks[1].is_kept && Bounds::default().check(&report).is_empty());
    }
}
