//! What a YAML scalar stands for, as the reference service's parser (yaml.v2, YAML 1.1) reads it.

use crate::yaml::Scalar;

/// A scalar's meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    Null,
    Bool(bool),
    /// Saturated where it is larger than any number a rule can hold.
    Int(i128),
    Float(f64),
    Text,
}

impl Meaning {
    /// What to call it in a message.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "a number",
            Self::Float(_) => "a number with a fraction",
            Self::Text => "text",
        }
    }
}

impl Scalar {
    /// What it stands for.
    pub(super) fn meaning(&self) -> Meaning {
        if !self.is_plain {
            return Meaning::Text;
        }
        match &*self.text {
            "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => {
                Meaning::Bool(true)
            }
            "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
                Meaning::Bool(false)
            }
            text => number(text),
        }
    }
}

fn number(text: &str) -> Meaning {
    let (sign, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    };
    match unsigned {
        ".inf" | ".Inf" | ".INF" => return Meaning::Float(f64::INFINITY * f64::from(sign)),
        ".nan" | ".NaN" | ".NAN" => return Meaning::Float(f64::NAN),
        _ => {}
    }
    if let Some(magnitude) = integer(unsigned) {
        return Meaning::Int(i128::from(sign) * magnitude);
    }
    let digits = text.replace('_', "");
    match digits.parse::<f64>() {
        Ok(value) if is_float(unsigned) && value.is_finite() => Meaning::Float(value),
        _ => Meaning::Text,
    }
}

/// Decimal, or with a prefix for base 2, 8 or 16; a leading 0 alone is octal. Underscores part digits.
fn integer(unsigned: &str) -> Option<i128> {
    let (digits, radix) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&unsigned[2..], 16),
        [b'0', b'o' | b'O', ..] => (&unsigned[2..], 8),
        [b'0', b'b' | b'B', ..] => (&unsigned[2..], 2),
        [b'0', b'0'..=b'9' | b'_', ..] => (&unsigned[1..], 8),
        [b'0'..=b'9', ..] => (unsigned, 10),
        _ => return None,
    };
    let mut value: i128 = 0;
    let mut has_digits = false;
    for digit in digits.chars().filter(|&c| c != '_') {
        has_digits = true;
        value = value.saturating_mul(i128::from(radix)).saturating_add(i128::from(digit.to_digit(radix)?));
    }
    has_digits.then_some(value)
}

/// What yaml.v2 takes for a float: digits with or without a point, and an exponent or none. Underscores part digits,
/// but none comes first.
fn is_float(unsigned: &str) -> bool {
    if !unsigned.starts_with(|c: char| c == '.' || c.is_ascii_digit()) {
        return false;
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.strip_prefix(['+', '-']).unwrap_or(exponent)),
        None => (unsigned, "0"),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let has_digit = |text: &str| text.bytes().any(|byte| byte.is_ascii_digit());
    let is_mantissa = all_digits(whole) && all_digits(fraction) && (has_digit(whole) || has_digit(fraction));
    is_mantissa && all_digits(exponent) && has_digit(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Meaning {
        let scalar = Scalar { text: text.into(), is_plain: true };
        scalar.meaning()
    }

    #[test]
    fn plain_scalars_mean_what_the_reference_parser_makes_of_them() {
        let table = [
            ("", Meaning::Null),
            ("~", Meaning::Null),
            ("yes", Meaning::Bool(true)),
            ("Off", Meaning::Bool(false)),
            ("yEs", Meaning::Text),
            ("0", Meaning::Int(0)),
            ("42", Meaning::Int(42)),
            ("-7", Meaning::Int(-7)),
            ("1_000", Meaning::Int(1000)),
            ("010", Meaning::Int(8)),    // octal
            ("08", Meaning::Float(8.0)), // no octal number
            ("0x1F", Meaning::Int(31)),
            ("0b101", Meaning::Int(5)),
            ("0x", Meaning::Text),
            ("0xZZ", Meaning::Text),
            ("1.5", Meaning::Float(1.5)),
            ("-.5", Meaning::Float(-0.5)),
            ("1.", Meaning::Float(1.0)),
            ("1e3", Meaning::Float(1000.0)),
            ("1_0.5", Meaning::Float(10.5)),
            ("0e_1", Meaning::Float(0.0)),
            ("1e", Meaning::Text),
            ("1e999", Meaning::Text), // too large for a float
            (".", Meaning::Text),
            ("_1.5", Meaning::Text),
            ("1.e3.", Meaning::Text),
            ("+-1.5", Meaning::Text),
            ("1e+3", Meaning::Float(1000.0)),
            ("-.inf", Meaning::Float(f64::NEG_INFINITY)),
            ("10.0.0.1", Meaning::Text),
            ("2020-01-01", Meaning::Text),
            ("-", Meaning::Text),
            ("ü", Meaning::Text),
        ];
        for (text, expected) in table {
            assert_eq!(plain(text), expected, "{text}");
        }
        assert_eq!(plain("9".repeat(60).as_str()), Meaning::Int(i128::MAX));
    }

    #[test]
    fn quoted_scalars_are_text() {
        let quoted = Scalar { text: "5".into(), is_plain: false };
        assert_eq!(quoted.meaning(), Meaning::Text);
    }
}
