//! Serves the console page: one HTML file with its style sheet and script.
//!
//! It has no data, so anyone can open it; the script fetches the data, with a token if the settings have one. By its
//! policy the page allows only its own style sheet and script, by digest, and requests to its own origin.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use base::page::{BASE_STYLE, digest};
use http::{HeaderName, header};

const SKELETON: &str = include_str!("page.html");
const STYLE: [&str; 2] = [BASE_STYLE, include_str!("page.css")];
const SCRIPT: [&str; 6] = [
    include_str!("elements.js"),
    include_str!("view.js"),
    include_str!("chart.js"),
    include_str!("tables.js"),
    include_str!("act.js"),
    include_str!("stream.js"),
];

struct Page {
    html: String,
    policy: String,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let style = minifier::css::minify(&STYLE.concat()).expect("a style sheet").to_string().replace(";}", "}");
    let script = minifier::js::minify(&SCRIPT.concat()).to_string();
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        digest(&style),
        digest(&script)
    );
    let skeleton: String = SKELETON.lines().map(str::trim).collect();
    let html = skeleton.replacen("<!-- place -->", &style, 1).replacen("<!-- place -->", &script, 1);
    Page { html, policy }
});

pub(super) async fn page() -> Response {
    let same_origin = "same-origin";
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, &*PAGE.policy),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), same_origin),
        (HeaderName::from_static("cross-origin-resource-policy"), same_origin),
    ];
    (headers, &*PAGE.html).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_at_most_40_kib() {
        assert!(PAGE.html.len() <= 40_960, "{} bytes", PAGE.html.len());
        assert!(PAGE.html.starts_with("<!doctype html>") && PAGE.html.ends_with("</html>"));
        assert!(!PAGE.html.contains("<!-- place -->") && !PAGE.html.contains('\r'));
    }

    #[test]
    fn the_page_names_no_address_and_makes_no_markup() {
        // The script names the SVG namespace for elements that it creates.
        let page = PAGE.html.replace("\"http://www.w3.org/2000/svg\"", "");
        for refused in ["http:", "https:", "src=", "@import", "url(", "<link", "<iframe", "javascript:"] {
            assert!(!page.contains(refused), "{refused}");
        }
        for refused in
            ["innerHTML", "outerHTML", "insertAdjacent", "eval", "document.write", "Storage", "cookie"]
        {
            assert!(!page.contains(refused), "{refused}");
        }
        for part in STYLE.iter().chain(&SCRIPT) {
            assert!(!part.contains("</") && !part.contains("<!--") && !part.contains(" style="), "{part}");
        }
    }
}
