//! Renders the report as one HTML page that needs no network: the report as JSON, and a script that draws it.
//!
//! The page's Content-Security-Policy allows nothing but its own style sheet and script, by their digests.

mod excerpt;
mod heat_map;

use std::sync::LazyLock;

use base::escaped_json;
use base::page::{BASE_STYLE, digest};
use serde::Serialize;

use self::excerpt::Excerpt;
use super::report::Report;

const SKELETON: &str = include_str!("page.html");
static STYLE: LazyLock<String> = LazyLock::new(|| [BASE_STYLE, include_str!("page.css")].concat());
const SCRIPT: &str = concat!(
    include_str!("elements.js"),
    include_str!("chart.js"),
    include_str!("pictures.js"),
    include_str!("rule.js"),
    include_str!("page.js"),
);

pub fn html(report: &Report) -> String {
    let parts = [
        ("<!-- style digest -->", digest(&STYLE)),
        ("<!-- script digest -->", digest(SCRIPT)),
        ("<!-- style -->", STYLE.clone()),
        ("<!-- data -->", json(&Excerpt::new(report))),
        ("<!-- script -->", SCRIPT.to_owned()),
    ];
    // In the order of the skeleton, so no inserted part is searched for placeholders.
    let mut page = String::new();
    let mut rest = SKELETON;
    for (place, part) in parts {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        page += before;
        page += &part;
        rest = after;
    }
    page + rest
}

/// Escapes JSON for a `<script>` element: neither `</script>` nor `<!--` can occur in it.
fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("texts and numbers under names");
    // These occur only in strings, where JSON allows an escape for any character.
    escaped_json(text).replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_sheet_and_script_cannot_end_their_elements() {
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</") && !SCRIPT.contains("<!--"));
        // HTML parsers change CR LF, so the digests would differ.
        assert!(!STYLE.contains('\r') && !SCRIPT.contains('\r'));
    }

    #[test]
    fn the_script_makes_no_markup() {
        for refused in
            ["innerHTML", "outerHTML", "insertAdjacent", "eval", "document.write", "Storage", "cookie"]
        {
            assert!(!SCRIPT.contains(refused), "{refused}");
        }
    }

    #[test]
    fn each_part_is_in_its_place() {
        let page = html(&Report::default());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
        assert!(!page.contains("<!--"), "{page}");
        assert!(page.contains(&format!("<style>{}</style>", *STYLE)));
        assert!(page.contains(&format!("<script>{SCRIPT}</script>")));
        let policy = format!("style-src 'sha256-{}'; script-src 'sha256-{}'", digest(&STYLE), digest(SCRIPT));
        assert!(page.contains(&policy), "{policy}");
    }

    #[test]
    fn json_cannot_end_its_script_element() {
        let hostile = "</script><!--<script>\u{2028}\u{2029}&\"\\\0\u{1b}\u{202e}";
        let text = json(&hostile);
        assert!(!text.contains(['<', '>', '&', '\u{2028}', '\u{2029}', '\u{202e}']), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).expect("JSON"), hostile);
    }
}
