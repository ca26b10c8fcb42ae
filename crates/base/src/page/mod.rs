//! What the HTML pages share: the base style sheet, and the digest that permits a page's own style sheet and script.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// Colours, fonts and tables.
pub const BASE_STYLE: &str = include_str!("base.css");

/// The SHA-256 of a style sheet or script, as a Content-Security-Policy writes it.
pub fn digest(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text))
}
