//! Resolves YAML scalars like yaml.v2 (YAML 1.1), the parser of envoyproxy/ratelimit.

use crate::yaml::Scalar;

/// A scalar with its type resolved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ScalarValue {
    Null,
    Bool(bool),
    /// Saturated; the bounds are far above any number that a rule can have.
    Int(i128),
    Float(f64),
    Text,
}

impl ScalarValue {
    /// The type, for messages.
    pub fn label(self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "a number",
            Self::Float(_) => "a floating-point number",
            Self::Text => "text",
        }
    }

    pub(crate) fn resolve(scalar: &Scalar) -> Self {
        if !scalar.is_plain {
            return Self::Text;
        }
        if scalar.is_null() {
            return Self::Null;
        }
        match &*scalar.text {
            "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => {
                Self::Bool(true)
            }
            "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
                Self::Bool(false)
            }
            text => resolve_number(text),
        }
    }
}

fn resolve_number(text: &str) -> ScalarValue {
    let (sign, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    };
    match unsigned {
        ".inf" | ".Inf" | ".INF" => return ScalarValue::Float(f64::INFINITY * f64::from(sign)),
        ".nan" | ".NaN" | ".NAN" => return ScalarValue::Float(f64::NAN),
        _ => {}
    }
    if let Some(magnitude) = parse_integer(unsigned) {
        return ScalarValue::Int(i128::from(sign) * magnitude);
    }
    let digits = text.replace('_', "");
    match digits.parse::<f64>() {
        Ok(value) if is_float(unsigned) && value.is_finite() => ScalarValue::Float(value),
        _ => ScalarValue::Text,
    }
}

/// Parses decimal numbers, or base 2, 8 or 16 with the prefix `0b`, `0o` or `0x`; a leading `0` without a letter means
/// octal. Ignores underscores between digits.
fn parse_integer(unsigned: &str) -> Option<i128> {
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

/// `true` if yaml.v2 resolves the string as a float: digits, an optional point and an optional exponent. Underscores
/// are ignored, but the first character may not be one.
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

    fn plain(text: &str) -> ScalarValue {
        let scalar = Scalar { text: text.into(), is_plain: true };
        ScalarValue::resolve(&scalar)
    }

    #[test]
    fn plain_scalars_have_the_type_that_yaml_v2_gives_them() {
        let table = [
            ("", ScalarValue::Null),
            ("~", ScalarValue::Null),
            ("yes", ScalarValue::Bool(true)),
            ("Off", ScalarValue::Bool(false)),
            ("yEs", ScalarValue::Text),
            ("0", ScalarValue::Int(0)),
            ("42", ScalarValue::Int(42)),
            ("-7", ScalarValue::Int(-7)),
            ("1_000", ScalarValue::Int(1000)),
            ("010", ScalarValue::Int(8)),    // octal
            ("08", ScalarValue::Float(8.0)), // not an octal number
            ("0x1F", ScalarValue::Int(31)),
            ("0b101", ScalarValue::Int(5)),
            ("0x", ScalarValue::Text),
            ("0xZZ", ScalarValue::Text),
            ("1.5", ScalarValue::Float(1.5)),
            ("-.5", ScalarValue::Float(-0.5)),
            ("1.", ScalarValue::Float(1.0)),
            ("1e3", ScalarValue::Float(1000.0)),
            ("1_0.5", ScalarValue::Float(10.5)),
            ("0e_1", ScalarValue::Float(0.0)),
            ("1e", ScalarValue::Text),
            ("1e999", ScalarValue::Text), // too large for a float
            (".", ScalarValue::Text),
            ("_1.5", ScalarValue::Text),
            ("1.e3.", ScalarValue::Text),
            ("+-1.5", ScalarValue::Text),
            ("1e+3", ScalarValue::Float(1000.0)),
            ("-.inf", ScalarValue::Float(f64::NEG_INFINITY)),
            ("10.0.0.1", ScalarValue::Text),
            ("2020-01-01", ScalarValue::Text),
            ("-", ScalarValue::Text),
            ("ü", ScalarValue::Text),
        ];
        for (text, expected) in table {
            assert_eq!(plain(text), expected, "{text}");
        }
        assert_eq!(plain("9".repeat(60).as_str()), ScalarValue::Int(i128::MAX));
    }

    #[test]
    fn quoted_scalars_are_text() {
        let quoted = Scalar { text: "5".into(), is_plain: false };
        assert_eq!(ScalarValue::resolve(&quoted), ScalarValue::Text);
    }
}
