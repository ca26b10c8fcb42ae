//! What the HTML pages have in common: the style sheet that they begin with, and the digest by which a page permits
//! its own style sheet and script.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// The style sheet of colours, texts and tables.
pub const BASE_STYLE: &str = include_str!("base.css");

/// The SHA-256 of a style sheet or script, in the form in which a Content-Security-Policy has it.
#[must_use]
pub fn digest(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text))
}
