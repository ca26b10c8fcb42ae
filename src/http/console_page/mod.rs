//! The page of the console: one HTML text with its style sheet and its script, without data.
//!
//! The page has nothing of the process, so everybody may open it; its script fetches the data, with a token if the
//! settings have one. The page forbids itself everything but its own style sheet and script, by their digests, and
//! requests to its own origin.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, header};
use simulate::page::{BASE_STYLE, digest};

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

/// Between these characters and others a space has no meaning. A CSS selector needs the space before `(` and `[`.
const CSS_PUNCTUATION: &str = "{};:,>!";
const SCRIPT_PUNCTUATION: &str = "{}()[];,=<>?:&|!+-*/%";

struct Page {
    html: String,
    policy: String,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let style = squeezed(&STYLE.concat(), CSS_PUNCTUATION);
    let script = squeezed(&SCRIPT.concat(), SCRIPT_PUNCTUATION);
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        digest(&style),
        digest(&script)
    );
    let skeleton: String = SKELETON.lines().map(|line| format!("{}\n", line.trim_start())).collect();
    let html = skeleton.replacen("<!-- place -->", &style, 1).replacen("<!-- place -->", &script, 1);
    Page { html, policy }
});

/// Answers with the page.
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

/// Leaves out what a browser does not need: lines that are comments, and indentation, ends of lines and spaces beside
/// punctuation. Texts in `"` and `` ` `` stay as they are. The sources end every statement with a semicolon. They have
/// no text of several lines and no regular expression with a space, a quote or a brace.
fn squeezed(text: &str, punctuation: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with("/*"));
    let joined = lines.collect::<Vec<_>>().join(" ");
    let is_mark = |letter: Option<char>| letter.is_some_and(|letter| punctuation.contains(letter));
    let mut out = String::with_capacity(joined.len());
    let mut place = Place::default();
    let mut rest = joined.chars().peekable();
    while let Some(letter) = rest.next() {
        if place.is_code() {
            let is_beside = is_mark(out.chars().next_back()) || is_mark(rest.peek().copied());
            if letter == ' ' && is_beside {
                continue;
            }
        } else if letter == '\\' {
            out.push(letter);
            out.extend(rest.next());
            continue;
        }
        out.push(letter);
        place.pass(letter, out.ends_with("${"));
    }
    out
}

/// Whether a letter of a script belongs to a text.
#[derive(Debug, Default)]
struct Place {
    /// The texts and the code in them: `"`, `` ` ``, and `{` for each open brace.
    open: Vec<char>,
}

impl Place {
    fn is_code(&self) -> bool {
        !matches!(self.open.last(), Some('"' | '`'))
    }

    /// `starts_code`: the letter is the brace of `${`.
    fn pass(&mut self, letter: char, starts_code: bool) {
        match (self.open.last(), letter) {
            (Some('"'), '"') | (Some('`'), '`') | (Some('{'), '}') => {
                self.open.pop();
            }
            (Some('"'), _) => {}
            (Some('`'), '{') if starts_code => self.open.push('{'),
            (Some('`'), _) => {}
            (_, '"' | '`' | '{') => self.open.push(letter),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_at_most_40_kib() {
        assert!(PAGE.html.len() <= 40_960, "{} bytes", PAGE.html.len());
        assert!(PAGE.html.starts_with("<!doctype html>") && PAGE.html.ends_with("</html>\n"));
        assert!(!PAGE.html.contains("<!-- place -->") && !PAGE.html.contains('\r'));
    }

    #[test]
    fn the_page_names_no_address_and_makes_no_markup() {
        // The script names the namespace of SVG for elements that it makes.
        let page = PAGE.html.replace("\"http://www.w3.org/2000/svg\"", "").replace("url(#hatch)", "");
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

    #[test]
    fn a_script_loses_spaces_and_no_text_changes() {
        let table = [
            ("  const a = (b, c) => b + c;\n", "const a=(b,c)=>b+c;"),
            ("// a comment\nlet x = \"a, b // { c\" ;\n\n", "let x=\"a, b // { c\";"),
            (
                "y = \"\\\" : \" + `a , ${ b ? `c ; ${ d }` : { e : 1 } } f : `;\n",
                "y=\"\\\" : \"+`a , ${b?`c ; ${d}`:{e:1}} f : `;",
            ),
            ("for (const [a] of b) return a in c;\n", "for(const[a]of b)return a in c;"),
            ("x = `\\` , ${a}`;\n", "x=`\\` , ${a}`;"),
        ];
        for (text, expected) in table {
            assert_eq!(squeezed(text, SCRIPT_PUNCTUATION), expected, "{text}");
        }
        let style =
            "/* c */\n.a > .b { color: red; }\n@media screen and (x: 1) {\n  .a .b, c { d: e f; }\n}\n";
        let expected = ".a>.b{color:red;}@media screen and (x:1){.a .b,c{d:e f;}}";
        assert_eq!(squeezed(style, CSS_PUNCTUATION), expected);
    }
}
