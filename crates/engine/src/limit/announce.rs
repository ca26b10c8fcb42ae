//! Soft limits: the effect of a limit that is over (`on_over`), and what answers announce about limits that are nearly
//! exhausted, or over without denying.
//!
//! A share is read from decimal digits into whole millionths, so no threshold is rounded.

use std::fmt;

use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// What happens to a hit that does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum OnOver {
    /// Denied, subject to the rule's mode.
    #[default]
    Deny,
    /// Admitted and recorded; the answer announces it.
    Announce,
}

impl OnOver {
    /// The name in rule files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A share from 0 to 1 in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    pub const WHOLE: Self = Self(1_000_000);

    /// What [`Share::parse`] accepts, for messages.
    pub const EXPECTED: &'static str = "a number from 0 to 1 with at most six decimals";

    /// Parses decimal digits such as `0.8`, `1` or `0.999999`; `None` for any other string.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let millionths = u32::try_from(parse_millionths(text)?).ok()?;
        (millionths <= Self::WHOLE.0).then_some(Self(millionths))
    }

    /// 0 to 1,000,000.
    #[must_use]
    pub fn millionths(self) -> u32 {
        self.0
    }

    /// This share of `units`, rounded down.
    #[must_use]
    pub fn part_of(self, units: u64) -> u64 {
        let product = u128::from(units) * u128::from(self.0);
        // The share is at most 1, so the quotient is at most `units`.
        u64::try_from(product / u128::from(Self::WHOLE.0)).unwrap_or(units)
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
#[strum(serialize_all = "snake_case")]
pub enum Announced {
    /// Usage is above the share `near` of the limit.
    Near,
    /// The limit is over, but denies nothing (`on_over: announce`).
    Over,
}

impl Announced {
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// The name in answers and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
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
}
