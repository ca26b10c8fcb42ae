//! Soft limits: the effect of a limit that is over (`on_over`), and what answers announce about limits that are nearly
//! exhausted, or over without denying.
//!
//! A share is read from decimal digits into whole millionths, so no threshold is rounded.

use std::fmt;

use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// What happens to a hit that does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum OnOver {
    /// Denied, subject to the rule's mode.
    #[default]
    Deny,
    /// Admitted and recorded; the answer announces it.
    Announce,
}

/// A share from 0 to 1 in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    pub const WHOLE: Self = Self(1_000_000);

    /// What [`Share::parse`] accepts, for messages.
    pub const EXPECTED: &'static str = "a number from 0 to 1 with at most six decimals";

    /// Parses decimal digits such as `0.8`, `1` or `0.999999`; `None` for any other string.
    pub fn parse(text: &str) -> Option<Self> {
        let millionths = u32::try_from(parse_millionths(text)?).ok()?;
        (millionths <= Self::WHOLE.0).then_some(Self(millionths))
    }

    /// 0 to 1,000,000.
    pub fn millionths(self) -> u32 {
        self.0
    }

    /// This share of `units`, rounded down.
    pub fn part_of(self, units: u64) -> u64 {
        let product = u128::from(units) * u128::from(self.0);
        // The share is at most 1, so the quotient is at most `units`.
        u64::try_from(product / u128::from(Self::WHOLE.0)).unwrap_or(units)
    }

    /// `true` if `used` units are at least this share of `units`, and at least 1.
    pub fn is_reached(self, used: u64, units: u64) -> bool {
        used > 0 && u128::from(used) * u128::from(Self::WHOLE.0) >= u128::from(units) * u128::from(self.0)
    }
}

/// Different shares above 0, in rising order; at most [`Shares::MAX`]. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shares {
    /// The places after the last share have the share 0.
    each: [Share; Shares::MAX],
}

impl Shares {
    pub const MAX: usize = 8;

    /// What [`Shares::parse`] accepts, for messages.
    pub const EXPECTED: &'static str = "1 to 8 different shares above 0 and up to 1, such as [0.8, 1]";

    /// Parses 1 to 8 shares as [`Share::parse`] does, in any order; `None` for 0, and for equal ones.
    pub fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> Option<Self> {
        let shares: Option<Vec<_>> = texts.into_iter().take(Self::MAX + 1).map(Share::parse).collect();
        let mut shares = shares?;
        shares.sort_unstable();
        let are_different = shares.windows(2).all(|pair| pair[0] < pair[1]);
        if !are_different || shares.first() <= Some(&Share::default()) || shares.len() > Self::MAX {
            return None;
        }
        let mut each = [Share::default(); Self::MAX];
        each[..shares.len()].copy_from_slice(&shares);
        Some(Self { each })
    }

    pub fn is_empty(&self) -> bool {
        self.each[0] == Share::default()
    }

    /// In rising order.
    pub fn iter(&self) -> impl Iterator<Item = Share> {
        self.each.iter().copied().take_while(|share| *share > Share::default())
    }
}

/// With commas between them.
impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares: Vec<_> = self.iter().map(|share| share.to_string()).collect();
        f.write_str(&shares.join(", "))
    }
}

/// With the fewest decimals that keep the value.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_millionths(f, self.0)
    }
}

/// Parses a decimal number with at most six decimals into millionths; `None` for any other string. Saturates.
pub(crate) fn parse_millionths(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = are_digits(whole) && are_digits(decimals) && decimals.len() <= 6;
    is_number.then(|| format!("{whole}{decimals:0<6}").parse().unwrap_or(u64::MAX))
}

/// Writes the number with the fewest decimals that keep the value.
pub(crate) fn write_millionths(f: &mut fmt::Formatter<'_>, millionths: u32) -> fmt::Result {
    let (whole, decimals) = (millionths / Share::WHOLE.0, millionths % Share::WHOLE.0);
    write!(f, "{whole}")?;
    if decimals > 0 {
        write!(f, ".{}", format!("{decimals:06}").trim_end_matches('0'))?;
    }
    Ok(())
}

/// What an answer announces about a limit. A limit that is over is also above its share, and announced as over only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, Display, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Announced {
    /// Usage is above the share `near` of the limit.
    Near,
    /// The limit is over, but denies nothing (`on_over: announce`).
    Over,
}

impl Announced {
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_taken_exactly_as_written() {
        let table = [
            ("0", Some("0")),
            ("0.8", Some("0.8")),
            ("0.800000", Some("0.8")),
            ("1", Some("1")),
            ("1.000", Some("1")),
            ("00.000001", Some("0.000001")),
            ("0.0000001", None),
            ("1.000001", None),
            ("80", None),
            ("80%", None),
            (".8", None),
            ("1.", None),
            ("-0.5", None),
            ("8e-1", None),
            ("", None),
        ];
        for (text, expected) in table {
            let share = Share::parse(text).map(|share| share.to_string());
            assert_eq!(share.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_share_of_units_is_rounded_down_and_never_overflows() {
        let share = |text| Share::parse(text).expect("a share");
        let table = [
            ("0.8", 10, 8),
            ("0.8", 9, 7),
            ("0.3", 10, 3), // a double would give 2.9999999999999996 for 3 * 0.1
            ("0", u64::MAX, 0),
            ("1", u64::MAX, u64::MAX),
            ("0.999999", 1_000_000, 999_999),
            ("0.999999", 999_999, 999_998),
        ];
        for (text, units, expected) in table {
            assert_eq!(share(text).part_of(units), expected, "{text} of {units}");
        }
    }

    #[test]
    fn a_share_is_reached_with_the_first_unit_that_is_not_below_it() {
        let table = [
            // (share, units of the limit, the first used number that reaches it)
            ("0.8", 10, 8),
            ("0.8", 9, 8), // 7.2
            ("0.5", 1, 1),
            ("0.000001", 10, 1),
            ("0.000001", 3_000_001, 4),
            ("1", 10, 10),
            ("1", u64::MAX, u64::MAX),
        ];
        for (text, units, first) in table {
            let share = Share::parse(text).expect("a share");
            assert!(
                share.is_reached(first, units) && !share.is_reached(first - 1, units),
                "{text} of {units}"
            );
        }
        assert!(!Share::WHOLE.is_reached(0, 0), "a limit of 0");
    }

    #[test]
    fn shares_are_different_above_0_and_at_most_eight() {
        let table = [
            ("0.8", Some("0.8")),
            ("1,0.8,0.90", Some("0.8, 0.9, 1")),
            ("0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8", Some("0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8")),
            ("0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9", None),
            ("0.8,0.80", None),
            ("0", None),
            ("0,0.8", None),
            ("0.8,2", None),
            ("", None),
        ];
        for (texts, expected) in table {
            let shares = Shares::parse(texts.split(',')).map(|shares| shares.to_string());
            assert_eq!(shares.as_deref(), expected, "{texts}");
        }
        assert_eq!(Shares::parse([]), None);
        assert!(Shares::default().is_empty() && Shares::default().iter().next().is_none());
    }
}
