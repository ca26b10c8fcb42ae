//! Values with the tag `!!binary`: text in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The text that `value` has in base64. It may have line breaks.
///
/// # Errors
/// Why there is no text.
pub(super) fn decode(value: &str) -> Result<String, &'static str> {
    let digits: String = value.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(digits).map_err(|_| "the value of !!binary is not base64")?;
    String::from_utf8(bytes).map_err(|_| "the value of !!binary is not UTF-8")
}
